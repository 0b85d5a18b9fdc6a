"""Each table and figure of the paper as a list of runs.

A run has one name, `<problem>-<model>-<budget>-<seed>[-tag]`, whatever studies it belongs to, and
so one folder: nothing is trained twice. The tag says what differs from the paper's table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from torchcno.paper import published as paper
from torchcno.problems import PROBLEMS
from torchcno.runs.config import RunConfig
from torchcno.runs.jobs import JOBS_A_GPU, Job, Outcome, run_jobs
from torchcno.runs.measurements import RESOLUTIONS, SPECTRA, Measurement
from torchcno.selection import select
from torchcno.training import Hardware
from torchcno.training.interruption import terminable
from torchcno.training.recipe import Fast

FLOW = "navier-stokes"  # the problem that the paper looks at more closely


@dataclass(frozen=True)
class Budget:
    """How much a study may cost: its protocol, and what it leaves out."""

    name: str
    preset: str  # of training and boundaries
    seeds: int = 10
    # The problems; none: all. Fields of the networks by model, and of the recipe. None has a hash.
    only: Sequence[str] = field(default=(), hash=False)
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    training: Mapping[str, Any] = field(default_factory=dict, hash=False)
    resolution: int | None = None  # of the training data; None: the paper's
    trial: bool = False  # few values of each parameter, and no results to keep

    def problems(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that it covers; its first problem stands in where it covers none."""
        there = [name for name in names if name in PROBLEMS]
        return [name for name in there if name in (self.only or there)] or list(self.only[:1])

    def some(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of a parameter that it tries: all, or the first and the last."""
        return (values[0], values[-1]) if self.trial else values

    @property
    def folder(self) -> Path:
        """Where runs lie in a folder of results: quick ones are no measurements."""
        return Path(self.name, "runs") if self.trial else Path("runs")


BUDGETS: dict[str, Budget] = {
    name: Budget(name, **fields)
    for name, fields in yaml.safe_load(Path(__file__).with_name("budgets.yaml").read_text()).items()
}


@dataclass(frozen=True)
class PlannedRun:
    """A run of a study."""

    budget: str
    config: RunConfig
    tag: str = ""  # what differs from the budget's own run

    @property
    def name(self) -> str:
        """The name of its folder."""
        c = self.config
        name = f"{c.problem.name}-{c.model}-{self.budget}-{c.seed}"
        return f"{name}-{self.tag}" if self.tag else name


@cache  # resolved once, whatever number of seeds, sizes and samples is planned from it
def _base_config(budget: Budget, problem: str, model: str) -> RunConfig:
    """The budget's own run of `model` on `problem`."""
    config = RunConfig.resolve(problem, model, budget.preset)
    resolution = budget.resolution or config.resolution
    size = config.problem.grid(resolution).shape
    return replace(
        config,
        resolution=resolution,
        architecture=replace(config.architecture, size=size, **budget.networks.get(model, {})),
        train=replace(config.train, **budget.training),
    )


@cache  # a report asks thousands of times
def planned(
    budget: Budget,
    problem: str,
    model: str,
    *,
    seed: int = 0,
    samples: int | None = None,
    **fields: Any,
) -> PlannedRun:
    """The run of `model` on `problem`; with the first `samples` only, and other `fields` of it.

    Fields of the network, or of its filter.
    """
    config = replace(_base_config(budget, problem, model), seed=seed)
    all_samples = config.train.samples or config.problem.samples["train"]
    of_filter = {name: fields.pop(name) for name in ("half_width", "taps") if name in fields}
    if of_filter:
        fields["filter"] = replace(config.architecture.filter, **of_filter)
    changed = {k: v for k, v in fields.items() if getattr(config.architecture, k) != v}
    words = [f"{SHORT.get(k, k)}{_word(v)}" for k, v in changed.items()]
    if samples is not None and samples < all_samples:
        config = replace(config, train=replace(config.train, samples=samples))
        words.append(f"samples{samples}")
    config = replace(config, architecture=replace(config.architecture, **changed))
    return PlannedRun(budget.name, config, "-".join(words))


def varied(
    budget: Budget, model: str, ranges: Mapping[str, Sequence[Any]]
) -> dict[tuple[Any, ...], PlannedRun]:
    """The runs of `model` on the flow with every choice of values of fields, by these values."""
    (problem,) = budget.problems([FLOW])
    return {
        values: planned(budget, problem, model, **dict(zip(ranges, values, strict=True)))
        for values in product(*map(budget.some, ranges.values()))
    }


# How tags call the fields of networks.
SHORT = {"activation_upsampling": "sigma", "neck_blocks": "neck", "filter": "", "modes": "kmax"}


def _word(value: Any) -> str:
    """A value in a tag; of a filter what studies vary: c_h, and N_tap at twice the rate."""
    if hasattr(value, "taps"):
        return f"half{value.half_width:g}-taps{2 * value.taps:g}"
    return f"{value:g}"


def every(
    models: Iterable[str], problems: Iterable[str], *, by_problem: bool = False
) -> Callable[[Budget], list[PlannedRun]]:
    """Every model on every problem that the budget covers: model by model, or by problem."""

    def runs(budget: Budget) -> list[PlannedRun]:
        there = budget.problems(problems)
        pairs = product(there, models) if by_problem else ((p, m) for m in models for p in there)
        return [planned(budget, problem, model) for problem, model in pairs]

    return runs


def seeds(budget: Budget) -> list[PlannedRun]:
    """Further initialisations, seed by seed, so that an interrupted study has whole seeds."""
    cases = product(range(budget.seeds), paper.SEEDED, budget.problems(paper.PROBLEM_TITLES))
    return [planned(budget, problem, model, seed=seed) for seed, model, problem in cases]


def filters(budget: Budget) -> list[PlannedRun]:
    """The filter's width against the upsampling of the activation, and the number of taps."""
    return [*filter_runs(budget).values(), *tap_runs(budget).values()]


def filter_runs(budget: Budget) -> dict[tuple[Any, ...], PlannedRun]:
    """Table 2: by N_σ and c_h."""
    upsamplings = sorted({n for n, _ in paper.FILTERS})
    return varied(
        budget, "cno", {"activation_upsampling": upsamplings, "half_width": paper.HALF_WIDTHS}
    )


def tap_runs(budget: Budget) -> dict[int, PlannedRun]:
    """Table 3: by N_tap, the taps at twice the sampling rate; the paper's own number first."""
    runs = varied(budget, "cno", {"taps": [taps // 2 for taps in paper.TAPS]})
    return {2 * taps: run for (taps,), run in runs.items()}


SMALL_CNO = {"width": 16}  # 0.82M parameters on the flow
SCALED: dict[str, tuple[str, ...]] = {
    FLOW: ("galerkin-transformer", "fno", "cno", "small cno"),
    "poisson": ("fno", "cno"),
    "wave": ("fno", "cno"),
}


def scaling(budget: Budget) -> list[PlannedRun]:
    """Fewer and fewer training samples."""
    return [run for series in scaling_series(budget).values() for run in series.values()]


def scaling_series(budget: Budget) -> dict[tuple[str, str], dict[int, PlannedRun]]:
    """Figures 3 (right) and 27: by problem and model, a run for every number of samples."""
    return {
        (problem, label): {
            samples: planned(
                budget,
                problem,
                label.removeprefix("small "),
                samples=samples,
                **(SMALL_CNO if label == "small cno" else {}),
            )
            for samples in budget.some(sample_counts(budget, problem))
        }
        for problem in budget.problems(SCALED)
        for label in SCALED[problem]
    }


def sample_counts(budget: Budget, problem: str) -> list[int]:
    """64, 128, 256 … and all training samples; from half of them on where they are few."""
    most = budget.training.get("samples") or PROBLEMS[problem].samples["train"]
    least = min(64, most // 2)
    return [*(least * 2**i for i in range((most - 1) // least) if least * 2**i < most), most]


EFFICIENCY: dict[str, dict[str, tuple[int, ...]]] = {
    "cno": {"width": (16, 24, 32, 48), "neck_blocks": (4, 8)},
    "fno": {"width": (16, 32, 64, 128), "layers": (3, 5)},
}


def efficiency(budget: Budget) -> list[PlannedRun]:
    """CNOs and FNOs of many sizes."""
    series = [varied(budget, model, ranges) for model, ranges in EFFICIENCY.items()]
    return [run for runs in series for run in runs.values()]


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper: its runs, and what is measured on each when it is trained."""

    shows: str  # where the paper has it
    runs: Callable[[Budget], list[PlannedRun]]
    measures: Measurement | None = None

    def plan(
        self,
        budget: Budget,
        only: str = "*",
        data: Path | None = None,
        hardware: Hardware | None = None,
        fast: Fast = "auto",
    ) -> list[PlannedRun]:
        """Its runs whose names match the pattern `only`, on that hardware, in such steps."""
        runs = {run.name: run for run in self.runs(budget) if fnmatch(run.name, only)}
        if not runs:
            names = ", ".join(run.name for run in self.runs(budget)[:3])
            raise ValueError(f"no run of the study matches {only!r}; they are called {names} …")
        return [
            replace(
                run,
                config=replace(
                    run.config,
                    data=data,
                    hardware=hardware or run.config.hardware,
                    train=replace(run.config.train, fast=fast),
                ),
            )
            for run in runs.values()
        ]


# Those that the paper compares most closely come first.
_CLOSEST_FIRST = sorted(paper.COMPARED, key=lambda model: (model not in paper.SEEDED, model))
STUDIES: dict[str, Study] = {
    "table1": Study(
        "Table 1; figures 5 to 24 and 28 to 35", every(_CLOSEST_FIRST, paper.PROBLEM_TITLES)
    ),
    "seeds": Study("Table 4", seeds),
    "ablation": Study("Table 13", every(paper.ABLATED, paper.PROBLEM_TITLES)),
    "filters": Study("Tables 2 and 3", filters),
    "resolution": Study("figure 2, right", every(paper.SEEDED, [FLOW]), RESOLUTIONS),
    "spectra": Study(
        "figure 2, left; figure 7",
        every(paper.SEEDED, [FLOW, "poisson"], by_problem=True),
        SPECTRA,
    ),
    "scaling": Study("figure 3, right; figure 27", scaling),
    "efficiency": Study("figure 3, left and centre", efficiency),
    "complexity": Study(  # a problem that coarse grids resolve, and one that they do not
        "figure 25", every(("cno", "fno"), ["vorticity", FLOW], by_problem=True), SPECTRA
    ),
}


def study(name: str) -> Study:
    """The study of that name."""
    return select(STUDIES, name, "study")


def run_study(
    name: str,
    runs: Sequence[PlannedRun],
    folder: Path,
    *,
    parallel: int | None = None,
    cluster: str | None = None,
    together: bool = False,
    on_update: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Bring the `runs` of a study to their ends in `folder`, and measure what it measures.

    `parallel`, `cluster` and `together` are those of `run_jobs`. Only where it was trained, or
    brought with its weights, can a run be measured: elsewhere it has failed.
    """
    jobs = [Job(folder / run.name, run.config) for run in runs]
    if cluster:  # some runs share a GPU of a worker, unless they are to stay off them
        jobs = [
            job if job.config.hardware.accelerator == "cpu" else replace(job, gpus=1 / JOBS_A_GPU)
            for job in jobs
        ]
    complete: dict[Path, Outcome] = {}

    def measure(outcome: Outcome) -> None:
        complete[outcome.job.folder] = measure_outcome(outcome, study(name).measures)
        if on_update is not None:
            on_update(complete[outcome.job.folder])

    with terminable():
        run_jobs(jobs, parallel=parallel, cluster=cluster, together=together, on_update=measure)
    return [complete[job.folder] for job in jobs]


def measure_outcome(outcome: Outcome, measurement: Measurement | None) -> Outcome:
    """What became of a run once what its study measures is measured, too."""
    if measurement is None or outcome.state != "finished":
        return outcome
    # Here, and not where it was trained: a worker of a cluster may have a GPU that is not here.
    device = "cpu" if outcome.job.config.hardware.accelerator == "cpu" else "auto"
    try:
        measurement.make(outcome.job.folder, device)
    except Exception as error:  # stops no other run
        return replace(outcome, state="failed", error=str(error) or type(error).__name__)
    return outcome
