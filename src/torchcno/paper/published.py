"""The published figures, as data: Raonić et al., Convolutional Neural Operators (NeurIPS 2023).

Errors are medians over samples of the relative L1 error on fields scaled to [0, 1], in percent.
Parameters are millions; a complex weight counts once, but for GT, where it counts as two reals.
Table 1 is the best of a search over hyper-parameters, of one initialisation; Table 4 is the fairer
figure to compare with. Tables are read from `published.txt`, which was cut from the paper's LaTeX;
`published.yaml` has the rest, with where it is said.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TypeVar

import numpy as np
import yaml

from torchcno.models import TITLES

T = TypeVar("T")

_SAID = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
PROBLEM_TITLES: dict[str, str] = {name: one["title"] for name, one in _SAID["problems"].items()}
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


def _pairs(of: Callable[..., T], models: Sequence[str], rows: Numbers) -> dict[str, dict[str, T]]:
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
        return "–".join(dict.fromkeys((f"{self.least:g}", f"{self.most:g}")))


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


@dataclass(frozen=True)
class Modes:
    """How many modes per axis approximate the outputs of a problem, about."""

    modes: int  # N_f
    error: float  # relative L1
    statistic: str  # of the error, over samples


@dataclass(frozen=True)
class Statement:
    """What the text says of a field of the recipe or of a network, to be compared with ours."""

    field: str
    value: float | str
    models: Sequence[str] = COMPARED
    place: str = "Training Details"  # the section of the supplement


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
PARAMETER_RANGES = _pairs(Range, _SAID["ranges"], _TABLES["5"])  # in millions
TABLE_13 = _errors(ABLATED, _TABLES["13"])

# The tables of hyper-parameters, by their numbers, and their columns by the names of our fields.
HYPER_PARAMETER_TABLES: dict[int, str] = {
    n: m for n, one in _SAID["hyper-parameters"].items() for m in one
}
HYPER_PARAMETER_COLUMNS: dict[str, list[str]] = {
    model: columns for one in _SAID["hyper-parameters"].values() for model, columns in one.items()
}
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

ABLATION_SPEEDUPS: dict[str, dict[str, Range]] = {
    model: {problem: Range(*ends) for problem, ends in found.items()}
    for model, found in _SAID["ablation-speedups"].items()
}
SCALING = {model: PowerLaw.through(*law) for model, law in _SAID["scaling"].items()}
SMALL_CNO_RATE: float = _SAID["small-cno-rate"]
SCALING_PARAMETERS: dict[str, float] = _SAID["scaling-parameters"]
FIGURE_27_CNO_RATE: float = _SAID["figure-27-cno-rate"]
HYPERNOS: dict[str, dict[str, list[float]]] = _SAID["hypernos"]
RESOLUTION_FACTORS: dict[str, dict[str, float]] = _SAID["resolution-factors"]
VORTICITY: dict[str, float] = _SAID["vorticity"]
MODES = {problem: Modes(**one) for problem, one in _SAID["modes"].items()}
SECONDS: dict[str, dict[str, float]] = _SAID["seconds"]
PROTOCOL = tuple(Statement(**one) for one in _SAID["protocol"])

# The numbers of the figures of error distributions, by problem, and of samples of the data.
DISTRIBUTION_FIGURES: dict[str, int] = {p: one["figure"] for p, one in _SAID["problems"].items()}
DATA_FIGURES: dict[str, int] = {problem: 28 + i for i, problem in enumerate(PROBLEM_TITLES)}
