"""The published figures, as data: Raonić et al., Convolutional Neural Operators (NeurIPS 2023).

Errors are medians over samples of the relative L1 error on fields scaled to [0, 1], in percent.
Parameters are millions; a complex weight counts once, but for GT, where it counts as two reals.
Table 1 is the best of a search over hyper-parameters, of one initialisation; Table 4 is the fairer
figure to compare with. Tables are read from `published.txt`, which was cut from the paper's LaTeX.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TypeVar

import numpy as np

from torchcno.models import TITLES

T = TypeVar("T")

PROBLEM_TITLES: dict[str, str] = {
    "poisson": "Poisson equation",
    "wave": "Wave equation",
    "smooth-transport": "Smooth transport",
    "discontinuous-transport": "Discontinuous transport",
    "allen-cahn": "Allen-Cahn equation",
    "navier-stokes": "Navier-Stokes equations",
    "darcy": "Darcy flow",
    "airfoil": "Compressible Euler",
}
MODEL_TITLES = TITLES  # of networks
COMPARED: tuple[str, ...] = tuple(MODEL_TITLES)[:7]  # the columns of Table 1
SEEDED: tuple[str, ...] = ("cno", "fno", "unet")  # of Table 4, and of the figures of each problem
ABLATED: tuple[str, ...] = ("cno", "cno-no-filters", "cno-no-skip-blocks")  # of Table 13

Numbers = list[list[float]]  # of the rows of a table, whatever their units
Errors = Mapping[tuple[str, str], Mapping[str, float]]  # (problem, split) -> model -> percent


def _read_tables(text: str) -> dict[str, Numbers]:
    """The tables of `published.txt`, by their numbers in the paper."""
    sections = re.findall(r"^## Table (\d+),.*\ncolumns:.*\n((?:.+\n)+)", text, re.MULTILINE)
    return {
        number: [
            [int(n) if n.isdigit() else float(n.replace(",", ".")) for n in _NUMBER.findall(cells)]
            for cells in re.findall(r"\|.*", rows)  # beside the name of the row
        ]
        for number, rows in sections
    }


_NUMBER = re.compile(r"\d+(?:[.,]\d+)?(?:e-\d+)?")
_TABLES = _read_tables(Path(__file__).with_name("published.txt").read_text(encoding="utf-8"))


def _errors(models: tuple[str, ...], rows: Numbers) -> Errors:
    """Errors of `models`, in and out of distribution, problem by problem."""
    cases = product(PROBLEM_TITLES, ("test", "ood"))
    return {
        case: dict(zip(models, row, strict=True)) for case, row in zip(cases, rows, strict=True)
    }


def _pairs(of: Callable[..., T], models: tuple[str, ...], rows: Numbers) -> dict[str, dict[str, T]]:
    """Two numbers for each of `models`, problem by problem."""
    return {
        problem: {m: of(*pair) for m, *pair in zip(models, row[::2], row[1::2], strict=True)}
        for problem, row in zip(PROBLEM_TITLES, rows, strict=True)
    }


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation over initialisations, in percent."""

    mean: float
    std: float


@dataclass(frozen=True)
class Range:
    """The least and the most of what the paper gives a range for."""

    least: float
    most: float

    def __str__(self) -> str:
        """As the paper prints it."""
        ends = dict.fromkeys((f"{self.least:g}", f"{self.most:g}"))
        return "–".join(ends)


TABLE_1 = _errors(COMPARED, _TABLES["1"])
HALF_WIDTHS: tuple[float, ...] = (0.6, 0.8, 1.0, 1.5, 2.0)  # c_h
# Table 2, navier-stokes: (N_σ, c_h) -> percent.
FILTERS: dict[tuple[int, float], float] = dict(
    zip(product(range(2, 7), HALF_WIDTHS), chain(*_TABLES["2"]), strict=True)
)
# Table 3, navier-stokes with N_σ = 2 and c_h = 0.8: N_tap, at twice the sampling rate, -> percent.
TAPS: dict[int, float] = dict(zip((12, 16, 20, 24), *_TABLES["3"], strict=True))
# Table 4: ten initialisations, in distribution.
SEEDS = _pairs(MeanStd, SEEDED, _TABLES["4"])
# Table 5, in millions.
PARAMETER_RANGES = _pairs(
    Range,
    ("ffnn", "galerkin-transformer", "resnet", "unet", "deeponet", "fno", "cno"),
    _TABLES["5"],
)
TABLE_13 = _errors(ABLATED, _TABLES["13"])

# The tables of hyper-parameters, by their numbers, and their columns by the names of our fields.
HYPER_PARAMETER_TABLES: dict[int, str] = {
    6: "ffnn", 7: "unet", 8: "resnet", 9: "deeponet", 10: "galerkin-transformer", 11: "fno",
    12: "cno",
}  # fmt: skip
_TRAINING = ("learning_rate", "gamma", "weight_decay")  # η, γ, w
HYPER_PARAMETER_COLUMNS: dict[str, tuple[str, ...]] = {
    "ffnn": (*_TRAINING, "layers", "width"),
    "unet": (*_TRAINING, "channels"),
    "resnet": (*_TRAINING, "channels", "residual_blocks"),
    "deeponet": (*_TRAINING, "bases", "trunk_layers", "trunk_width", "branch_levels",
                 "residual_blocks"),
    "galerkin-transformer": ("blocks", "heads", "width", "decoder_layers", "decoder_width",
                             "modes"),
    "fno": (*_TRAINING, "pad", "modes", "width", "layers"),
    "cno": (*_TRAINING, "levels", "width", "neck_blocks", "skip_blocks"),
}  # fmt: skip
# (model, problem) -> field -> what is printed. The last column counts parameters, in millions.
HYPER_PARAMETERS: dict[tuple[str, str], dict[str, float]] = {
    (model, problem): dict(zip((*HYPER_PARAMETER_COLUMNS[model], "parameters"), row, strict=True))
    for number, model in HYPER_PARAMETER_TABLES.items()
    for problem, row in zip(PROBLEM_TITLES, _TABLES[str(number)], strict=True)
}
PARAMETERS: dict[str, dict[str, float]] = {
    problem: {model: HYPER_PARAMETERS[model, problem]["parameters"] for model in COMPARED}
    for problem in PROBLEM_TITLES
}

# SM, "Ablation Studies", training time: by how much faster an ablated CNO trains, about. "Equal"
# and "similar" are 1; of the airfoil without filters nothing is said.
ABLATION_SPEEDUPS: dict[str, dict[str, Range]] = {
    "cno-no-filters": {
        "poisson": Range(1.75, 1.75), "wave": Range(1.1, 1.1), "smooth-transport": Range(1.1, 1.1),
        "discontinuous-transport": Range(1, 1), "allen-cahn": Range(1.1, 1.1),
        "navier-stokes": Range(1.25, 1.25), "darcy": Range(1.35, 1.35),
    },
    "cno-no-skip-blocks": {
        "poisson": Range(1.75, 1.75), "wave": Range(1.1, 1.15), "smooth-transport": Range(1, 1),
        "discontinuous-transport": Range(1.1, 1.15), "allen-cahn": Range(1, 1),
        "navier-stokes": Range(1.25, 1.25), "darcy": Range(1.25, 1.25), "airfoil": Range(1.1, 1.15),
    },
}  # fmt: skip


@dataclass(frozen=True)
class PowerLaw:
    """E = (N / N_0)^{−r}: E the error in percent, N the number of training samples.

    The paper prints (N_0 / N)^{−r}, which grows with N; its constants fit the law above.
    """

    rate: float  # r
    log_error: float  # log E at N = 1, that is r log N_0; there even where E is constant

    @classmethod
    def through(cls, rate: float, samples_for_one_percent: float) -> "PowerLaw":
        """The law of these r and N_0."""
        return cls(rate, rate * math.log(samples_for_one_percent))

    @classmethod
    def fit(cls, samples: Sequence[float], errors: Sequence[float]) -> "PowerLaw":
        """The law nearest to errors in percent, by least squares of log E = r log N_0 − r log N."""
        if len(set(samples)) < 2:
            raise ValueError(f"a law needs errors for two numbers of samples, not {set(samples)}.")
        slope, intercept = np.polyfit(np.log(samples), np.log(errors), 1)
        return cls(float(-slope), float(intercept))

    @property
    def samples_for_one_percent(self) -> float | None:
        """N_0; None where errors do not fall, or so slowly that no number holds it."""
        if self.rate <= 0:
            return None
        with np.errstate(over="ignore", under="ignore"):
            samples = float(np.exp(self.log_error / self.rate))
        return samples if 0 < samples < math.inf else None

    def __call__(self, samples: float) -> float:
        """The error in percent."""
        return math.exp(self.log_error - self.rate * math.log(samples))


# Figure 3, right, and the text beside it: navier-stokes. The text says neither which row of a
# table the best CNO is nor the N_0 of the small one.
SCALING: dict[str, PowerLaw] = {
    "cno": PowerLaw.through(0.37, 14_300),
    "fno": PowerLaw.through(0.28, 60_100),
    "galerkin-transformer": PowerLaw.through(0.27, 133_200),
}
SMALL_CNO_RATE = 0.3  # r
SCALING_PARAMETERS: dict[str, float] = {"cno": 7.8, "small cno": 0.82}  # in millions
FIGURE_27_CNO_RATE = 0.5  # r, about, as the SM has it beside the figure: of poisson, wave or both

# Trainings of another group on the authors' data files: HyperNOs, logs of 2025 in the repository
# MaxGhi8/tests. Means over test samples of the relative L1 error in percent, 1000 epochs without an
# early stop: with the rows of the paper's tables, and with the best of its own settings. Its CNO is
# the bicubic variant, with γ every epoch.
HYPERNOS: dict[str, dict[str, tuple[float, float]]] = {
    "poisson": {"cno": (0.43, 0.27), "fno": (5.54, 0.92)},
    "wave": {"cno": (1.55, 0.91), "fno": (1.20, 0.92)},
    "smooth-transport": {"cno": (0.84, 0.36), "fno": (0.42, 0.035)},
    "discontinuous-transport": {"cno": (1.42, 1.20), "fno": (1.41, 0.99)},
    "allen-cahn": {"cno": (1.96, 1.32), "fno": (0.42, 0.22)},
    "navier-stokes": {"cno": (3.44, 3.50), "fno": (3.71, 3.17)},
    "darcy": {"cno": (0.67, 0.56), "fno": (1.06, 0.80)},
    "airfoil": {"cno": (0.42, 0.39), "fno": (0.46, 0.42)},
}

# Figure 2, right, and the text beside it: the largest error on other grids over that on the grid of
# training, on coarser and on finer ones. Of the U-Net only the largest of all is given; the CNO,
# whose error is called invariant, has 1.
RESOLUTION_FACTORS: dict[str, dict[str, float]] = {
    "cno": {"any": 1.0},
    "fno": {"coarser": 1.25, "finer": 1.10},
    "unet": {"any": 3.0},
}

# SM, "On the Choice of the RPB benchmarks": errors in percent on the vorticity benchmark.
VORTICITY: dict[str, float] = {"fno": 1.15, "cno": 0.96}


@dataclass(frozen=True)
class Modes:
    """How many modes an axis approximate the outputs of a problem, about."""

    modes: int  # N_f
    error: float  # relative L1
    statistic: str  # of the error, over samples


# There, too, and in figure 26.
MODES: dict[str, Modes] = {
    "vorticity": Modes(20, 0.01, "largest"),
    "navier-stokes": Modes(100, 0.02, "mean"),
}
# There, too: orders of magnitude of the seconds a sample, the inference on an NVIDIA Quadro T2000.
SECONDS: dict[str, dict[str, float]] = {
    "vorticity": {"solver": 1e-3, "cno": 1e-4, "fno": 1e-4},
    "navier-stokes": {"solver": 1e-1, "cno": 1e-4},
}


@dataclass(frozen=True)
class Statement:
    """What the text says of a field of the recipe or of a network, to be compared with ours."""

    field: str
    value: float | str
    models: tuple[str, ...]
    place: str  # the section of the supplement


_DETAILS = "Training Details"
_GT = ("galerkin-transformer",)
_OTHERS = tuple(model for model in COMPARED if model not in _GT)
PROTOCOL: tuple[Statement, ...] = (
    Statement("optimizer", "adam", COMPARED, _DETAILS),
    Statement("epochs", 1000, COMPARED, _DETAILS),
    Statement("patience", 50, COMPARED, _DETAILS),
    Statement("loss", "l1", _OTHERS, _DETAILS),
    Statement("loss", "weighted-l2", _GT, _DETAILS),
    Statement("schedule", "step", _OTHERS, _DETAILS),
    Statement("epochs_a_step", 1, _OTHERS, _DETAILS),  # between two reductions of the rate by γ
    Statement("schedule", "one-cycle", _GT, _DETAILS),
    Statement("learning_rate", 5e-4, _GT, _DETAILS),
    Statement("batch_size", 10, ("ffnn", "unet", "deeponet"), _DETAILS),
    Statement("batch_size", 32, ("fno", "cno"), _DETAILS),
    Statement("activation", "gelu", ("fno",), "Fourier Neural Operator"),
    Statement("lift_layers", 1, ("fno",), "Fourier Neural Operator"),
)

# The numbers of the figures of error distributions, by problem; those of samples come next to them.
DISTRIBUTION_FIGURES: dict[str, int] = dict(
    zip(PROBLEM_TITLES, (5, 8, 10, 14, 16, 18, 20, 23), strict=True)
)
# Figures 28 to 35: samples of the data.
DATA_FIGURES: dict[str, int] = {problem: 28 + i for i, problem in enumerate(PROBLEM_TITLES)}
