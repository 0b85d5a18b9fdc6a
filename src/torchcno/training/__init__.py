"""Training: recipes, the loop, checkpoints."""

from torchcno.training.checkpoint import load_into, load_tensors, save_tensors
from torchcno.training.event_file import EventFile
from torchcno.training.hardware import Hardware
from torchcno.training.interruption import Interrupted
from torchcno.training.loop import Diverged, Epoch, Fit, Member, fit, fit_together
from torchcno.training.pairs import Pairs
from torchcno.training.recipe import PRESETS, Recipe

__all__ = [
    "PRESETS",
    "Diverged",
    "Epoch",
    "EventFile",
    "Fit",
    "Hardware",
    "Interrupted",
    "Member",
    "Pairs",
    "Recipe",
    "fit",
    "fit_together",
    "load_into",
    "load_tensors",
    "save_tensors",
]
