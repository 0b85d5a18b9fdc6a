"""What runs will cost, before they start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from torchcno.paper.records import TABLE, read_table
from torchcno.paper.studies import PlannedRun
from torchcno.problems import PROBLEMS
from torchcno.runs.config import read_tree
from torchcno.runs.folder import RunFolder
from torchcno.runs.jobs import Job, find_outcome
from torchcno.runs.measurements import Measurement
from torchcno.runs.presets import parameter_count
from torchcno.training.hardware import device_name, pick_device

Basis = Literal["finished", "trained", "measured", "guessed", "refused"]

# Seconds of training a sample, a real parameter and a grid of 64²: the CNO of the Navier-Stokes
# problem takes 5.4 ms for a batch of 32 on an H200 and 0.77 s for one of 16 on two CPU cores. What
# a parameter costs differs between networks by ten times and more.
GUESS = {"cuda": 5.4e-3 / 32 / 3.24e6, "cpu": 0.77 / 16 / 3.24e6}

# Seconds of a run around its training: to read data that are made already, evaluate and write, and
# to begin a process where it has one. By `cno study table1 --budget quick --only 'poisson-*'` on
# two CPU cores: 7 runs in this process took 8 s, 3.7 s of it training; one with --jobs 1 took 9 s.
AROUND = 0.6
PROCESS = 8.3


@dataclass(frozen=True)
class Cost:
    """The time of one run by itself, about: an early stop makes it less, data to make more."""

    seconds: float
    basis: Basis
    why: str = ""  # it is refused


def estimate(
    runs: Sequence[PlannedRun],
    folder: Path,
    measurement: Measurement | None = None,
    *,
    processes: bool = True,
    cluster: bool = False,
) -> dict[str, Cost]:
    """By name, what `runs` will cost in `folder`, where finished ones lie; others in the table.

    By the seconds an epoch that the run itself took so far; else by those that one of the same
    model and problem took on the same device; else by the number of parameters, a guess.
    `measurement` is what is made of each afterwards; `processes` says whether every run has one of
    its own, `cluster` whether others than this machine train, on GPUs unless they are to use none.
    """
    around = AROUND + (PROCESS if processes else 0.0)
    there = (RunFolder(path) for path in sorted(folder.glob("*")))
    known = (run for run in there if run.config_file.exists() and run.state == "finished")
    rows, _ = read_table(folder.parent / TABLE)
    rows += [{**(run.result() or {}), "config": read_tree(run.config_file)} for run in known]
    return {
        run.name: _settled_cost(Job(folder / run.name, run.config), measurement)
        or _begun_cost(run, folder / run.name, around)
        or _cost(run, around, [row for row in rows if row["config"]], cluster)
        for run in runs
    }


def _settled_cost(job: Job, measurement: Measurement | None) -> Cost | None:
    """The cost of a run that is not to be trained; None where it is."""
    outcome = find_outcome(job)
    if outcome is None:
        return None
    if outcome.state != "finished":
        return Cost(0.0, "refused", outcome.error)
    if measurement is None or measurement.is_made(job.folder):
        return Cost(0.0, "finished")
    why = measurement.hindrance(job.folder)
    return Cost(0.0, "refused", why) if why else Cost(AROUND, "trained")


def _begun_cost(run: PlannedRun, folder: Path, around: float) -> Cost | None:
    """The cost of what is left of a run that was interrupted; None where it has not begun."""
    epochs = [row["seconds"] for row in RunFolder(folder).rows()]
    if not epochs:
        return None
    left = run.config.train.epochs - len(epochs)
    return Cost(around + left * sum(epochs) / len(epochs), "measured")


def _cost(run: PlannedRun, around: float, rows: Sequence[Mapping[str, Any]], cluster: bool) -> Cost:
    """The cost of a run that is to be trained from the beginning."""
    accelerator = run.config.hardware.accelerator
    kind, name = _device("cuda" if cluster and accelerator == "auto" else accelerator)
    return _cost_on(kind, name, run, around, rows)


def estimate_on_gpu(run: PlannedRun, rows: Sequence[Mapping[str, Any]]) -> Cost:
    """What a run takes on the GPU that most of the finished `rows` were trained on.

    Whatever this machine is; at most, since a run may stop early.
    """
    names = [row["device"] for row in rows if row["config"] and "CPU" not in row["device"]]
    name = max(sorted(set(names)), key=names.count, default="")
    return _cost_on("cuda", name, run, AROUND + PROCESS, [row for row in rows if row["config"]])


def _cost_on(
    kind: str, name: str, run: PlannedRun, around: float, rows: Sequence[Mapping[str, Any]]
) -> Cost:
    """The cost of a run on a device of that kind and name."""
    config = run.config
    parameters = parameter_count(config.model, config.architecture).reals
    rates = [
        row["seconds_per_epoch"]
        / _work(row["config"], row["problem"], row.get("real_parameters", row["parameters"]))
        for row in rows
        if (row["problem"], row["model"]) == (config.problem.name, config.model)
        and row["device"] == name
    ]
    rate = min(rates) if rates else GUESS[kind]
    work = _work(config.to_tree(), config.problem.name, parameters)
    seconds = around + rate * work * config.train.epochs
    return Cost(seconds, "measured" if rates else "guessed")


def _device(accelerator: str) -> tuple[str, str]:
    """What kind of device trains, and which: that of this machine, if it has any of the kind."""
    if accelerator == "cuda" and not torch.cuda.is_available():
        return "cuda", "some worker's of a cluster"
    device = pick_device(accelerator)
    return device.type, device_name(device)


def _work(config: Mapping[str, Any], problem: str, parameters: int) -> float:
    """Samples × real parameters × points over 64²: what the time of an epoch grows with.

    `config` is a tree, whatever version wrote it.
    """
    samples = config["train"].get("samples") or PROBLEMS[problem].samples["train"]
    return float(samples * parameters * (config["resolution"] / 64) ** 2)
