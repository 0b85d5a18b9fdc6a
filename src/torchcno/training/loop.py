"""Train networks: `fit` one, or `fit_together` several.

A run is checked and begun here. `epochs.py` has what one network does in an epoch; `crew.py` has
the loop over epochs. Data, weights and the running loss live on the device; the host reads the loss
once per epoch. All random numbers come from (seed, epoch), and the learning rate from the time
alone. So the state between two steps determines the rest of a run.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from torchcno.arithmetic import FIELDS, Precision, arithmetic
from torchcno.selection import select
from torchcno.training.augmentation import ZEROS, Mover
from torchcno.training.averaging import WeightAverage
from torchcno.training.crew import Crew
from torchcno.training.epochs import Diverged, Epoch, TrainingRun
from torchcno.training.folder import TrainingFolder
from torchcno.training.hardware import Hardware, Processes, is_captured, launch, reuse_memory
from torchcno.training.identity import Supply, identify_data, identify_network
from torchcno.training.interruption import stop_requests
from torchcno.training.losses import LOSSES, OF_BATCHES
from torchcno.training.optimizers import make_optimizer
from torchcno.training.pairs import Pairs, refuse_zeros
from torchcno.training.physics import informed_loss
from torchcno.training.recipe import EITHER_WAY, Recipe
from torchcno.training.sharding import shard
from torchcno.training.state import Progress, State
from torchcno.training.streaming import StreamedPairs
from torchcno.training.windows import Rollouts, Windows


@dataclass(frozen=True)
class Fit:
    """What a finished run came to."""

    epochs: int  # run, fewer than the recipe's after an early stop
    best_epoch: int
    best_validation_error: float
    seconds_per_epoch: float
    devices: tuple[str, ...]  # that took these seconds, one after the other


@dataclass(frozen=True)
class Member:
    """One of the networks that are trained together."""

    network: nn.Module
    folder: TrainingFolder
    seed: int = 0  # of the order of samples, the symmetries and the dropout


def fit(
    model: nn.Module,
    train: Supply,
    val: Pairs | Rollouts,
    recipe: Recipe,
    folder: Path,
    *,
    seed: int = 0,
    hardware: Hardware = Hardware(),  # noqa: B008
    on_epoch: Callable[[Epoch], None] | None = None,
    resume: bool = False,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Fit:
    """Train `model` by `recipe`, and leave it with the weights that did best on `val`, to evaluate.

    `folder` receives `metrics.jsonl` (a row an epoch), `model.safetensors` (the best weights on
    validation) and `checkpoint/` (everything to go on). With `resume` the run goes on from the
    checkpoint, or from the start where it was killed before the first: give the same model (built
    from the same seed), data, recipe and seed. Without it a folder that holds a run already is a
    ValueError.

    `loss` is a function of (prediction, target) of a batch, in place of the recipe's.
    `on_epoch` is called on the first process after every epoch. On a CPU the process keeps
    the memory of a step for the next one, also when the run is over (`reuse_memory`).

    Raises `Interrupted` after SIGINT or SIGTERM, with the state saved, and `Diverged` when the loss
    is no longer finite, with the best weights so far kept. A signal in the last moments of a run,
    when there is nothing left to stop, is the caller's: it comes again when all is saved.
    """
    (outcome,) = fit_together(
        [Member(model, TrainingFolder(folder), seed)],
        train,
        val,
        recipe,
        hardware=hardware,
        on_epoch=None if on_epoch is None else lambda _, epoch: on_epoch(epoch),
        resume=resume,
        loss=loss,
    )
    if isinstance(outcome, Diverged):
        raise outcome
    return outcome


def fit_together(
    members: Sequence[Member],
    train: Supply,
    val: Pairs | Rollouts,
    recipe: Recipe,
    *,
    hardware: Hardware = Hardware(),  # noqa: B008
    on_epoch: Callable[[int, Epoch], None] | None = None,
    resume: bool = False,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> list[Fit | Diverged]:
    """`fit` of several networks at once, each as if it were alone, from one copy of the data.

    On CUDA the steps of all members are one graph, in which they run side by side; a member that
    stops early leaves it. Elsewhere, and for networks with dropout, members take turns, an epoch
    each. Every member has its files in a folder of its own, and on a CPU the files are those of
    `fit`, bit for bit. `on_epoch` is told the number of the member, too.

    A member that diverges ends alone, and the others go on: what came of each is returned in their
    order. An interruption saves all of them.
    """
    with arithmetic(recipe.precision):  # or Lightning advises to set it
        fabric = launch(hardware)
    if len(members) > 1 and fabric.world_size > 1:
        raise ValueError(
            f"{len(members)} members and {fabric.world_size} processes: members are trained "
            "together on one device; use --devices 1, or train one member at a time."
        )
    train = _prepare_samples(train, val, recipe, fabric.world_size)
    of_batch = loss or select(LOSSES, recipe.loss, "loss")
    if recipe.physics:
        of_batch = informed_loss(of_batch, recipe.physics)
    cuda = [fabric.device] if fabric.device.type == "cuda" else []
    if not cuda:
        reuse_memory()
    # Whole batches only: what is left over sits out the epoch, others in the next one.
    steps = len(train) // recipe.batch_size
    initial = [copy.deepcopy(member.network.state_dict()) for member in members]
    is_shared = is_captured(recipe, fabric.device, fabric.world_size) and not any(
        draws_random_numbers(member.network, train) for member in members
    )
    data, shared = identify_data(train, val), train.to(fabric.device)
    there = val.to(fabric.device)
    mover = Mover(train.inputs.shape[2:], fabric.device, ZEROS.get(recipe.augmentation, 0.0))

    def begin(number: int, precision: Precision) -> TrainingRun:
        member = members[number]
        # A window on a disk moves with the member's own order of samples.
        own = is_shared and number > 0 and isinstance(train, StreamedPairs)
        return TrainingRun(
            name=f"member {number} (seed {member.seed}): " if len(members) > 1 else "",
            number=number,
            fabric=fabric,
            recipe=replace(recipe, precision=precision),
            seed=member.seed,
            folder=member.folder,
            train=train.to(fabric.device) if own else shared,
            val=there,
            steps_per_epoch=steps,
            frozen_from=recipe.epochs - round(recipe.frozen_statistics * recipe.epochs),
            protocol={
                **{k: v for k, v in asdict(recipe).items() if k not in EITHER_WAY},
                "seed": member.seed,
                "samples": len(train),
                **identify_network(member.network),
                **data,
            },
            state=_first_state(member.network, recipe, steps, fabric, hardware),
            mover=mover,
            loss=of_batch,
        )

    def begin_again(run: TrainingRun, error: Diverged) -> TrainingRun | None:
        """The run in tf32, from its last checkpoint; None where it was not in float16 by itself."""
        precision = run.recipe.precision
        if recipe.precision == precision or FIELDS.get(precision) is None:
            return None
        warnings.warn(
            f"{error} With precision 'auto' the run goes on in tf32, from its last checkpoint.",
            stacklevel=2,
        )
        members[run.number].network.load_state_dict(initial[run.number])
        again = begin(run.number, "tf32")
        if not again.folder.has_checkpoint:
            again.folder.rewind(0, {})
        again.start(resume=True)
        return again

    with arithmetic(recipe.precision), torch.random.fork_rng(cuda), stop_requests() as stopping:
        runs = [
            begin(number, choose_precision(recipe, member.network, fabric.device))
            for number, member in enumerate(members)
        ]
        for run in runs:
            run.start(resume)
        crew = Crew(runs, is_shared, begin_again)
        crew.go(stopping, on_epoch)
    return [crew.diverged.get(run.number) or _outcome(run, members) for run in crew.runs]


def _prepare_samples(
    train: Supply, val: Pairs | Rollouts, recipe: Recipe, processes: int
) -> Supply:
    """The training samples that the recipe asks for; an error where it cannot train on these."""
    if recipe.samples is not None and recipe.samples > len(train):
        raise ValueError(
            f"samples is {recipe.samples} and the training set has {len(train)}; use at most those."
        )
    train = train.first(recipe.samples)
    check_batches(recipe, len(train), processes)
    refuse_zeros(val, "validation")
    if recipe.loss not in OF_BATCHES and isinstance(train, Pairs):
        refuse_zeros(train, "training")
    if recipe.physics and getattr(train, "equation", None) is None:
        raise ValueError(
            f"physics is {recipe.physics:g}, and the training set has no equation; use physics "
            "0, or Pairs(..., equation=...)."
        )
    if not recipe.physics and isinstance(train, Pairs):
        train = replace(train, equation=None)  # no loss asks for it
    return train


def _outcome(run: TrainingRun, members: Sequence[Member]) -> Fit:
    """What a run came to; its network has the best weights."""
    progress, network = run.state.progress, members[run.number].network
    network.load_state_dict(run.state.best_weights())
    network.eval()
    assert progress.best_error is not None
    return Fit(
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        best_validation_error=progress.best_error,
        seconds_per_epoch=progress.seconds / progress.epoch,
        devices=tuple(progress.devices),
    )


def draws_random_numbers(network: nn.Module, train: Supply) -> bool:
    """Whether steps take random numbers of the process: for dropout, or for noise on the data."""
    dropout = any(isinstance(m, _DropoutNd) and m.p > 0 for m in network.modules())
    return dropout or (isinstance(train, Windows) and any(train.noise))


def choose_precision(
    recipe: Recipe, model: nn.Module | type[nn.Module], device: torch.device
) -> Precision:
    """The arithmetic of a run: that of the recipe, or what "auto" means for this network here."""
    if recipe.precision != "auto":
        return recipe.precision
    half = device.type == "cuda" and getattr(model, "HALF_FIELDS", False)
    return "fp16-mixed" if half else "tf32"


def check_batches(recipe: Recipe, n: int, processes: int) -> None:
    """Refuse batches that `n` samples do not fill, or that do not divide among the processes."""
    size = recipe.batch_size
    if size > n:
        raise ValueError(
            f"batch_size {size} is larger than the {n} training samples; use at most {n}."
        )
    if size % processes:
        raise ValueError(
            f"batch_size {size} does not divide among {processes} processes; "
            f"use {max(1, size // processes) * processes}."
        )


def _first_state(
    model: nn.Module, recipe: Recipe, steps_per_epoch: int, fabric: Processes, hardware: Hardware
) -> State:
    """The state before the first step."""
    device, several = fabric.device, fabric.world_size > 1

    def placed(network: nn.Module) -> nn.Module:
        divided = several and hardware.strategy == "fsdp"
        return shard(network, device) if divided else network.to(device)

    half_life = recipe.averaging_half_life
    average = None
    if half_life is not None:
        average = WeightAverage(placed(copy.deepcopy(model)), half_life * steps_per_epoch)
    if several:
        model = copy.deepcopy(model)  # the given one stays as built
    if several and device.type == "cuda":
        # Statistics of the whole batch, as one process has them. PyTorch has them on CUDA only: on
        # the CPU every process normalises with its own share.
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = placed(model)
    return State(
        model=model,
        optimizer=make_optimizer(
            recipe.optimizer, model, recipe.learning_rate, recipe.weight_decay, device
        ),
        average=average,
        loss_sum=torch.zeros((), dtype=torch.float64, device=device),
        best={},
        progress=Progress(),
    )
