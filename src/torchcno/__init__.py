"""Convolutional Neural Operators: learn PDE solution operators, and know when to trust them.

The public names, each imported from its home on first use, so that `cno --help` needs no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcno.data.dataset import Fields, Normalization
    from torchcno.data.generate import generate
    from torchcno.evaluation.aliasing import Audit, audit
    from torchcno.experiments.build import build_model
    from torchcno.experiments.evaluate import evaluate_run
    from torchcno.experiments.own_data import train_on
    from torchcno.experiments.pretrained import load_pretrained
    from torchcno.experiments.run import resume_run, train_run
    from torchcno.experiments.run_config import RunConfig
    from torchcno.experiments.trained import TrainedOperator, load
    from torchcno.grids import Grid
    from torchcno.models import MODELS
    from torchcno.models.cno import CNO, CNOConfig
    from torchcno.models.official import from_official
    from torchcno.operators.filters import Ideal, Nearest, WindowedSinc
    from torchcno.problems import PROBLEMS, Problem
    from torchcno.spectral import resample
    from torchcno.training.recipe import PRESETS, Recipe

_HOMES = {
    "Audit": "evaluation.aliasing",
    "CNO": "models.cno",
    "CNOConfig": "models.cno",
    "Fields": "data.dataset",
    "Grid": "grids",
    "Ideal": "operators.filters",
    "MODELS": "models",
    "Nearest": "operators.filters",
    "Normalization": "data.dataset",
    "PRESETS": "training.recipe",
    "PROBLEMS": "problems",
    "Problem": "problems",
    "Recipe": "training.recipe",
    "RunConfig": "experiments.run_config",
    "TrainedOperator": "experiments.trained",
    "WindowedSinc": "operators.filters",
    "audit": "evaluation.aliasing",
    "build_model": "experiments.build",
    "evaluate_run": "experiments.evaluate",
    "from_official": "models.official",
    "generate": "data.generate",
    "load": "experiments.trained",
    "load_pretrained": "experiments.pretrained",
    "resample": "spectral",
    "resume_run": "experiments.run",
    "train_on": "experiments.own_data",
    "train_run": "experiments.run",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("torchcno")
    if name not in _HOMES:
        raise AttributeError(f"module 'torchcno' has no attribute {name!r}")
    return getattr(import_module(f"torchcno.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
