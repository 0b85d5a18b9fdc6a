"""One network in training: the steps of its epochs, what they are judged by, and what is kept."""

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from torchcno.arithmetic import FIELDS, LOSS_FACTORS
from torchcno.operators import aside
from torchcno.selection import select
from torchcno.training.augmentation import AUGMENTATIONS, Mover
from torchcno.training.averaging import (
    RECALIBRATION_BATCHES,
    copy_statistics,
    hold_statistics,
    recalibrate_batch_norm,
)
from torchcno.training.checkpoint import save_tensors
from torchcno.training.folder import TrainingFolder
from torchcno.training.hardware import Processes, device_name, is_captured
from torchcno.training.identity import Supply
from torchcno.training.optimizers import set_rate
from torchcno.training.pairs import MixedPrecision, Pairs
from torchcno.training.recipe import Recipe, completed, learning_rate
from torchcno.training.sharding import is_sharded, whole
from torchcno.training.state import State
from torchcno.training.step import Step, eager_step, trained_tensors, training_modes
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
    # Of this epoch, evaluation included, also those before an interruption. Of members that are
    # trained at once each has its share.
    seconds: float


class Diverged(RuntimeError):  # noqa: N818
    """The loss or the validation error is no longer a number."""


@dataclass
class EpochPlan:
    """What the steps of an epoch read, one row per step, on the device."""

    batches: Int[Tensor, "step sample"]  # the samples of every batch: this process's share
    rates: Float[Tensor, " step"]  # learning rates, each for the middle of its step
    shares: Float[Tensor, " step"]  # how much the weights after a step count in their average
    moves: Int[Tensor, "step number"]  # the symmetry that moves a batch; empty: none
    position: Int[Tensor, " 1"]  # the next row

    def next_row(self) -> tuple[Tensor, ...]:
        """Samples, learning rate, share and symmetry of the next step; no one waits for them."""
        # A capture takes a few steps to warm up. A short epoch has fewer, and they start over.
        row = self.position % len(self.batches)
        tables = (self.batches, self.rates, self.shares, self.moves)
        return tuple(table.index_select(0, row)[0] for table in tables)


@dataclass(frozen=True)
class Draws:
    """What the steps of an epoch read, but for the batches, on the host: see `EpochPlan`."""

    epoch: int  # 0, 1, …
    rates: Float[Tensor, " step"]
    shares: Float[Tensor, " step"]
    moves: Int[Tensor, "step number"]


@dataclass
class TrainingRun:
    """One network's training: what stays the same, and the `state` that changes."""

    name: str  # begins its messages; empty where it is the only one
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
    plan: EpochPlan | None = None  # of the current epoch
    step: Callable[[], None] | None = None  # does the next step of the plan
    modes: Hashable = None  # of the network's modules in the current epoch
    drawn: Draws | None = None  # for the next epoch, or the current one
    modules: list[nn.Module] = field(init=False)  # of the network
    saved: float = field(default_factory=time.monotonic)  # time of the last checkpoint
    timed: float = field(default_factory=time.monotonic)  # the epoch's seconds count up to here
    together: int = 1  # how many runs share the time

    def __post_init__(self) -> None:
        self.modules = list(self.state.model.modules())

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the last evaluation found no gain for too long."""
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
        if training_modes(self.modules) != self.modes:  # as the last epoch left them they stay
            state.model.train()
            if progress.epoch >= self.frozen_from:
                hold_statistics(state.model)
            self.modes = training_modes(self.modules)

    def make_plan(self) -> None:
        """Draw what the steps of this epoch read, in the place of what those of the last read."""
        state, steps, fabric = self.state, self.steps_per_epoch, self.fabric
        epoch = state.progress.epoch
        batches = self.train.draw(
            Generator().manual_seed(_seed(self.seed, epoch, ORDER)), steps, self.recipe.batch_size
        )
        if self.drawn is None or self.drawn.epoch != epoch:
            self.drawn = self.draw(epoch)
        tensors = {
            "batches": batches[:, fabric.global_rank :: fabric.world_size],
            "rates": self.drawn.rates,
            "shares": self.drawn.shares,
            "moves": self.drawn.moves,
            "position": torch.tensor([state.progress.batch]),
        }
        if self.plan is None:
            empty = {name: torch.empty_like(t, device=fabric.device) for name, t in tensors.items()}
            self.plan = EpochPlan(**empty)
        for name, tensor in tensors.items():
            getattr(self.plan, name).copy_(tensor, non_blocking=True)

    def draw(self, epoch: int) -> Draws:
        """What the steps of an epoch read beside its batches, by the number of the epoch alone."""
        steps, space = self.steps_per_epoch, self.train.inputs.shape[2:]
        symmetry = select(AUGMENTATIONS, self.recipe.augmentation, "augmentation")
        moves: list[list[int]] = [[] for _ in range(steps)]
        if symmetry is not None:
            for step in range(steps):
                random = Generator().manual_seed(_seed(self.seed, epoch, SYMMETRY, step))
                moves[step] = list(chain(*symmetry(space, self.train.channels, random)))
        average, before = self.state.average, epoch * steps
        shares = [average.share(before + step + 1) if average else 0.0 for step in range(steps)]
        return Draws(
            epoch=epoch,
            rates=torch.tensor([self.rate(epoch, i) for i in range(steps)], dtype=torch.float64),
            shares=torch.tensor(shares, dtype=torch.float64),
            moves=torch.tensor(moves, dtype=torch.int64),
        )

    def draw_ahead(self) -> None:
        """Draw for the next epoch, while the device is at work on the steps of this one."""
        following = self.state.progress.epoch + 1
        if following < self.recipe.epochs:
            self.drawn = self.draw(following)

    def advance(self, step: Step, weights: list[Tensor]) -> None:
        """One step on the next batch of the plan, moved by its symmetry."""
        state, plan = self.state, self.plan
        assert plan is not None
        batch, rate, share, move = plan.next_row()
        take = self.mover.by(move) if move.numel() else take_rows
        fields = self.train.gather(batch, take)
        set_rate(state.optimizer, rate)
        state.loss_sum += step(*fields)
        if state.average is not None:
            state.average.update(weights, share if share.is_cuda else float(share))
        plan.position += 1

    def rate(self, epoch: int, batch: int) -> float:
        """The learning rate in the middle of a step."""
        return learning_rate(self.recipe, epoch + (batch + 0.5) / self.steps_per_epoch)

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
            learning_rate=self.rate(progress.epoch, self.steps_per_epoch - 1),
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
