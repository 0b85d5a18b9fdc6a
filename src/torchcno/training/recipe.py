"""How a model is trained: the numbers, and nothing of the model or the problem."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torchcno.arithmetic import Precision
from torchcno.selection import select

Optimizer = Literal["adamw", "muon"]
Schedule = Literal["step", "cosine", "one-cycle"]
Loss = Literal["relative-l1", "relative-l2", "weighted-l2"]
Augmentation = Literal["none", "translations", "square", "exchange", "reflections"]
Fast = Literal["auto", "compiled", "off"]

CHOICES = {
    "optimizer": Optimizer,
    "schedule": Schedule,
    "loss": Loss,
    "augmentation": Augmentation,
    "precision": Precision,
    "fast": Fast,
}


@dataclass(frozen=True)
class Recipe:
    """One training run (section C.2 of the paper).

    A batch is the whole batch, over all devices. The paper searches learning rate, γ and w for each
    model and problem; the defaults here are the middle of its tables.
    """

    epochs: int = 1000
    batch_size: int = 32
    samples: int | None = None  # the first so many of the training set; None: all
    optimizer: Optimizer = "adamw"  # muon: AdamW for biases, orthogonal steps for kernels
    learning_rate: float = 1e-3  # η
    weight_decay: float = 1e-6  # w
    schedule: Schedule = "step"  # of η: × γ now and then, down to zero, or once up and down
    gamma: float = 0.98  # γ, every 10 epochs, for the schedule "step"
    warmup: float = 0.0  # the part of the run in which the rate grows to η, for "cosine"
    loss: Loss = "relative-l1"  # to the batch's norm; of L2: to a sample's, weighted: of ∇ too
    augmentation: Augmentation = "none"  # copies by symmetries that the problem has to have
    averaging_half_life: float | None = None  # epochs; None: no averaged weights
    # The last part of the run, in which batch norm keeps its statistics: steps without their noise.
    frozen_statistics: float = 0.0
    # Epochs without a better validation error, counted when it is evaluated; None: go on.
    patience: int | None = 200
    evaluate_every: int = 1  # epochs
    checkpoint_every: float = 60.0  # seconds
    # Of products, and on CUDA: 24 bits, 11, or 11 and 8 with fields stored so (float16, bfloat16).
    precision: Precision = "tf32"
    fast: Fast = "auto"  # on CUDA the step is one captured graph; compiled: by torch.compile, too

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            select(dict.fromkeys(get_args(choices)), getattr(self, name), name)
        for name in ("epochs", "batch_size", "samples", "evaluate_every"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                raise ValueError(f"{name} is {value!r}; use a whole number.")
        for name in ("epochs", "batch_size", "learning_rate", "gamma", "evaluate_every"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use a positive number.")
        for name in ("weight_decay", "warmup", "frozen_statistics", "checkpoint_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; use zero or a positive number.")
        for name in ("samples", "averaging_half_life", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; use a positive number, or null for none.")
        for name, such_as in (("warmup", 0.01), ("frozen_statistics", 0.1)):
            if getattr(self, name) >= 1:
                raise ValueError(
                    f"{name} is {getattr(self, name):g} of the run; use less than 1, such as "
                    f"{such_as:g}."
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
