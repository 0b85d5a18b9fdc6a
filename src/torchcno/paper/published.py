"""The published figures, as data: Raonić et al., Convolutional Neural Operators (NeurIPS 2023).

Errors are medians over samples of the relative L1 error on fields scaled to [0, 1], in percent.
Parameters are millions; a complex weight counts once, but for GT, where it counts as two reals.
Table 1 is the best of a search over hyper-parameters, of one initialisation; Table 4 is the fairer
figure to compare with.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torchcno.models import TITLES

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

Errors = Mapping[tuple[str, str], Mapping[str, float]]  # (problem, split) -> model -> percent


def _errors(models: tuple[str, ...], rows: Mapping[str, tuple[tuple[float, ...], ...]]) -> Errors:
    """Rows of a pair (in distribution, out of distribution) of errors in the order of `models`."""
    return {
        (problem, split): dict(zip(models, errors, strict=True))
        for problem, pair in rows.items()
        for split, errors in zip(("test", "ood"), pair, strict=True)
    }


# fmt: off
TABLE_1: Errors = _errors(COMPARED, {
    #                            FFNN    GT       UNet  ResNet  DON    FNO   CNO
    "poisson":                 ((5.74,   2.77,    0.71,  0.43,  12.92, 4.98, 0.21),
                                (5.35,   2.84,    1.27,  1.10,  9.15,  7.05, 0.27)),
    "wave":                    ((2.51,   1.44,    1.51,  0.79,  2.26,  1.02, 0.63),
                                (3.01,   1.79,    2.03,  1.36,  2.83,  1.77, 1.17)),
    "smooth-transport":        ((7.09,   0.98,    0.49,  0.39,  1.14,  0.28, 0.24),
                                (650.6,  875.4,   1.28,  0.96,  157.2, 3.90, 0.46)),
    "discontinuous-transport": ((13.0,   1.55,    1.31,  1.01,  5.78,  1.15, 1.01),
                                (257.3,  22691.1, 1.35,  1.16,  117.1, 2.89, 1.09)),
    "allen-cahn":              ((18.27,  0.77,    0.82,  1.40,  13.63, 0.28, 0.54),
                                (46.93,  2.90,    2.18,  3.74,  19.86, 1.10, 2.23)),
    "navier-stokes":           ((8.05,   4.14,    3.54,  3.69,  11.64, 3.57, 2.76),
                                (16.12,  11.09,   10.93, 9.68,  15.05, 9.58, 7.04)),
    "darcy":                   ((2.14,   0.86,    0.54,  0.42,  1.13,  0.80, 0.38),
                                (2.23,   1.17,    0.64,  0.60,  1.61,  1.11, 0.50)),
    "airfoil":                 ((0.78,   2.09,    0.38,  1.70,  1.93,  0.44, 0.35),
                                (1.34,   2.94,    0.76,  2.06,  2.88,  0.69, 0.59)),
})

HALF_WIDTHS: tuple[float, ...] = (0.6, 0.8, 1.0, 1.5, 2.0)  # c_h
_FILTERS: dict[int, tuple[float, ...]] = {
    # N_σ  c_h: 0.6   0.8   1.0   1.5   2.0
    2:         (2.87, 2.76, 2.77, 2.91, 2.86),
    3:         (2.93, 2.86, 2.86, 2.87, 2.97),
    4:         (2.80, 2.89, 2.88, 2.87, 2.89),
    5:         (2.93, 2.84, 2.88, 2.98, 2.89),
    6:         (3.02, 2.86, 2.88, 2.99, 2.82),
}
# Table 2, navier-stokes: (N_σ, c_h) -> percent.
FILTERS: dict[tuple[int, float], float] = {
    (upsampling, half_width): error
    for upsampling, row in _FILTERS.items()
    for half_width, error in zip(HALF_WIDTHS, row, strict=True)
}
# Table 3, navier-stokes with N_σ = 2 and c_h = 0.8: N_tap, at twice the sampling rate, -> percent.
TAPS: dict[int, float] = {12: 2.76, 16: 2.72, 20: 2.70, 24: 2.75}
TAP_SECONDS: dict[int, float] = {12: 4.37, 20: 5.26}  # seconds an epoch, in the text beside it


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation over initialisations, in percent."""

    mean: float
    std: float


def _seeds(rows: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, MeanStd]]:
    return {
        problem: {m: MeanStd(*row[2 * i : 2 * i + 2]) for i, m in enumerate(SEEDED)}
        for problem, row in rows.items()
    }


# Table 4: ten initialisations, in distribution.
SEEDS: dict[str, dict[str, MeanStd]] = _seeds({
    #                           CNO         FNO         UNet
    "poisson":                 (0.34, 0.09, 4.88, 0.18, 0.76, 0.16),
    "wave":                    (0.63, 0.06, 1.08, 0.07, 1.67, 0.12),
    "smooth-transport":        (0.27, 0.04, 0.34, 0.03, 0.79, 0.21),
    "discontinuous-transport": (1.06, 0.04, 1.18, 0.03, 1.40, 0.09),
    "allen-cahn":              (0.67, 0.09, 0.28, 0.03, 1.84, 0.33),
    "navier-stokes":           (2.91, 0.08, 3.68, 0.10, 3.48, 0.07),
    "darcy":                   (0.42, 0.02, 0.90, 0.08, 0.65, 0.10),
    "airfoil":                 (0.35, 0.01, 0.45, 0.01, 0.39, 0.01),
})


@dataclass(frozen=True)
class Range:
    """The least and the most of what the paper gives a range for."""

    least: float
    most: float

    def __str__(self) -> str:
        """As the paper prints it."""
        ends = dict.fromkeys((f"{self.least:g}", f"{self.most:g}"))
        return "–".join(ends)


def _ranges(
    models: tuple[str, ...], rows: Mapping[str, tuple[tuple[float, ...], ...]]
) -> dict[str, dict[str, Range]]:
    return {
        problem: {m: Range(*pair) for m, *pair in zip(models, *sub_rows, strict=True)}
        for problem, sub_rows in rows.items()
    }


# Table 5, in millions.
PARAMETER_RANGES: dict[str, dict[str, Range]] = _ranges(
    ("ffnn", "galerkin-transformer", "resnet", "unet", "deeponet", "fno", "cno"), {
    #                            FFNN  GT    ResNet UNet  DON   FNO   CNO
    "poisson":                 ((0.3,  8.5,  0.1,   0.5,  0.8,  0.2,  0.5),
                                (8.2,  19.1, 10.2,  31.0, 48.1, 18.9, 26.8)),
    "wave":                    ((0.3,  8.5,  0.1,   0.5,  0.8,  0.2,  1.5),
                                (6.0,  19.1, 10.2,  31.0, 48.1, 7.9,  23.6)),
    "smooth-transport":        ((0.3,  8.5,  0.1,   0.5,  0.7,  0.2,  0.5),
                                (8.2,  19.1, 10.2,  7.7,  49.2, 23.6, 18.9)),
    "discontinuous-transport": ((0.3,  8.5,  0.1,   0.5,  0.7,  0.2,  0.5),
                                (5.5,  19.1, 10.2,  7.7,  49.2, 23.6, 18.9)),
    "allen-cahn":              ((0.3,  2.1,  0.1,   0.5,  1.0,  0.9,  0.5),
                                (7.1,  19.1, 10.2,  31.0, 47.9, 65.6, 8.4)),
    "navier-stokes":           ((0.3,  2.1,  0.1,   0.5,  1.0,  0.2,  0.5),
                                (7.1,  19.1, 10.2,  31.0, 47.9, 65.6, 14.1)),
    "darcy":                   ((0.3,  2.1,  0.1,   0.5,  1.0,  0.2,  0.5),
                                (7.1,  19.1, 10.2,  31.0, 47.9, 23.6, 8.4)),
    "airfoil":                 ((1.1,  2.1,  0.1,   0.5,  0.8,  0.2,  1.5),
                                (18.6, 19.1, 10.2,  31.0, 49.4, 23.6, 31.7)),
})

# The tables of hyper-parameters, by their numbers.
HYPER_PARAMETER_TABLES: dict[int, str] = {
    6: "ffnn", 7: "unet", 8: "resnet", 9: "deeponet", 10: "galerkin-transformer", 11: "fno",
    12: "cno",
}

_TRAINING = ("learning_rate", "gamma", "weight_decay")  # η, γ, w
# Their columns but for the last, by the names of our fields. The rows are those of
# `torchcno.runs.presets.PAPER`,
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
}
# but for what is printed in these, which contradicts their own numbers of parameters.
CONTRADICTED: dict[str, dict[str, dict[str, float]]] = {
    "galerkin-transformer": {
        "smooth-transport": {"decoder_layers": 3},
        "discontinuous-transport": {"blocks": 8},
    },
    "cno": {"allen-cahn": {"width": 48}, "airfoil": {"width": 48}},
}

# Their last columns: the selected models.
_PARAMETERS: dict[str, tuple[float, ...]] = {
    #                           FFNN GT    UNet  ResNet DON   FNO   CNO
    "poisson":                 (6.6, 8.6,  7.8,  0.2,   5.2,  0.7,  0.7),
    "wave":                    (2.3, 8.6,  31.0, 0.6,   4.2,  0.8,  6.6),
    "smooth-transport":        (3.1, 17.4, 1.9,  2.0,   2.8,  4.1,  2.8),
    "discontinuous-transport": (5.5, 17.4, 7.8,  1.4,   5.3,  2.6,  2.5),
    "allen-cahn":              (6.0, 2.5,  31.0, 1.4,   5.0,  0.6,  3.5),
    "navier-stokes":           (3.1, 10.0, 31.0, 10.2,  30.3, 42.1, 3.3),
    "darcy":                   (3.1, 4.4,  7.8,  0.2,   7.1,  0.6,  5.3),
    "airfoil":                 (1.1, 16.9, 7.8,  2.6,   11.7, 3.6,  7.3),
}

TABLE_13: Errors = _errors(ABLATED, {
    #                            CNO   w/o filters  w/o ResNets
    "poisson":                 ((0.21, 0.93,        0.85),
                                (0.27, 1.65,        0.82)),
    "wave":                    ((0.63, 0.59,        1.64),
                                (1.17, 1.12,        1.64)),
    "smooth-transport":        ((0.24, 0.31,        0.31),
                                (0.46, 0.46,        0.76)),
    "discontinuous-transport": ((1.03, 1.21,        1.17),
                                (1.18, 1.32,        1.60)),
    "allen-cahn":              ((0.54, 0.69,        0.71),
                                (2.23, 2.16,        2.21)),
    "navier-stokes":           ((2.76, 3.20,        3.00),
                                (7.04, 9.60,        5.85)),
    "darcy":                   ((0.38, 0.47,        0.41),
                                (0.50, 0.65,        0.58)),
    "airfoil":                 ((0.35, 0.38,        0.37),
                                (0.59, 0.62,        0.59)),
})
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
}
# fmt: on

PARAMETERS: dict[str, dict[str, float]] = {
    problem: dict(zip(COMPARED, row, strict=True)) for problem, row in _PARAMETERS.items()
}


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

# The numbers of the figures of error distributions and of samples, by problem.
DISTRIBUTION_FIGURES: dict[str, int] = {
    "poisson": 5,
    "wave": 8,
    "smooth-transport": 10,
    "discontinuous-transport": 14,
    "allen-cahn": 16,
    "navier-stokes": 18,
    "darcy": 20,
    "airfoil": 23,
}
SAMPLE_FIGURES: dict[str, int] = {
    problem: number + 1 for problem, number in DISTRIBUTION_FIGURES.items()
}
# Figures 28 to 35: samples of the data.
DATA_FIGURES: dict[str, int] = {problem: 28 + i for i, problem in enumerate(PROBLEM_TITLES)}
