"""The tour: data, training, evaluation and the point of the filters, on one page.

Small enough for two CPU cores and four minutes: the Poisson problem with a quarter of the paper's
training samples, and a CNO of a few blocks.
"""

import shutil
import time
import timeit
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from torch import Tensor

from torchcno.disk import write_atomically
from torchcno.evaluation.translation import translated
from torchcno.operators.filters import Ideal, Nearest, WindowedSinc
from torchcno.problems import PROBLEMS, Problem
from torchcno.runs.config import RunConfig
from torchcno.runs.evaluate import EVALUATED, Evaluation, evaluate_run
from torchcno.runs.folder import RunFolder
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.pictures.drawing import Panel, curves, data_uri, field_rows
from torchcno.runs.presets import build_model
from torchcno.runs.pretrained import load_pretrained
from torchcno.runs.train import Watch, train_run
from torchcno.training import Hardware
from torchcno.version import __version__

TRAINING_RESOLUTION = 32  # enough for the 16 modes an axis, and four times cheaper than 64
RESOLUTIONS = (32, 64, 128)
SAMPLES = 64  # of the test and of the ood set
SHOWN = 2  # of each
MODES = 16  # of the field that is translated
NETWORK: dict[str, Any] = {"width": 16, "lift_width": 32, "neck_blocks": 2, "skip_blocks": 1}
TRAINING: dict[str, Any] = {
    "epochs": 26,
    "samples": 256,
    "batch_size": 16,
    "learning_rate": 4e-3,
    "warmup": 0.05,
    "averaging_half_life": 1,
    "frozen_statistics": 0.0,  # a short run has nothing to freeze
}


@dataclass(frozen=True)
class Check:
    """A number that the tour promises."""

    what: str
    value: float
    low: float
    high: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return self.low <= self.value <= self.high


@dataclass(frozen=True)
class TranslationError:
    """How far a network is from commuting with a translation by a third of a grid step."""

    name: str
    error: float  # ‖G(τu) − τG(u)‖ / ‖G(u)‖
    output: Float[Tensor, "y x"]  # G(u)
    difference: Float[Tensor, "y x"]  # |G(τu) − τG(u)|


@dataclass(frozen=True)
class Timing:
    """Seconds for one field on this machine's CPU."""

    problem: str
    network: float
    solver: float

    @property
    def verdict(self) -> str:
        """Which of the two is faster, in words."""
        ratio = self.solver / self.network
        faster, times = ("network", ratio) if ratio > 1 else ("solver", 1 / ratio)
        return f"the {faster} is {times:.0f} times faster" if times >= 1.5 else "about the same"


@dataclass(frozen=True)
class Tour:
    """What the tour found."""

    run: Path
    result: dict[str, Any]
    evaluations: list[Evaluation]
    translations: list[TranslationError]
    timings: list[Timing]
    seconds: float

    @property
    def checks(self) -> list[Check]:
        """What should have come out, and what did."""
        errors = {
            evaluation.split: evaluation.summary["relative_l1_median_percent"]["physical"]
            for evaluation in self.evaluations
            if evaluation.resolution == TRAINING_RESOLUTION
        }
        filtered, bare = (t.error for t in self.translations if t.name != "ideal filters")
        return [
            Check("error on new sources", errors["test"], 1.5, 9.0, " %"),
            Check("error on finer sources than in training", errors["ood"], 2.0, 15.0, " %"),
            Check("the filters' gain in translation error", bare / filtered, 3.0, 15.0, " ×"),
        ]

    @property
    def next_steps(self) -> dict[str, str]:
        """What to do next, and the command for it."""
        own = "cno train --data mine.nc --inputs a --outputs u --out runs/mine"
        return {
            "Draw a source yourself, and see the answer.": f"cno playground {self.run}",
            "Train on your own file of inputs and outputs.": own,
            "See when not to trust it: other grids, small shifts.": f"cno audit {self.run}",
        }


def take_tour(out: Path, watch: Watch) -> Tour:
    """Make data, train, evaluate, and compare networks with and without filters."""
    start, run, config = time.perf_counter(), out / "run", tour_config(out)
    with RunFolder(run).open(config, "either") as finished:
        if finished is not None:  # by an earlier tour
            shutil.rmtree(run)
    result = train_run(config, run, watch, mode="either")
    evaluations = evaluate_run(run, EVALUATED, RESOLUTIONS, SAMPLES, device="cpu")
    translations = [
        measure_translation("low-pass filters", WindowedSinc()),
        measure_translation("ideal filters", Ideal()),
        measure_translation("no filters", Nearest()),
    ]
    timings = [
        time_field(PROBLEMS["poisson"](), RunFolder(run).operator(device="cpu")),
        time_field(PROBLEMS["navier-stokes"](), load_pretrained("navier-stokes")),
    ]
    seconds = time.perf_counter() - start
    return Tour(run, result, evaluations, translations, timings, seconds)


def tour_config(out: Path) -> RunConfig:
    """The run of the tour."""
    config = RunConfig.resolve(
        "poisson",
        "cno",
        resolution=TRAINING_RESOLUTION,
        data=out / "data",
        hardware=Hardware(accelerator="cpu"),
    )
    return replace(
        config,
        architecture=replace(config.architecture, **NETWORK),
        train=replace(config.train, **TRAINING),
    )


def measure_translation(name: str, filter: WindowedSinc | Ideal | Nearest) -> TranslationError:
    """The error of a CNO with random weights, the same for every filter, on a periodic field."""
    torch.manual_seed(0)
    network = build_model(
        "cno", "navier-stokes", preset="best", filter=filter, width=16, neck_blocks=2
    ).eval()
    u, shift = random_field(64, torch.Generator().manual_seed(0)), (1 / 3, 1 / 3)
    with torch.inference_mode():
        output, moved = network(u), network(translated(u, shift))
    difference = translated(moved, (0.0, 0.0)) - translated(output, shift)
    error = float(difference.norm() / output.norm())
    return TranslationError(name, error, output[0, 0], difference[0, 0].abs())


def time_field(problem: Problem, operator: TrainedOperator) -> Timing:
    """The problem's solver and a network that learnt it, on one field of the paper's grid."""
    grid = problem.solver_grid(problem.resolution)
    state = problem.sample_inputs(grid, 1, torch.Generator().manual_seed(0))
    field = problem.restrict(problem.observe(state), problem.resolution)
    operator.predict(field)  # the first call prepares
    network = min(timeit.repeat(lambda: operator.predict(field), number=1, repeat=5))
    solver = timeit.timeit(lambda: problem.solve(state), number=1)
    return Timing(problem.name, network, solver)


def random_field(n: int, generator: torch.Generator) -> Float[Tensor, "1 1 n n"]:
    """A periodic field of random amplitudes that fall like 1/|k| below `MODES`, none above."""
    k_y, k_x = torch.fft.fftfreq(n, 1 / n), torch.fft.rfftfreq(n, 1 / n)
    k = torch.hypot(k_y[:, None], k_x)
    u_hat = torch.randn(k.shape, dtype=torch.complex128, generator=generator) / (1 + k)
    u = torch.fft.irfft2(torch.where(k < MODES, u_hat, 0), s=(n, n))
    return (u / u.std()).float()[None, None]


def write_page(tour: Tour, path: Path) -> None:
    """The tour as one HTML file, pictures included."""
    templates = Environment(
        loader=PackageLoader("torchcno.runs"), autoescape=True, undefined=StrictUndefined
    )
    page = templates.get_template("demo.html.j2").render(
        tour=tour,
        version=__version__,
        training=TRAINING,
        next_steps=tour.next_steps,
        samples=SAMPLES,
        pictures={
            **{split: data_uri(draw_samples(tour, split)) for split in EVALUATED},
            "training": data_uri(draw_training(tour.run)),
            "translation": data_uri(draw_translations(tour.translations)),
        },
    )
    write_atomically(path, page.encode())


def draw_samples(tour: Tour, split: str) -> Figure:
    """Input, truth, prediction and error of the first samples of a split, on the finest grid."""
    evaluation = next(
        e for e in tour.evaluations if e.split == split and e.resolution == max(RESOLUTIONS)
    )
    fields = evaluation.fields
    shown = (fields.inputs, fields.outputs, evaluation.prediction)
    rows = []
    for f, u, v in zip(*(field[:SHOWN, 0] for field in shown), strict=True):
        error = Panel("|error|", (v - u).abs(), error=True)
        truth = [Panel("source f", f), Panel("solution u", u)]
        rows.append([*truth, Panel("prediction", v, like=u), error])
    return field_rows(rows)


def draw_training(run: Path) -> Figure:
    """Loss and validation error against epochs."""
    rows = RunFolder(run).rows()
    lines = {}
    for name, key in (("training loss", "train_loss"), ("validation error", "validation_error")):
        known = [row for row in rows if row[key] is not None]
        lines[name] = [row["epoch"] for row in known], [100 * row[key] for row in known]
    return curves(lines, "epoch", "relative L1, percent")


def draw_translations(translations: Sequence[TranslationError]) -> Figure:
    """The output of the filtered network, and all translation errors in the same colours."""
    worst = max((t.difference for t in translations), key=lambda difference: difference.max())
    first = Panel("G(u), " + translations[0].name, translations[0].output)
    errors = [Panel("error, " + t.name, t.difference, worst, error=True) for t in translations]
    return field_rows([[first, *errors]])
