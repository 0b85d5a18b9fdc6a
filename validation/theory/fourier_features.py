"""Do the Fourier features of Theorem 3.1 help a trained CNO? Two problems, 32² points, three seeds.

    python -m validation.theory.fourier_features [--only vorticity] [--out results/theory]

The theorem needs them where the equation knows places by more than its input. Poisson's equation
does, by its edge, but zero padding tells a network where that is. The vorticity equation does, by a
force that stays in its place, and a periodic network cannot know where. Zeros beyond the edge tell
it, too, at the price of an edge that the torus has not. Writes `fourier_features.json` as runs end.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from validation.theory.small_runs import NETWORK, SmallRun

from torchcno.disk import write_json
from torchcno.problems import Poisson, Vorticity
from torchcno.problems.problem import Problem

SEEDS = (0, 1, 2)
SHORT, LONG = (128, 240), (512, 2000)  # samples, steps
FORCED = Vorticity(N=32, k_max=15, dt=0.02)  # on as many points as the network has


def cases(
    problem: Problem, boundary: str, features: Iterable[int], size: tuple[int, int]
) -> list[SmallRun]:
    """A run for every number of features and every seed."""
    samples, steps = size
    network = replace(NETWORK, layout=problem.layout, boundary=boundary)
    return [
        SmallRun(
            problem, samples, steps, network=replace(network, fourier_features=k), batch=16, seed=s
        )
        for s, k in product(SEEDS, features)
    ]


RUNS = [
    *cases(Poisson(), "zero", (0, 1, 2), SHORT),
    *cases(FORCED, "periodic", (0, 1, 2), SHORT),
    *cases(FORCED, "zero", (0, 1), SHORT),
    *cases(FORCED, "periodic", (1,), LONG),
    *cases(FORCED, "zero", (0,), LONG),
]


def describe(run: SmallRun) -> dict[str, Any]:
    return {
        "problem": run.problem.name,
        "samples": run.samples,
        "steps": run.steps,
        "boundary": run.network.boundary,
        "features": run.network.fourier_features,
        "seed": run.seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run those of this problem (default: all)")
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    rows = []
    for run in RUNS:
        if options.only in ("", run.problem.name):
            rows.append({**describe(run), "percent": run.error()})
            print(rows[-1], flush=True)
            write_json({"runs": rows}, options.out / "fourier_features.json")


if __name__ == "__main__":
    main()
