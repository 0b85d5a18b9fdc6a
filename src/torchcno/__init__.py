"""Convolutional Neural Operators: learn PDE solution operators, and know when to trust them.

The public names, each imported from its home on first use, so that `cno --help` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchcno.version import __version__ as __version__

if TYPE_CHECKING:
    from torchcno.data.fields import Fields
    from torchcno.data.generate import generate
    from torchcno.data.normalization import Normalization
    from torchcno.data.opening import open_stored
    from torchcno.data.trajectories import Trajectories
    from torchcno.evaluation.aliasing import Audit, audit
    from torchcno.grids import Grid
    from torchcno.models import MODELS
    from torchcno.models.cno import CNO, CNOConfig
    from torchcno.models.ensemble import Ensemble
    from torchcno.models.official import from_official
    from torchcno.models.official_time import from_official_time_dependent
    from torchcno.operators.filters import Ideal, Nearest, WindowedSinc
    from torchcno.operators.inference import for_inference
    from torchcno.problems import PROBLEMS, Problem
    from torchcno.runs.choose import choose_network, choose_recipe
    from torchcno.runs.config import RunConfig
    from torchcno.runs.evaluate import evaluate_run
    from torchcno.runs.folder import RunFolder, load
    from torchcno.runs.operator import TrainedOperator
    from torchcno.runs.presets import build_model
    from torchcno.runs.pretrained import load_pretrained
    from torchcno.runs.ranges import OutOfRange
    from torchcno.runs.rollout import EvolutionOperator
    from torchcno.runs.rollout_errors import evaluate_rollout
    from torchcno.runs.train import resume_run, train, train_on, train_run, train_runs_together
    from torchcno.runs.trust import Prediction, calibrate
    from torchcno.spectral import resample
    from torchcno.training.recipe import PRESETS, Recipe

_HOMES = {
    "Audit": "evaluation.aliasing",
    "CNO": "models.cno",
    "CNOConfig": "models.cno",
    "Ensemble": "models.ensemble",
    "EvolutionOperator": "runs.rollout",
    "Fields": "data.fields",
    "Grid": "grids",
    "Ideal": "operators.filters",
    "MODELS": "models",
    "Nearest": "operators.filters",
    "Normalization": "data.normalization",
    "OutOfRange": "runs.ranges",
    "PRESETS": "training.recipe",
    "PROBLEMS": "problems",
    "Prediction": "runs.trust",
    "Problem": "problems",
    "Recipe": "training.recipe",
    "RunConfig": "runs.config",
    "RunFolder": "runs.folder",
    "TrainedOperator": "runs.operator",
    "Trajectories": "data.trajectories",
    "WindowedSinc": "operators.filters",
    "audit": "evaluation.aliasing",
    "build_model": "runs.presets",
    "calibrate": "runs.trust",
    "choose_network": "runs.choose",
    "choose_recipe": "runs.choose",
    "evaluate_rollout": "runs.rollout_errors",
    "evaluate_run": "runs.evaluate",
    "for_inference": "operators.inference",
    "from_official": "models.official",
    "from_official_time_dependent": "models.official_time",
    "generate": "data.generate",
    "load": "runs.folder",
    "load_pretrained": "runs.pretrained",
    "open_stored": "data.opening",
    "resample": "spectral",
    "resume_run": "runs.train",
    "train": "runs.train",
    "train_on": "runs.train",
    "train_run": "runs.train",
    "train_runs_together": "runs.train",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchcno' has no attribute {name!r}")
    return getattr(import_module(f"torchcno.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
