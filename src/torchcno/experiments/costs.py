"""What runs will cost, before they start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from torchcno.experiments.build import model_class
from torchcno.experiments.run import device_name
from torchcno.experiments.run_config import RunConfig, read_config
from torchcno.experiments.studies import PlannedRun
from torchcno.experiments.trained import pick_device, read_json
from torchcno.models import count_parameters

Basis = Literal["finished", "measured", "guessed"]

# Seconds of training a sample, a real parameter and a grid of 64²: the CNO of the Navier-Stokes
# problem takes 5.8 ms for a batch of 32 on an H200 and 0.77 s for one of 16 on two CPU cores. What
# a parameter costs differs between networks by ten times and more.
GUESS = {"cuda": 5.8e-3 / 32 / 3.24e6, "cpu": 0.77 / 16 / 3.24e6}


@dataclass(frozen=True)
class Cost:
    """The time of one run by itself, at most: an early stop makes it less."""

    seconds: float
    basis: Basis


def estimate(runs: Sequence[PlannedRun], folder: Path) -> dict[str, Cost]:
    """By name, what `runs` will cost in `folder`, where finished ones lie.

    By the seconds an epoch that a run of the same model and problem took on the same device;
    else by the number of parameters, a guess.
    """
    results = {path.parent: read_json(path) for path in sorted(folder.glob("*/result.json"))}
    return {run.name: _cost(run, folder, results) for run in runs}


def _cost(run: PlannedRun, folder: Path, results: Mapping[Path, dict[str, Any]]) -> Cost:
    if folder / run.name in results:
        return Cost(0.0, "finished")
    config, device = run.config, pick_device(run.config.hardware.accelerator)
    rates = [
        result["seconds_per_epoch"] / work_an_epoch(read_config(there))
        for there, result in results.items()
        if (result["problem"], result["model"]) == (config.problem.name, config.model)
        and result["device"] == device_name(device)
    ]
    rate = min(rates) if rates else GUESS[device.type]
    seconds = rate * work_an_epoch(config) * config.train.epochs
    return Cost(seconds, "measured" if rates else "guessed")


def work_an_epoch(config: RunConfig) -> float:
    """Samples × real parameters × points over 64²: what the time of an epoch grows with."""
    samples = config.train.samples or config.problem.samples["train"]
    with torch.device("meta"):  # counted, not allocated
        network = model_class(config.model)(config.architecture)
    return samples * count_parameters(network).reals * (config.resolution / 64) ** 2
