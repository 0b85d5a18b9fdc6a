"""The training loop."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from torchcno.training.recipe import Recipe


class Pairs(NamedTuple):
    """Inputs and targets as the network sees them: normalised, `(sample, channel, *space)`."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Epoch:
    """A row of metrics.jsonl."""

    epoch: int  # 1, 2, …
    learning_rate: float  # of the epoch's last step
    train_loss: float
    validation_error: float | None  # mean relative L1, a fraction; None where it was not evaluated
    best_validation_error: float | None
    seconds: float  # of this epoch, evaluation included


@dataclass(frozen=True)
class Fit:
    """What a finished run came to."""

    epochs: int  # run, fewer than the recipe's after an early stop
    best_epoch: int
    best_validation_error: float
    seconds_per_epoch: float


class Diverged(RuntimeError):
    """The loss or the validation error is no longer a number."""


class Interrupted(RuntimeError):
    """A signal asked the run to stop, and its state is saved."""


@dataclass(frozen=True)
class Hardware:
    """Where a run takes place; under torchrun or Slurm `devices` and `nodes` are those of the launch."""

    accelerator: str = "auto"  # "cpu", "cuda"; "auto": CUDA where there is a device
    devices: int = 1  # a node
    nodes: int = 1


def fit(
    model: nn.Module,
    train: Pairs,
    val: Pairs,
    recipe: Recipe,
    folder: Path,
    *,
    seed: int = 0,
    hardware: Hardware = Hardware(),  # noqa: B008
    mask: Callable[[Tensor], Tensor | None] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    resume: bool = False,
) -> Fit:
    """Train `model` by `recipe`, and leave it with the weights that did best on `val`.

    `folder` receives `metrics.jsonl` (a row an epoch), `model.safetensors` (the best weights on validation)
    and `checkpoint/` (everything to go on). With `resume` the run goes on from the checkpoint, or from the
    start where it was killed before the first: give the same model (built from the same seed), data,
    recipe and seed. Without it a folder that holds a run already is a ValueError.

    `mask` says from inputs where outputs count (`Problem.mask`): elsewhere prediction and target are 1.
    `on_epoch` is called on the first process after every epoch.

    Raises `Interrupted` after SIGINT or SIGTERM, with the state saved, and `Diverged` when the loss is no
    longer finite, with the best weights so far kept.
    """
    raise NotImplementedError
