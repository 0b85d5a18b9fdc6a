"""Speed and memory side by side: training steps, their cost a pixel, inference, and whole runs.

What is compared takes turns, a block of calls each in every round, so that whatever else the
machine does falls on all alike. A row that fails says why, and the others go on.
"""

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from typing import Any

import torch

from torchcno.arithmetic import Precision, arithmetic
from torchcno.evaluation.memory import with_peak_memory
from torchcno.evaluation.timing import BLOCK, Stopwatch, wait
from torchcno.operators.activation import Activation
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.problems.problem import Problem
from torchcno.runs.bench_runs import largest_batch, largest_grid, time_process, time_run
from torchcno.runs.bench_work import (
    Batch,
    Way,
    Work,
    bicubic,
    prediction,
    solution,
    training_step,
)
from torchcno.runs.config import RunConfig
from torchcno.runs.fitting import versions
from torchcno.training.hardware import device_name, reuse_memory
from torchcno.training.optimizers import OPTIMIZERS

LEAST_ROUNDS, MOST_ROUNDS = 2, 30
METHOD = (
    f"Wall clock around blocks of calls, {BLOCK / 2:g} s or more, with the device idle before and "
    "after; the rows of a section take turns, a block each a round. Medians over rounds, with "
    "quartiles; ratios, this row's time over that one's for a sample (in `sizes` for a pixel), "
    "are medians of the ratios round by round. Peak memory is that of building and of the first "
    "call, beyond what was in use before: on CUDA in tensors, on a CPU of the process. Networks "
    "see noise; products of float32 are TF32 on CUDA. Whole runs, and the largest grids and "
    "batches, are measured once each: a run's time is the mean over its epochs after the first "
    "evaluation."
)

FUSED, BARE = Way(), Way("cno-no-filters")
# The most telling first: where the time does not suffice, the last are left out.
WAYS: dict[str, Way] = {
    "fused": FUSED,
    "no-filters": BARE,
    "no-skip-blocks": Way("cno-no-skip-blocks"),
    "dense": Way(activation=Activation.by_matrices),
    "bicubic": Way(activation=bicubic),
    "fno": Way("fno"),
    "unet": Way("unet"),
    "fused-channels-first": replace(FUSED, channels_first=True),
    "no-filters-channels-first": replace(BARE, channels_first=True),
}
CUDA_WAYS: dict[str, Way] = {
    "fused-fp16": replace(FUSED, precision="fp16-mixed"),
    "no-filters-fp16": replace(BARE, precision="fp16-mixed"),
    "fused-bf16": replace(FUSED, precision="bf16-mixed"),
    "fused-bf16-channels-first": replace(FUSED, precision="bf16-mixed", channels_first=True),
    **{
        f"{name}-eager": replace(way, captured=False)
        for name, way in WAYS.items()
        if not way.channels_first
    },
}


@dataclass(frozen=True)
class Plan:
    """What is measured on a device."""

    device: str
    seconds: float  # of measuring, about; building and compiling come on top
    batch: int  # of a training step at `resolution`
    sizes: tuple[int, ...]  # points per axis for the cost of a pixel
    inference_batch: int
    solver_batch: int
    ways: Mapping[str, Way]  # of a training step; predictions go the way "fused"
    resolution: int = 64  # points per axis of a training step
    inference_sizes: tuple[int, ...] = (64, 128)
    problems: tuple[Problem, ...] = (NavierStokes(), Poisson())  # the first one's networks train
    precision: Precision = "tf32"  # that training takes by itself
    run_epochs: int = 0  # of whole runs; 0: there are none
    run_members: tuple[int, ...] = (1, 2, 4)  # that are trained together
    run_fields: Mapping[str, Any] = field(default_factory=dict)  # of their networks
    whole: RunConfig | None = None  # trained from start to result.json, in a process of its own
    # (first, last) of what is tried: samples at `resolution`, points per axis in two dimensions and
    # in three.
    largest: tuple[tuple[int, int], ...] = ()

    def of(self, samples: int, size: int) -> Batch:
        """So many samples of size² points."""
        return Batch(samples, size, torch.device(self.device))


PLANS: dict[str, Plan] = {
    "cuda": Plan(
        "cuda",
        precision="fp16-mixed",
        run_epochs=31,
        whole=RunConfig.resolve("allen-cahn", "cno"),
        largest=((64, 2**14), (512, 2**13), (32, 512)),
        seconds=60,
        batch=32,
        sizes=(64, 128, 256, 512),
        inference_batch=256,
        solver_batch=256,
        ways=WAYS | CUDA_WAYS,
    ),
    "cpu": Plan(
        "cpu", seconds=180, batch=16, sizes=(64, 128), inference_batch=16, solver_batch=2, ways=WAYS
    ),
}


@dataclass
class Row:
    """One thing to measure, and what came of it."""

    name: str
    build: Callable[[Batch], Work]
    batch: Batch
    against: tuple[str, ...] = ()  # the rows over which its time is given
    by_pixel: bool = False  # compare the time of a pixel, not of a sample

    stopwatch: Stopwatch | None = None  # None before it is ready, and once it has failed
    numbers: dict[str, Any] = field(default_factory=dict)  # all but the times

    def prepare(self) -> None:
        """Build what is timed, and call it once."""
        device = self.batch.device

        def first_call() -> Work:
            work = self.build(self.batch)
            work()
            wait(device)
            return work

        start = time.perf_counter()
        with self._noted(), self._failures():
            work, peak = with_peak_memory(first_call, device)
            self.numbers["first_call_seconds"] = _rounded(time.perf_counter() - start)
            self.numbers["peak_gib"] = None if peak is None else _rounded(peak / 2**30)
            self.stopwatch = Stopwatch(work, device)

    def measure(self) -> None:
        """One more block."""
        if self.stopwatch is not None:
            with self._failures():
                self.stopwatch.measure()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Warnings are notes: of a kernel or a graph that could not be."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
        if warned:
            self.numbers["notes"] = list(dict.fromkeys(str(warning.message) for warning in warned))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """An error is what came of this row, and the end of it."""
        try:
            yield
        except Exception as error:  # compilers of kernels have no one type of failures
            self.stopwatch = None
            reason = str(error).strip().partition("\n")[0]
            self.numbers["error"] = f"{type(error).__name__}: {reason}"

    def as_dict(self, rows: Sequence["Row"]) -> dict[str, Any]:
        """The numbers of the row, with its time over those of others among `rows`."""
        batch, watch = self.batch, self.stopwatch
        numbers = {"batch": batch.samples, "size": batch.size, **self.numbers}
        if watch is None or not watch.blocks:
            return numbers
        others = [row for row in rows if row.name in self.against]
        return numbers | {
            "milliseconds": _rounded(1e3 * watch.seconds),
            "quartiles_milliseconds": [_rounded(1e3 * seconds) for seconds in watch.spread],
            "milliseconds_a_sample": _rounded(1e3 * watch.seconds / batch.samples),
            "nanoseconds_a_pixel": _rounded(1e9 * watch.seconds / batch.samples / batch.points),
            "rounds": len(watch.blocks),
            "calls_a_round": watch.calls,
            "ratios": {
                row.name: _rounded(watch.over(row.stopwatch) * row.units / self.units)
                for row in others
                if row.stopwatch is not None and row.stopwatch.blocks
            },
        }

    @property
    def units(self) -> int:
        """How many samples or pixels a call works on."""
        return self.batch.samples * (self.batch.points if self.by_pixel else 1)


@dataclass
class Once(Row):
    """One thing that is measured a single time; `build` returns its numbers."""

    def prepare(self) -> None:
        """Measure it."""
        start = time.perf_counter()
        with self._noted(), self._failures():
            taken: Any = self.build(self.batch)
            self.numbers |= {
                name: _rounded(value) if isinstance(value, float) else value
                for name, value in taken.items()
            }
        self.numbers["first_call_seconds"] = _rounded(time.perf_counter() - start)

    def as_dict(self, rows: Sequence[Row]) -> dict[str, Any]:
        """The numbers, with the time of a step over those of others."""
        numbers = super().as_dict(rows)
        others = {row.name: row.numbers.get("milliseconds") for row in rows}
        mine, found = numbers.get("milliseconds"), [n for n in self.against if others.get(n)]
        if mine and found:
            numbers["ratios"] = {name: _rounded(mine / others[name]) for name in found}
        return numbers


def training_rows(plan: Plan) -> list[Row]:
    """A training step, many ways, over the default one; that one over those of ablated CNOs."""
    batch = plan.of(plan.batch, plan.resolution)
    ablated = tuple(name for name, way in plan.ways.items() if way.model.startswith("cno-no-"))
    return [
        Row(
            name,
            partial(training_step, way, plan.problems[0]),
            batch,
            against=ablated if name == "fused" else ("fused",),
        )
        for name, way in plan.ways.items()
    ]


def size_rows(plan: Plan) -> list[Row]:
    """A training step on growing grids, over the smallest one and over the one without filters."""
    rows = []
    for size in plan.sizes:
        # As many samples as have the pixels of a training batch; at least one.
        batch = plan.of(max(1, plan.batch * plan.resolution**2 // size**2), size)
        for name in ("fused", "no-filters", "dense"):
            build = partial(training_step, plan.ways[name], plan.problems[0])
            against = (f"{name}-{plan.sizes[0]}", f"no-filters-{size}")
            rows.append(Row(f"{name}-{size}", build, batch, against, by_pixel=True))
    return rows


def inference_rows(plan: Plan) -> list[Row]:
    """Predictions, and the solver for the same fields: its time over the network's."""
    kinds = {"latency": (1, 1), "throughput": (plan.inference_batch, plan.solver_batch)}
    fused = plan.ways["fused"]
    ways = {"": fused}
    if plan.device == "cuda":
        ways["-eager"] = replace(fused, captured=False)
    networks, solvers = list[Row](), dict[str, Row]()
    for problem, size, kind in product(plan.problems, plan.inference_sizes, kinds):
        samples, solved = kinds[kind]
        name = f"{problem.name}-{size}-{kind}"
        for suffix, way in ways.items():
            build = partial(prediction, way, problem)
            networks.append(Row(name + suffix, build, plan.of(samples, size)))
        # Fields of several resolutions may come from one grid of the solver.
        points = problem.solver_grid(size).shape[0]
        solver = f"{problem.name}-solver-{points}-{kind}"
        row = Row(solver, partial(solution, problem), plan.of(solved, points))
        solvers.setdefault(solver, row).against += (name,)
    return [*networks, *solvers.values()]


def run_rows(plan: Plan) -> list[Row]:
    """Steps of the network of `best` in the default precision, and whole runs of it."""
    problem, batch = plan.problems[0], plan.of(plan.batch, plan.resolution)
    best = Way(preset="best", precision=plan.precision, fields=plan.run_fields)
    rows: list[Row] = [
        Row(
            f"step-{optimizer}",
            partial(training_step, replace(best, optimizer=optimizer), problem),
            batch,
            against=() if optimizer == "adamw" else ("step-adamw",),
        )
        for optimizer in OPTIMIZERS
    ]
    samples = plan.of(problem.samples["train"], plan.resolution)
    for members in plan.run_members if plan.run_epochs else ():
        name = "run" if members == 1 else f"members-{members}"
        work: Any = partial(time_run, problem, plan.run_fields, plan.run_epochs, members)
        rows.append(Once(name, work, samples, against=() if members == 1 else ("run",)))
    if plan.whole is not None:
        size = plan.whole.resolution or plan.whole.problem.resolution
        name = f"{plan.whole.problem.name}-to-result"
        build: Any = partial(time_process, plan.whole)
        rows.append(Once(name, build, plan.of(0, int(size))))
    return rows


def memory_rows(plan: Plan) -> list[Row]:
    """The largest batch and the largest grids of which the device holds a step, two ways."""
    if not plan.largest:
        return []
    problem = plan.problems[0]
    (samples, most), *grids = plan.largest
    rows: list[Row] = []
    for suffix, recompute in (("", False), ("-recompute", True)):
        way = Way(
            preset="best", precision=plan.precision, fields=plan.run_fields, recompute=recompute
        )
        build: Any = partial(largest_batch, way, problem, most)
        rows.append(
            Once(f"batch-{plan.resolution}{suffix}", build, plan.of(samples, plan.resolution))
        )
        for dims, (size, largest) in enumerate(grids, start=2):
            build = partial(largest_grid, way, problem, largest)
            batch = replace(plan.of(1, size), dims=dims)
            rows.append(Once(f"grid-{dims}d{suffix}", build, batch))
    return rows


# With its share of the time.
SECTIONS: dict[str, tuple[Callable[[Plan], list[Row]], float]] = {
    "training": (training_rows, 0.37),
    "sizes": (size_rows, 0.25),
    "inference": (inference_rows, 0.26),
    "run": (run_rows, 0.11),
    "memory": (memory_rows, 0.01),
}

# Sees the report so far and the name of what was at work.
Watch = Callable[[dict[str, Any], str], None]


def run_bench(plan: Plan, only: Sequence[str] = (), watch: Watch | None = None) -> dict[str, Any]:
    """Measure what `plan` says, and return all numbers; `watch` sees them as they come.

    `only` holds names of sections, or names or patterns of rows; empty: everything.
    """
    chosen = select_rows(plan, only)
    began = time.monotonic()
    cuda = {"cuda": str(torch.version.cuda)} if plan.device == "cuda" else {}
    report: dict[str, Any] = {
        "device": device_name(torch.device(plan.device)),
        "device_kind": plan.device,
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "load_average": round(os.getloadavg()[0], 1),  # how much else the machine did before
        "versions": versions() | cuda,
        "seconds": plan.seconds,
        "method": METHOD,
    }
    shares = sum(SECTIONS[section][1] for section in chosen)
    if plan.device == "cpu":
        reuse_memory()  # as a training run does
    with arithmetic("tf32"):
        _warm_up(plan).prepare()
        for section, rows in chosen.items():
            gc.collect()  # what the rows of the last section held
            for at_work in measure_rows(rows, plan.seconds * SECTIONS[section][1] / shares):
                report[section] = {row.name: row.as_dict(rows) for row in rows}
                report["wall_seconds"] = round(time.monotonic() - began, 1)
                if watch is not None:
                    watch(report, at_work)
            for row in rows:
                row.stopwatch = None  # and with it the memory of what was measured
    return report


def select_rows(plan: Plan, only: Sequence[str]) -> dict[str, list[Row]]:
    """The rows to measure, by section."""
    rows = {section: make(plan) for section, (make, _) in SECTIONS.items()}
    known = [*rows, *(row.name for of_section in rows.values() for row in of_section)]
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ValueError(f"nothing to measure is called {pattern!r}; use {', '.join(known)}.")

    chosen: dict[str, list[Row]] = {}
    for section, of_section in rows.items():
        for row in of_section:
            names = (section, row.name)
            if not only or any(fnmatchcase(name, one) for name in names for one in only):
                chosen.setdefault(section, []).append(row)
    return chosen


def _warm_up(plan: Plan) -> Row:
    """A step of a network that takes no time: what a process loads once is no part of any row."""
    tiny = {"levels": 1, "width": 2, "neck_blocks": 1, "skip_blocks": 0, "lift_width": 2}
    build = partial(training_step, Way(fields=tiny), plan.problems[0])
    return Row("warm-up", build, plan.of(samples=1, size=8))


def measure_rows(rows: Sequence[Row], seconds: float) -> Iterator[str]:
    """Measure `rows` in turns, and say after every first call and every round what was at work.

    `seconds` count from the first round: where kernels are not compiled yet, the first calls take
    minutes, and every row is measured all the same.
    """
    for row in rows:
        row.prepare()
        if "error" in row.numbers:
            gc.collect()  # what a failure held of the memory that the next one needs
        yield row.name
    deadline = time.monotonic() + seconds
    for count in range(1, MOST_ROUNDS + 1):
        start = time.monotonic()
        for row in rows:
            row.measure()
        yield f"round {count}"
        now = time.monotonic()
        if count >= LEAST_ROUNDS and now + (now - start) > deadline:
            return


def _rounded(value: float) -> float:
    """Four digits: more than a clock is worth."""
    return float(f"{value:.4g}")
