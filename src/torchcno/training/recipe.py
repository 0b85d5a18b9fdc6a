"""How a model is trained: the numbers, and nothing of the model or the problem."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torchcno.arithmetic import Precision
from torchcno.data.normalization import NORMALIZATIONS
from torchcno.selection import Options, option
from torchcno.training.augmentation import AUGMENTATIONS, GROUPS
from torchcno.training.losses import LOSSES
from torchcno.training.optimizers import OPTIMIZERS
from torchcno.training.propagator import GRADIENTS
from torchcno.training.schedules import SCHEDULES
from torchcno.training.windows import LEAD_TIMES, TIME_WEIGHTS

Fast = Literal["auto", "compiled", "off"]


@dataclass(frozen=True)
class Recipe(Options):
    """How a network is trained (section C.2 of the paper).

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
        "samples held in memory at a time, for a set larger than memory; null: 256 MB of them",
        above=0,
    )
    normalization: str | None = option(
        None,
        "how fields are scaled: unit (to [0, 1]), symmetric (by the largest magnitude), standard "
        "(mean 0, deviation 1), none, auto (symmetric or standard, for each channel); null: as "
        "published for a benchmark, auto for your data",
        choices=NORMALIZATIONS,
    )
    optimizer: str = option(
        "adamw",
        "optimiser: adamw, or muon (equally long steps in all directions of a weight matrix)",
        choices=OPTIMIZERS,
    )
    learning_rate: float = option(1e-3, "highest learning rate (η)", above=0)
    weight_decay: float = option(1e-6, "weight decay (w)", least=0)
    schedule: str = option(
        "step",
        "learning-rate schedule: step (× gamma every 10 epochs), cosine (to zero), one-cycle",
        choices=SCHEDULES,
    )
    gamma: float = option(
        0.98, "factor of the rate every 10 epochs, for the schedule step (γ)", above=0
    )
    warmup: float = option(
        0.0, "share of the run in which the rate rises, for the schedule cosine", least=0, below=1
    )
    loss: str = option(
        "relative-l1",
        "what is minimised: relative-l1 (over the batch), channel-l1 (per channel, averaged), "
        "relative-l2 (per sample, averaged), weighted-l2 (per sample, gradients too)",
        choices=LOSSES,
    )
    physics: float = option(
        0.0,
        "share of the equation's residual in the loss, for problems that have one (poisson, "
        "darcy): 0 is data alone, 1 the equation alone",
        least=0,
    )
    augmentation: str = option(
        "none",
        "move training samples by these symmetries, which the problem must have",
        choices=AUGMENTATIONS,
    )
    symmetric_predictions: bool = option(
        False, "average predictions over these symmetries; 2 to 16 times the work of one"
    )
    lead_times: str = option(
        "one-step",
        "of trajectories, what is learnt: one-step (each snapshot to the next), all-to-all (each "
        "to every later one), direct (the first to the last)",
        choices=LEAD_TIMES,
    )
    unroll: int = option(1, "of trajectories: steps in a row, each from the one before", above=0)
    unroll_gradients: str = option(
        "all",
        "gradients of a step go back through all steps before it, or the last: itself alone "
        "(push-forward)",
        choices=GRADIENTS,
    )
    noise: float = option(
        0.0, "of trajectories: noise on inputs, in standard deviations of the channel", least=0
    )
    residual: bool = option(
        True, "of trajectories: the network learns the change, times the scaled lead time"
    )
    time_weights: str = option(
        "equal",
        "of trajectories, how errors count by the time since the start: equal, late (in proportion "
        "to it), early (to its inverse)",
        choices=TIME_WEIGHTS,
    )
    averaging_half_life: float | None = option(
        None,
        "evaluate weights averaged over time, with this half-life in epochs; null: do not",
        above=0,
    )
    frozen_statistics: float = option(
        0.0, "last share of the run, in which batch norm keeps its statistics", least=0, below=1
    )
    patience: int | None = option(
        200, "stop after this many epochs without a better validation error; null: never", above=0
    )
    evaluate_every: int = option(1, "epochs between two validation errors", above=0)
    checkpoint_every: float = option(60.0, "seconds between two checkpoints", least=0)
    precision: Precision = option(
        "auto",
        "arithmetic on CUDA: 32 (full), tf32 (faster), fp16-mixed, bf16-mixed (fields of half the "
        "size), auto (fp16-mixed for a CNO, back to tf32 where numbers leave its range)",
        choices=get_args(Precision),
    )
    fast: Fast = option(
        "auto",
        "how a step runs on CUDA: auto (as one captured graph), compiled (and torch.compile), off",
        choices=get_args(Fast),
    )
    recompute: bool = option(
        False,
        "compute a CNO's fields again for gradients instead of keeping them: for large grids, less "
        "memory and more time (gradient checkpointing)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recompute and self.fast == "compiled":
            raise ValueError("recompute does not go with fast='compiled'; use fast='auto'.")
        if self.physics > 1:
            raise ValueError(
                f"physics is {self.physics:g}; it is a share, so use 0 (data alone) to 1 "
                "(the equation alone)."
            )

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


EITHER_WAY = ("fast", "recompute", "checkpoint_every")  # how steps are run and kept: no other run

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
