"""The training loop.

Data, weights and the running loss live on the device; the host reads the loss once an epoch. All
that is random comes from (seed, epoch) and the learning rate from the time alone, so that the state
between two steps determines the rest of a run.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from torchcno.arithmetic import FIELDS, LOSS_FACTORS, Precision, arithmetic
from torchcno.operators import aside
from torchcno.selection import select
from torchcno.training.augmentation import AUGMENTATIONS, ZEROS, Mover
from torchcno.training.averaging import (
    RECALIBRATION_BATCHES,
    WeightAverage,
    copy_statistics,
    hold_statistics,
    recalibrate_batch_norm,
)
from torchcno.training.checkpoint import save_tensors
from torchcno.training.folder import TrainingFolder
from torchcno.training.hardware import (
    Fabric,
    Hardware,
    device_name,
    is_captured,
    launch,
    reuse_memory,
)
from torchcno.training.identity import Supply, identify
from torchcno.training.interruption import Interrupted, stop_requests
from torchcno.training.losses import LOSSES, OF_BATCHES
from torchcno.training.optimizers import make_optimizer, set_rate
from torchcno.training.pairs import (
    MixedPrecision,
    Pairs,
    refuse_zeros,
)
from torchcno.training.recipe import EITHER_WAY, Recipe, completed, learning_rate
from torchcno.training.sharding import is_sharded, shard, whole
from torchcno.training.state import Progress, State
from torchcno.training.step import Step, eager_step, graphed, trained_tensors, training_modes
from torchcno.training.windows import Rollouts

# What the seed of a run makes random, each from a stream of its own.
ORDER, DROPOUT, SYMMETRY = range(3)
# Batches that are evaluated at a time. Nothing is kept for gradients, so they take less memory than
# a step does; on a GPU one large batch is over sooner than four that are waited for.
AT_ONCE = 4


@dataclass(frozen=True)
class Epoch:
    """A row of metrics.jsonl."""

    epoch: int  # 1, 2, …
    learning_rate: float  # of the epoch's last step
    train_loss: float
    validation_error: float | None  # see `validation_error`; None where it was not evaluated
    best_validation_error: float | None
    seconds: float  # of this epoch, evaluation included, also those before an interruption


@dataclass(frozen=True)
class Fit:
    """What a finished run came to."""

    epochs: int  # run, fewer than the recipe's after an early stop
    best_epoch: int
    best_validation_error: float
    seconds_per_epoch: float
    devices: tuple[str, ...]  # that took these seconds, one after the other


class Diverged(RuntimeError):  # noqa: N818
    """The loss or the validation error is no longer a number."""


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
    with arithmetic(recipe.precision):  # or Lightning advises to set it
        fabric = launch(hardware)
    if recipe.samples is not None and recipe.samples > len(train):
        raise ValueError(
            f"samples is {recipe.samples} and the training set has {len(train)}; use at most those."
        )
    train = train.first(recipe.samples)
    check_batches(recipe, len(train), fabric.world_size)
    refuse_zeros(val, "validation")
    if recipe.loss not in OF_BATCHES and isinstance(train, Pairs):
        refuse_zeros(train, "training")
    cuda = [fabric.device] if fabric.device.type == "cuda" else []
    if not cuda:
        reuse_memory()
    # Whole batches only: what is left over sits out the epoch, others in the next one.
    steps = len(train) // recipe.batch_size
    initial = copy.deepcopy(model.state_dict())
    with arithmetic(recipe.precision), torch.random.fork_rng(cuda), stop_requests() as stopping:

        def begin(precision: Precision) -> _Run:
            return _Run(
                fabric=fabric,
                recipe=replace(recipe, precision=precision),
                seed=seed,
                folder=TrainingFolder(folder),
                train=train.to(fabric.device),
                val=val.to(fabric.device),
                steps_per_epoch=steps,
                frozen_from=recipe.epochs - round(recipe.frozen_statistics * recipe.epochs),
                protocol={
                    **{k: v for k, v in asdict(recipe).items() if k not in EITHER_WAY},
                    "seed": seed,
                    "samples": len(train),
                    **identify(model, train, val),
                },
                state=_first_state(model, recipe, steps, fabric, hardware),
                mover=Mover(
                    train.inputs.shape[2:], fabric.device, ZEROS.get(recipe.augmentation, 0.0)
                ),
                loss=loss or select(LOSSES, recipe.loss, "loss"),
            )

        precision = choose_precision(recipe, model, fabric.device)
        run = begin(precision)
        run.start(resume)
        try:
            run.go(stopping, on_epoch)
        except Diverged as error:
            if recipe.precision == precision or FIELDS.get(precision) is None:
                raise
            warnings.warn(
                f"{error} With precision 'auto' the run goes on in tf32, from its last checkpoint.",
                stacklevel=2,
            )
            model.load_state_dict(initial)
            run = begin("tf32")
            if not run.folder.checkpoint.exists():
                run.folder.rewind(0, {})
            run.start(resume=True)
            run.go(stopping, on_epoch)
    progress = run.state.progress
    model.load_state_dict(run.state.best_weights())
    model.eval()
    assert progress.best_error is not None
    return Fit(
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        best_validation_error=progress.best_error,
        seconds_per_epoch=progress.seconds / progress.epoch,
        devices=tuple(progress.devices),
    )


@dataclass
class _Plan:
    """What the steps of an epoch read, a row a step, on the device."""

    batches: Int[Tensor, "step sample"]  # the samples of every batch, of those a process's share
    rates: Float[Tensor, " step"]  # of learning, in the middle of a step
    shares: Float[Tensor, " step"]  # of the weights after a step in their average
    moves: Int[Tensor, "step number"]  # the symmetry that moves a batch; empty: none does
    position: Int[Tensor, " 1"]  # the next row

    def row(self, table: Tensor) -> Tensor:
        """The row of `table` for the next step, without waiting for the device."""
        # Around the end, where a capture warms up on the steps of an epoch that has fewer.
        return table.index_select(0, self.position % len(table))[0]


@dataclass
class _Run:
    """What stays the same in the course of a run, and the `state` that changes."""

    fabric: Fabric
    recipe: Recipe
    seed: int
    folder: TrainingFolder
    train: Supply
    val: Pairs | Rollouts
    steps_per_epoch: int
    frozen_from: int  # the first epoch in which batch norm keeps its statistics
    protocol: Mapping[str, Any]  # what has to be the same when a run goes on
    state: State
    mover: Mover
    loss: Callable[[Tensor, Tensor], Tensor]  # of a batch
    plan: _Plan | None = None  # of the current epoch
    saved: float = field(default_factory=time.monotonic)  # when the state was last
    timed: float = field(default_factory=time.monotonic)  # up to when the epoch's seconds count

    @property
    def finished(self) -> bool:
        """Whether the epochs are used up, or the patience is, as an evaluation finds."""
        progress, recipe = self.state.progress, self.recipe
        waited = progress.epoch - progress.best_epoch if progress.best_error is not None else 0
        evaluated = progress.epoch % recipe.evaluate_every == 0
        impatient = evaluated and waited >= (recipe.patience or math.inf)
        return impatient or progress.epoch >= recipe.epochs

    def start(self, resume: bool) -> None:
        """Start a new run in the folder, or go on from its checkpoint, if there is one yet."""
        if not resume:
            if self.fabric.is_global_zero:
                self.folder.claim()
            self.fabric.barrier()
            return
        saved = self.folder.load()
        if saved is not None:
            tensors, note = saved
            # What earlier versions did not note is taken to be the same.
            protocol = {**self.protocol, **completed(note["protocol"])}
            for name, given in self.protocol.items():
                is_longer = name == "epochs" and given > protocol.get(name, given)
                if protocol.get(name) != given and not is_longer:  # a run may be prolonged
                    raise ValueError(
                        f"the checkpoint was made with {name} = {protocol.get(name)!r}, not "
                        f"{given!r}; give the same to go on, or start a new run in another folder."
                    )
            self.state.restore(tensors, note["progress"])
        best = self.state.best_weights()
        self.fabric.barrier()
        if self.fabric.is_global_zero:
            self.folder.rewind(self.state.progress.metrics_bytes, best)

    def go(self, stopping: Callable[[], bool], on_epoch: Callable[[Epoch], None] | None) -> None:
        """Run to the end."""
        advance, judge = self.ways()
        name, devices = device_name(self.fabric.device), self.state.progress.devices
        if not self.finished and name not in devices:
            devices.append(name)  # a time means little without it
        while not self.finished:
            self.timed = time.monotonic()
            self.train_epoch(advance, stopping)
            epoch = self.close_epoch(judge)
            if on_epoch is not None and self.fabric.is_global_zero:
                on_epoch(epoch)
            # Processes have to agree on it, or those that go on would wait for the others.
            if not self.finished and self.fabric.broadcast(stopping()):
                self.interrupt()
            if self.fabric.broadcast(self.due):
                self.save()
        self.save()

    def ways(self) -> tuple[Callable[[], None], Callable[[], Tensor]]:
        """A step and a validation error: each a captured graph where that is possible."""
        state = self.state
        step = _make_step(state, self.recipe, self.fabric, self.loss, self.train.teach)
        advance = partial(self.advance, step, list(state.model.parameters()))
        if not is_captured(self.recipe, self.fabric.device, self.fabric.world_size):
            return advance, self.judge

        def changed() -> Iterator[Tensor]:
            assert self.plan is not None
            averages = state.average.model.parameters() if state.average is not None else ()
            own = trained_tensors(state.model, state.optimizer)
            return chain(own, averages, (state.loss_sum, self.plan.position))

        def frozen() -> bool:
            return state.progress.epoch >= self.frozen_from

        captured = graphed(advance, changed, lambda: training_modes(state.model))
        return captured, graphed(self.judge, state=frozen, warm_up=1)

    def train_epoch(self, advance: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """The steps of the current epoch that are still to do."""
        state, progress, alone = self.state, self.state.progress, self.fabric.world_size == 1
        if progress.batch == 0:
            state.loss_sum.zero_()
            torch.manual_seed(_seed(self.seed, progress.epoch, DROPOUT, self.fabric.global_rank))
        self.make_plan()
        if progress.epoch == self.frozen_from and progress.batch == 0:
            self.recalibrate(state.model)
        state.model.train()
        if progress.epoch >= self.frozen_from:
            hold_statistics(state.model)
        while progress.batch < self.steps_per_epoch:
            self.train.load(progress.batch)
            advance()
            progress.batch += 1
            if alone and stopping():
                self.interrupt()
            if alone and self.due:
                self.save()

    def make_plan(self) -> None:
        """Draw what the steps of this epoch read, in the place of what those of the last read."""
        state, size, steps = self.state, self.recipe.batch_size, self.steps_per_epoch
        epoch, space = state.progress.epoch, self.train.inputs.shape[2:]
        generator = Generator().manual_seed(_seed(self.seed, epoch, ORDER))
        batches = self.train.draw(generator, steps, size)
        draw = select(AUGMENTATIONS, self.recipe.augmentation, "augmentation")
        moves: list[list[int]] = [[] for _ in range(steps)]
        if draw is not None:
            for step in range(steps):
                random = Generator().manual_seed(_seed(self.seed, epoch, SYMMETRY, step))
                moves[step] = list(chain(*draw(space, self.train.channels, random)))
        average, before = state.average, epoch * steps
        shares = [average.share(before + step + 1) if average else 0.0 for step in range(steps)]
        drawn = _Plan(
            batches=batches[:, self.fabric.global_rank :: self.fabric.world_size],
            rates=torch.tensor(list(map(self.rate, range(steps))), dtype=torch.float64),
            shares=torch.tensor(shares, dtype=torch.float64),
            moves=torch.tensor(moves, dtype=torch.int64),
            position=torch.tensor([state.progress.batch]),
        )
        tensors = {name: t.to(self.fabric.device) for name, t in vars(drawn).items()}
        if self.plan is None:
            self.plan = _Plan(**tensors)
        for name, tensor in tensors.items():
            getattr(self.plan, name).copy_(tensor)

    def advance(self, step: Step, weights: list[Tensor]) -> None:
        """One step on the next batch of the plan, moved by its symmetry."""
        state, plan = self.state, self.plan
        assert plan is not None
        batch = plan.row(plan.batches)
        take: Callable[[Tensor, Tensor], Tensor] = take_rows
        if plan.moves.numel():
            take = partial(self.mover, numbers=plan.row(plan.moves))
        fields = self.train.gather(batch, take)
        set_rate(state.optimizer, plan.row(plan.rates))
        state.loss_sum += step(*fields)
        if state.average is not None:
            share = plan.row(plan.shares)
            state.average.update(weights, share if share.is_cuda else float(share))
        plan.position += 1

    def rate(self, batch: int) -> float:
        """The learning rate in the middle of a step of this epoch."""
        time = self.state.progress.epoch + (batch + 0.5) / self.steps_per_epoch
        return learning_rate(self.recipe, time)

    def count_seconds(self) -> None:
        """Count the time up to now as the current epoch's."""
        now = time.monotonic()
        self.state.progress.epoch_seconds += now - self.timed
        self.timed = now

    def close_epoch(self, judge: Callable[[], Tensor]) -> Epoch:
        """Judge the epoch, note it down and go to the next."""
        progress, recipe = self.state.progress, self.recipe
        total = self.fabric.all_reduce(self.state.loss_sum.clone(), reduce_op="mean")
        assert isinstance(total, Tensor)
        loss = float(total) / self.steps_per_epoch
        self.check_finite(loss, "training loss")
        number = progress.epoch + 1
        error = None
        if number % recipe.evaluate_every == 0 or number == recipe.epochs:
            error = self.fabric.broadcast(float(judge()))
            self.check_finite(error, "validation error")
            if progress.best_error is None or error < progress.best_error:
                progress.best_epoch, progress.best_error = number, error
                self.state.keep_best()
        self.count_seconds()
        row = Epoch(
            epoch=number,
            learning_rate=self.rate(self.steps_per_epoch - 1),
            train_loss=loss,
            validation_error=error,
            best_validation_error=progress.best_error,
            seconds=progress.epoch_seconds,
        )
        if self.fabric.is_global_zero:
            progress.metrics_bytes = self.folder.append(asdict(row))
        progress.seconds += row.seconds
        progress.epoch, progress.batch, progress.epoch_seconds = number, 0, 0.0
        return row

    def judge(self) -> Tensor:
        """The validation error of the network that would be kept.

        Every process does the whole of it, since the sets are small, and the first one's is taken.
        """
        state, size = self.state, self.recipe.batch_size
        if state.average is not None and state.progress.epoch >= self.frozen_from:
            copy_statistics(state.model, state.average.model)
        elif state.average is not None:
            self.recalibrate(state.average.model)
        return self.val.error_of(MixedPrecision(state.evaluated), AT_ONCE * size)

    def recalibrate(self, model: nn.Module) -> None:
        """Give the batch norms of `model` the statistics of training samples."""
        size = self.recipe.batch_size
        inputs, *conditions = self.train.examples(RECALIBRATION_BATCHES * size)
        recalibrate_batch_norm(model, inputs, size, *conditions)

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old enough for another."""
        return time.monotonic() - self.saved >= self.recipe.checkpoint_every

    def save(self) -> None:
        """Write the checkpoint and the best weights, unless the state is no longer finite."""
        self.check_finite(float(self.state.loss_sum), "training loss")
        # The sum of the weights' norms is finite if and only if all weights are.
        norms = torch._foreach_norm([w.detach() for w in self.state.model.parameters()])
        self.check_finite(float(sum(whole(norm) for norm in norms)), "sum of all weights")
        tensors, best = self.state.tensors(), self.state.best_weights()
        if self.state.progress.batch:  # in the middle of an epoch
            self.count_seconds()
        if self.fabric.is_global_zero:
            note = {"protocol": self.protocol, "progress": asdict(self.state.progress)}
            self.folder.save(tensors, note, best)
        self.fabric.barrier()  # whoever goes on from the checkpoint finds it written
        self.saved = time.monotonic()

    def interrupt(self) -> NoReturn:
        """Save, and say how to go on."""
        self.save()
        progress = self.state.progress
        raise Interrupted(
            f"stopped in epoch {progress.epoch + 1} of {self.recipe.epochs}; everything is saved. "
            f"Go on with the same call and resume=True; with a run of `cno train` by: "
            f"cno resume {self.folder.path}"
        )

    def check_finite(self, value: float, what: str) -> None:
        """Raise `Diverged` where `value` is no number, with the best weights so far on disk."""
        if math.isfinite(value):
            return
        progress, recipe = self.state.progress, self.recipe
        best = self.state.best_weights()
        kept = "There are no good weights yet."
        if best and self.fabric.is_global_zero:
            save_tensors(self.folder.weights, best)
        if best:
            kept = f"The weights of epoch {progress.best_epoch} are kept in {self.folder.weights}."
        full = "" if recipe.precision == "32" else ", precision '32'"
        if recipe.precision == "fp16-mixed":
            full = ", precision 'tf32' (float16 ends at 65504)"
        raise Diverged(
            f"the {what} is {value} in epoch {progress.epoch + 1}; try a smaller learning rate "
            f"(learning_rate {recipe.learning_rate / 2:g}, now {recipe.learning_rate:g}), a longer "
            f"warm-up (schedule 'cosine', warmup){full}. {kept}"
        )


def take_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor."""
    return tensor.index_select(0, rows)


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
    model: nn.Module, recipe: Recipe, steps_per_epoch: int, fabric: Fabric, hardware: Hardware
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


def _make_step(
    state: State,
    recipe: Recipe,
    fabric: Fabric,
    loss: Callable[[Tensor, Tensor], Tensor],
    teach: Callable[[nn.Module], nn.Module],
) -> Step:
    """The recipe's step: through Fabric, unless it is captured in a graph.

    `teach` makes of the network what the step trains.
    """
    network = teach(MixedPrecision(state.model.train(), FIELDS.get(recipe.precision)))
    factor = LOSS_FACTORS.get(recipe.precision, 1.0)
    if is_captured(recipe, fabric.device, fabric.world_size):
        if recipe.fast == "compiled":
            network.compile()
        return eager_step(network, state.optimizer, loss, factor, aside)
    if is_sharded(state.model):  # it averages its gradients itself
        return eager_step(network, state.optimizer, loss, factor)
    wrapped, optimizer = fabric.setup(network, state.optimizer)
    return eager_step(wrapped, optimizer, loss, factor)


def _seed(*key: int) -> int:
    """A seed that is as good as random for every key."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])
