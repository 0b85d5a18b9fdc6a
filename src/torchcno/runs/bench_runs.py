"""What `bench` measures once: whole runs of training, and how much one device holds."""

import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcno.data.dataset import load
from torchcno.evaluation.memory import with_peak_memory
from torchcno.evaluation.timing import wait
from torchcno.problems.problem import Problem
from torchcno.runs.bench_work import Batch, Way, Work, training_step
from torchcno.runs.config import RunConfig
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.job_process import run_in_process
from torchcno.runs.jobs import Job
from torchcno.runs.presets import build_model
from torchcno.training.folder import TrainingFolder
from torchcno.training.hardware import Hardware
from torchcno.training.loop import Epoch, Member, fit_together
from torchcno.training.pairs import Pairs

Numbers = dict[str, Any]
WARM = 2  # epochs that do not count: the first ones compile and capture
SLOW = 10.0  # seconds of a call, after which no larger one is tried


def time_run(problem: Problem, fields: Any, epochs: int, members: int, batch: Batch) -> Numbers:
    """The time per step of a run by `best` on random fields, with all that is around a step.

    Of several `members` together, a step is one of every member. `batch.samples` are those of the
    training set.
    """
    config = RunConfig.resolve(problem, "cno")
    recipe = replace(config.train, epochs=epochs)
    train, val = (
        Pairs(*(torch.rand(samples, 1, *batch.shape) for _ in range(2)))
        for samples in (batch.samples, problem.samples["val"])
    )
    seen: list[Epoch] = []

    def note(number: int, epoch: Epoch) -> None:
        if number == 0:
            seen.append(epoch)

    with tempfile.TemporaryDirectory() as home:
        crew = [
            Member(
                build_model("cno", problem, "best", size=batch.shape, **fields),
                TrainingFolder(Path(home) / str(seed)),
                seed,
            )
            for seed in range(members)
        ]
        hardware = Hardware(accelerator=batch.device.type)
        how: dict[str, Any] = {"hardware": hardware, "on_epoch": note}
        _, peak = with_peak_memory(
            lambda: fit_together(crew, train, val, recipe, **how), batch.device
        )
    steps = batch.samples // recipe.batch_size
    # The first evaluation compiles and captures, too.
    evaluated = [epoch.validation_error is not None for epoch in seen[WARM:-1]]
    steady = seen[WARM + (evaluated.index(True) + 1 if True in evaluated else 0) :]
    # An epoch of one of several members has its share of the seconds.
    whole = members * sum(epoch.seconds for epoch in steady)
    bare = sorted(members * epoch.seconds for epoch in steady if epoch.validation_error is None)
    return {
        "milliseconds": 1e3 * whole / len(steady) / steps,
        "milliseconds_without_evaluation": 1e3 * bare[len(bare) // 2] / steps if bare else None,
        "first_epoch_seconds": members * seen[0].seconds,
        "steps": steps * epochs,
        "members": members,
        "peak_gib": None if peak is None else peak / 2**30,
    }


def time_process(config: RunConfig, batch: Batch) -> Numbers:
    """From the start of a process to its result.json, of a run whose data are there.

    A short run comes first: what it compiles lies in a cache for the second.
    """
    numbers: Numbers = {"batch": config.train.batch_size, "epochs": config.train.epochs}
    with tempfile.TemporaryDirectory() as name:
        home, hardware = Path(name), Hardware(accelerator=batch.device.type)
        config = replace(config, data=home / "data", hardware=hardware)
        for split in ("train", *EVALUATED, "val"):
            where: Any = {"folder": config.data, "device": batch.device}
            load(config.problem, split, resolution=config.resolution, **where)
        short = replace(config, train=replace(config.train, epochs=WARM))
        for process, one in (("first_process", short), ("second_process", config)):
            folder = home / process
            numbers["seconds"], epoch = _run_process(Job(folder, one), folder / "metrics.jsonl")
            numbers[f"{process}_first_epoch_seconds"] = epoch
    return numbers


def _run_process(job: Job, rows: Path) -> tuple[float, float | None]:
    """Seconds of a job in a process of its own, and those until its first epoch was over."""
    start, over, first = time.monotonic(), threading.Event(), list[float]()

    def watch() -> None:
        while not over.wait(0.02):
            if rows.exists() and rows.stat().st_size:
                first.append(time.monotonic() - start)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        answer = run_in_process(job.request)
    finally:
        over.set()
        watcher.join()
    if not (rows.parent / "result.json").exists():
        raise RuntimeError(f"the run did not finish: {answer}")
    return time.monotonic() - start, first[0] if first else None


def find_largest(
    step: Callable[[Batch], Work], batches: Iterator[Batch], device: torch.device
) -> Numbers:
    """The last of growing `batches` of which the device holds a step, and what that takes."""
    found: Numbers = {"stopped_by": "the end of the list"}
    for batch in batches:
        if device.type == "cuda":
            gc.collect()  # what the last one held
        try:
            milliseconds, peak = _try(step, batch)
        except torch.OutOfMemoryError:
            found["stopped_by"] = "memory"
            break
        found |= {
            "batch": batch.samples,
            "size": batch.size,
            "dimensions": batch.dims,
            "milliseconds": milliseconds,
            "peak_gib": None if peak is None else peak / 2**30,
        }
        if milliseconds > 1e3 * SLOW:
            found["stopped_by"] = "time"
            break
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    return found


def _try(step: Callable[[Batch], Work], batch: Batch) -> tuple[float, int | None]:
    """Milliseconds of a second call, and the memory of building and of the first."""

    def first_call() -> Work:
        work = step(batch)
        work()
        wait(batch.device)
        return work

    work, peak = with_peak_memory(first_call, batch.device)
    start = time.perf_counter()
    work()
    wait(batch.device)
    return 1e3 * (time.perf_counter() - start), peak


def largest_batch(way: Way, problem: Problem, most: int, batch: Batch) -> Numbers:
    """How many samples of a size fit: `batch.samples`, and twice as many each time."""
    counts = _ladder(batch.samples, most)
    tried = (replace(batch, samples=count) for count in counts)
    found = find_largest(lambda one: training_step(way, problem, one), tried, batch.device)
    return found | {"largest": found.get("batch")}


def largest_grid(way: Way, problem: Problem, most: int, batch: Batch) -> Numbers:
    """How many points per axis fit, for `batch.samples` samples."""
    tried = (replace(batch, size=size) for size in _ladder(batch.size, most))
    found = find_largest(lambda one: training_step(way, problem, one), tried, batch.device)
    return found | {"largest": found.get("size")}


def _ladder(first: int, most: int) -> Iterator[int]:
    """first, 2 first, 4 first, …, as long as it is at most `most`."""
    while first <= most:
        yield first
        first *= 2
