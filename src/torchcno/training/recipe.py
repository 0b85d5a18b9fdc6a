"""How a model is trained: the numbers, and nothing of the model or the problem."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torchcno.arithmetic import Precision
from torchcno.data.normalization import NORMALIZATIONS
from torchcno.selection import check_options, option
from torchcno.training.augmentation import AUGMENTATIONS, GROUPS
from torchcno.training.losses import LOSSES
from torchcno.training.optimizers import OPTIMIZERS
from torchcno.training.schedules import SCHEDULES

Fast = Literal["auto", "compiled", "off"]


@dataclass(frozen=True)
class Recipe:
    """One training run (section C.2 of the paper).

    A batch is the whole batch, over all devices. The paper searches learning rate, γ and w for each
    model and problem; the defaults here are the middle of its tables.
    """

    epochs: int = option(1000, "passes over the training samples", above=0)
    batch_size: int = option(32, "samples per step, over all devices", above=0)
    samples: int | None = option(
        None, "train on the first samples only, this many; null: all", above=0
    )
    window: int | None = option(
        None,
        "samples in memory, shuffled together, where fields are read from a disk while they are "
        "learnt; null: 256 MB of them",
        above=0,
    )
    normalization: str | None = option(
        None,
        "scaling of fields: unit (to [0, 1] by one minimum and maximum), symmetric (each channel / "
        "its largest magnitude), standard (mean 0, deviation 1), none, auto (symmetric or standard "
        "per channel); null: as published for a benchmark, auto for own data",
        choices=NORMALIZATIONS,
    )
    optimizer: str = option(
        "adamw", "adamw, or muon: orthogonal steps for kernels", choices=OPTIMIZERS
    )
    learning_rate: float = option(1e-3, "highest learning rate (η)", above=0)
    weight_decay: float = option(1e-6, "weight decay (w)", least=0)
    schedule: str = option(
        "step",
        "learning-rate schedule: step (× gamma every 10 epochs), cosine (to zero), one-cycle",
        choices=SCHEDULES,
    )
    gamma: float = option(0.98, "factor of the schedule step, every 10 epochs (γ)", above=0)
    warmup: float = option(
        0.0, "part of the run in which the rate grows, for the schedule cosine", least=0, below=1
    )
    loss: str = option(
        "relative-l1",
        "relative-l1 (to the batch's norm), channel-l1 (that of each channel, averaged), "
        "relative-l2 (to each sample's), weighted-l2 (gradients too)",
        choices=LOSSES,
    )
    augmentation: str = option(
        "none", "transform batches by symmetries that the problem must have", choices=AUGMENTATIONS
    )
    symmetric_predictions: bool = option(
        False, "average predictions over the symmetries of the augmentation, where these are few"
    )
    averaging_half_life: float | None = option(
        None, "half-life of the averaged weights, in epochs; null: no averaging", above=0
    )
    frozen_statistics: float = option(
        0.0, "last part of the run, in which batch norm keeps its statistics", least=0, below=1
    )
    patience: int | None = option(
        200, "stop after this many epochs without a better validation error; null: never", above=0
    )
    evaluate_every: int = option(1, "epochs between two validation errors", above=0)
    checkpoint_every: float = option(60.0, "seconds between two checkpoints", least=0)
    precision: Precision = option(
        "auto",
        "arithmetic on CUDA: 32 (full float32), tf32 (11 bits), fp16-mixed, bf16-mixed (fields are "
        "stored so, too), auto (fp16-mixed for a CNO, back to tf32 where numbers leave its range)",
        choices=get_args(Precision),
    )
    fast: Fast = option(
        "auto",
        "on CUDA: auto (a step is one captured graph), compiled (by torch.compile, too), off",
        choices=get_args(Fast),
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def group(self) -> str | None:
        """The symmetries over which predictions are averaged; None: they are not."""
        few = self.symmetric_predictions and self.augmentation in GROUPS
        return self.augmentation if few else None


def learning_rate(recipe: Recipe, time: float) -> float:
    """η at `time`, in epochs since the start: 0 ≤ time < recipe.epochs."""
    return SCHEDULES[recipe.schedule](
        time,
        rate=recipe.learning_rate,
        epochs=recipe.epochs,
        gamma=recipe.gamma,
        warmup=recipe.warmup,
    )


def completed(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved of a recipe, with the fields that there were not yet as by default."""
    return {**asdict(Recipe()), **saved}


EITHER_WAY = ("fast", "checkpoint_every")  # how steps are run and kept: no other run

PRESETS: dict[str, Recipe] = {
    # The paper's protocol, read from the authors' implementation where its text is silent or says
    # otherwise: with the text's patience of 50 epochs a run stops on noise (docs/training.md).
    "paper": Recipe(),
    # The error in evaluation mode jumps while the rate is high, because batch-norm's running
    # statistics lag: averaged weights with recomputed statistics make the curve smooth, so nothing
    # stops on noise, and a cosine to zero makes every epoch of the budget count.
    "best": Recipe(
        epochs=600,
        schedule="cosine",
        warmup=0.01,
        averaging_half_life=4,
        patience=None,
        evaluate_every=10,
    ),
}
