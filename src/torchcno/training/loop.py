"""The training loop.

Data, weights and the running loss live on the device; the host reads the loss once an epoch. All
that is random comes from (seed, epoch) and the learning rate from the time alone, so that the state
between two steps determines the rest of a run.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from torchcno.arithmetic import FIELDS, LOSS_FACTORS, Precision, arithmetic
from torchcno.operators import aside, side_by_side
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
    Hardware,
    Processes,
    device_name,
    is_captured,
    launch,
    reuse_memory,
)
from torchcno.training.identity import Supply, identify_data, identify_network
from torchcno.training.interruption import Interrupted, stop_requests
from torchcno.training.losses import LOSSES, OF_BATCHES
from torchcno.training.optimizers import make_optimizer, set_rate
from torchcno.training.pairs import (
    MixedPrecision,
    Pairs,
    refuse_zeros,
)
from torchcno.training.physics import informed_loss
from torchcno.training.recipe import EITHER_WAY, Recipe, completed, learning_rate
from torchcno.training.sharding import is_sharded, shard, whole
from torchcno.training.state import Progress, State
from torchcno.training.step import Step, eager_step, graphed, trained_tensors, training_modes
from torchcno.training.streaming import StreamedPairs
from torchcno.training.windows import Rollouts, Windows

T = TypeVar("T")

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
    # Of this epoch, evaluation included, also those before an interruption. Of members that are
    # trained at once each has its share.
    seconds: float


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
    initial = [copy.deepcopy(member.network.state_dict()) for member in members]
    of_batch = loss or select(LOSSES, recipe.loss, "loss")
    if recipe.physics:
        if getattr(train, "equation", None) is None:
            raise ValueError(
                f"physics is {recipe.physics:g}, and the training set has no equation; use physics "
                "0, or Pairs(..., equation=...)."
            )
        of_batch = informed_loss(of_batch, recipe.physics)
    elif isinstance(train, Pairs):
        train = replace(train, equation=None)  # which nobody would look at
    is_shared = is_captured(recipe, fabric.device, fabric.world_size) and not any(
        draws_random_numbers(member.network, train) for member in members
    )
    data, shared = identify_data(train, val), train.to(fabric.device)
    there = val.to(fabric.device)
    mover = Mover(train.inputs.shape[2:], fabric.device, ZEROS.get(recipe.augmentation, 0.0))

    def begin(number: int, precision: Precision) -> _Run:
        member = members[number]
        # A window on a disk moves with the member's own order of samples.
        own = is_shared and number > 0 and isinstance(train, StreamedPairs)
        return _Run(
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

    def begin_again(run: _Run, error: Diverged) -> _Run | None:
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
        crew = _Crew(runs, is_shared, begin_again)
        crew.go(stopping, on_epoch)
    return [crew.diverged.get(run.number) or _outcome(run, members) for run in crew.runs]


def _outcome(run: "_Run", members: Sequence[Member]) -> Fit:
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

    name: str  # in messages; empty: it is the only one
    number: int  # among those that are trained together
    fabric: Processes
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
    step: Callable[[], None] | None = None  # does the next step of the plan
    modes: Hashable = None  # of the network's modules in the current epoch
    saved: float = field(default_factory=time.monotonic)  # when the state was last
    timed: float = field(default_factory=time.monotonic)  # up to when the epoch's seconds count
    together: int = 1  # runs that the time is shared by

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

    @property
    def position(self) -> tuple[int, int]:
        """Epochs that are over, and steps of the current one."""
        return self.state.progress.epoch, self.state.progress.batch

    def changed_tensors(self) -> Iterator[Tensor]:
        """Every tensor that a step of the run changes."""
        state = self.state
        assert self.plan is not None
        averages = state.average.model.parameters() if state.average is not None else ()
        own = trained_tensors(state.model, state.optimizer)
        return chain(own, averages, (state.loss_sum, self.plan.position))

    def begin_epoch(self, together: int) -> None:
        """Make ready for the steps of the current epoch that are still to do."""
        state, progress = self.state, self.state.progress
        self.timed = time.monotonic()
        if self.step is None:
            step = _make_step(state, self.recipe, self.fabric, self.loss, self.train.teach)
            self.step = partial(self.advance, step, list(state.model.parameters()))
        self.together = together
        name = device_name(self.fabric.device)
        if together > 1:
            name = f"{name}, {together} members at once"
        if name not in progress.devices:
            progress.devices.append(name)  # a time means little without it
        if progress.batch == 0:
            state.loss_sum.zero_()
            torch.manual_seed(_seed(self.seed, progress.epoch, DROPOUT, self.fabric.global_rank))
        else:
            state.restore_random()
        self.make_plan()
        if progress.epoch == self.frozen_from and progress.batch == 0:
            self.recalibrate(state.model)
        state.model.train()
        if progress.epoch >= self.frozen_from:
            hold_statistics(state.model)
        self.modes = training_modes(state.model)

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
        """Count the time up to now as the current epoch's: of those at work at once, a share."""
        now = time.monotonic()
        self.state.progress.epoch_seconds += (now - self.timed) / self.together
        self.timed = now

    def mean_loss(self) -> float:
        """The training loss of the epoch whose steps are done."""
        total = self.fabric.all_reduce(self.state.loss_sum.clone(), reduce_op="mean")
        assert isinstance(total, Tensor)
        loss = float(total) / self.steps_per_epoch
        self.check_finite(loss, "training loss")
        return loss

    @property
    def is_to_be_judged(self) -> bool:
        """Whether the current epoch ends with a validation error."""
        number = self.state.progress.epoch + 1
        return number % self.recipe.evaluate_every == 0 or number == self.recipe.epochs

    def close_epoch(self, loss: float, error: float | None) -> Epoch:
        """Note down the epoch, with its validation error if there is one, and go to the next."""
        progress = self.state.progress
        number = progress.epoch + 1
        if error is not None:
            error = self.fabric.broadcast(error)
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
            f"{self.name}the {what} is {value} in epoch {progress.epoch + 1}; try a smaller "
            f"learning rate (learning_rate {recipe.learning_rate / 2:g}, now "
            f"{recipe.learning_rate:g}), a longer warm-up (schedule 'cosine', warmup){full}. {kept}"
        )


def take_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a tensor."""
    return tensor.index_select(0, rows)


class _Crew:
    """Runs that go on together: in one graph, or taking turns."""

    def __init__(
        self,
        runs: Sequence[_Run],
        is_shared: bool,
        begin_again: Callable[[_Run, Diverged], _Run | None],
    ) -> None:
        self.runs = list(runs)
        self.is_shared = is_shared  # whether the steps of several runs are one graph
        self.begin_again = begin_again  # what takes the place of a run that diverged
        self.diverged: dict[int, Diverged] = {}  # by the number of the run
        self.group: list[_Run] = []  # the runs whose turn it is
        first = self.runs[0]
        self.is_alone = first.fabric.world_size == 1
        self.advance: Callable[[], object] = self._advance
        self.judge: Callable[[], list[Tensor]] = self._judge
        if is_captured(first.recipe, first.fabric.device, first.fabric.world_size):
            self.advance = graphed(self._advance, self._changed, self._key)
            self.judge = graphed(self._judge, state=self._key, warm_up=1)

    @property
    def waiting(self) -> list[_Run]:
        """The runs that are not over."""
        return [run for run in self.runs if run.number not in self.diverged and not run.finished]

    def go(
        self, stopping: Callable[[], bool], on_epoch: Callable[[int, Epoch], None] | None
    ) -> None:
        """Run to the end, an epoch at a time: first those that are furthest behind."""
        fabric = self.runs[0].fabric
        while waiting := self.waiting:
            behind = min(run.position for run in waiting)
            group = [run for run in waiting if run.position == behind]
            self.group = group if self.is_shared else group[:1]
            self.train_epoch(stopping)
            for run, epoch in self.close_epoch():
                if on_epoch is not None and fabric.is_global_zero:
                    on_epoch(run.number, epoch)
            # Processes have to agree on it, or those that go on would wait for the others.
            if bool(self.waiting) and fabric.broadcast(stopping()):
                self.interrupt()
            for run in self.group:
                if fabric.broadcast(run.finished or run.due):
                    self.attempt(run, run.save)

    def train_epoch(self, stopping: Callable[[], bool]) -> None:
        """The steps of the current epoch that are still to do."""
        for run in self.group:
            run.begin_epoch(len(self.group))
        while self.group and self.group[0].position[1] < self.group[0].steps_per_epoch:
            for run in self.group:
                run.train.load(run.state.progress.batch)
            self.advance()
            for run in self.group:
                run.state.progress.batch += 1
            if self.is_alone and stopping():
                self.interrupt()
            for run in self.group if self.is_alone else ():
                if run.due:
                    self.attempt(run, run.save)

    def close_epoch(self) -> list[tuple[_Run, Epoch]]:
        """Judge the epoch of every run of the group, and note it down."""
        losses = {run.number: self.attempt(run, run.mean_loss) for run in self.group}
        errors: dict[int, float] = {}
        if self.group and self.group[0].is_to_be_judged:
            judged = torch.stack(self.judge()).tolist()
            errors = {run.number: error for run, error in zip(self.group, judged, strict=True)}
        closed = []
        for run in self.group:
            loss = losses[run.number]
            assert loss is not None
            epoch = self.attempt(run, partial(run.close_epoch, loss, errors.get(run.number)))
            if epoch is not None:
                closed.append((run, epoch))
        return closed

    def attempt(self, run: _Run, work: Callable[[], T]) -> T | None:
        """What comes of `work` on a run; None where it diverged, and has left the group."""
        try:
            return work()
        except Diverged as error:
            self.group = [other for other in self.group if other is not run]
            again = self.begin_again(run, error)
            if again is None:
                self.diverged[run.number] = error
            else:
                self.runs[run.number] = again
            return None

    def interrupt(self) -> NoReturn:
        """Save all that is not over, and say how to go on."""
        first = self.waiting[0]
        epoch, epochs = first.position[0] + 1, first.recipe.epochs
        for run in self.waiting:
            self.attempt(run, run.save)
        commands = dict.fromkeys(f"cno resume {run.folder.run}" for run in self.runs)
        raise Interrupted(
            f"stopped in epoch {epoch} of {epochs}; everything is saved. "
            f"Go on with the same call and resume=True; with a run of `cno train` by: "
            f"{', '.join(commands)}"
        )

    def _advance(self) -> None:
        side_by_side([run.step for run in self.group if run.step is not None])

    def _judge(self) -> list[Tensor]:
        return side_by_side([run.judge for run in self.group])

    def _changed(self) -> Iterator[Tensor]:
        return chain.from_iterable(run.changed_tensors() for run in self.group)

    def _key(self) -> Hashable:
        """What a graph is for: these runs, in what Python decides about them."""
        return tuple((run.number, run.recipe.precision, run.modes) for run in self.group)


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


def _make_step(
    state: State,
    recipe: Recipe,
    fabric: Processes,
    loss: Callable[[Tensor, Tensor], Tensor],
    teach: Callable[[nn.Module], nn.Module],
) -> Step:
    """The recipe's step: through Fabric, unless it is captured in a graph.

    `teach` makes of the network what the step trains.
    """
    model = MixedPrecision(state.model.train(), FIELDS.get(recipe.precision), recipe.recompute)
    network = teach(model)
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
