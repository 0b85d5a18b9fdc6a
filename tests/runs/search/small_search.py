"""A search of three small trials, as a test does it or, killed or in company, a process."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from torchcno.problems.poisson import Poisson
from torchcno.runs import jobs
from torchcno.runs.config import RunConfig
from torchcno.runs.search.driver import Means, run_search
from torchcno.runs.search.space import Space
from torchcno.runs.search.study import Search
from torchcno.training import Hardware

RANGES = {"model.layers": (1, 2), "model.width": (2, 3, 4), "train.learning_rate": (1e-2, 1e-3)}
TRIALS = 3


def search(data: Path, **training: object) -> Search:
    """Twelve epochs of some milliseconds a trial."""
    base = RunConfig.resolve(
        Poisson(K=4), "fno", resolution=24, data=data, hardware=Hardware(accelerator="cpu")
    )
    recipe = {"epochs": 12, "samples": 8, "batch_size": 4, "evaluate_every": 6} | training
    base = replace(
        base,
        architecture=replace(base.architecture, modes=4, hidden_width=4),
        train=replace(base.train, checkpoint_every=0, **recipe),
    )
    fixed = ("model.modes", "model.pad", "train.weight_decay")
    return Search(Space.of(base, RANGES, fixed))


def main(data: str, out: str, trials: str, storage: str | None = None) -> None:
    """Do it, with jobs in this process."""
    torch.set_num_threads(1)
    jobs.run_in_process = lambda request, environment: jobs.run_request(request)
    run_search(search(Path(data)), out, int(trials), Means(storage=storage))


if __name__ == "__main__":
    main(*sys.argv[1:])
