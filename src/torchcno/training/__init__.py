"""Training: recipes, the loop, checkpoints."""

from torchcno.training.loop import Diverged, Epoch, Fit, Hardware, Interrupted, Pairs, fit
from torchcno.training.recipe import PRESETS, Recipe

__all__ = [
    "PRESETS",
    "Diverged",
    "Epoch",
    "Fit",
    "Hardware",
    "Interrupted",
    "Pairs",
    "Recipe",
    "fit",
]
