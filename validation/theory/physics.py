"""The physics-informed loss with few samples: data alone, the equation alone, both.

    python -m validation.theory.physics [--steps 300] [--out results/theory]

A small CNO on 32² points of poisson and darcy, as many steps in every run. "Equation" needs inputs
and no outputs: so there is a row with many of them. Writes `physics.json` as runs end.
"""

import argparse
from pathlib import Path

from validation.theory.small_runs import POINTS, SmallRun

from torchcno.disk import write_json
from torchcno.problems.darcy import Darcy
from torchcno.problems.poisson import Poisson
from torchcno.problems.problem import Problem

# Data are solved on the grid of the network, so that the equation and the data agree.
CASES: dict[str, tuple[Problem, str]] = {
    "poisson": (Poisson(), "symmetric"),
    "darcy": (Darcy(refinement=1), "standard"),
}
# By name: the share of the equation, and the order of the dual norm of its residual.
LOSSES = {
    "data": (0.0, 1.0),
    "equation": (1.0, 1.0),
    "equation, in L²": (1.0, 0.0),
    "both": (0.5, 1.0),
}
FEW, MANY = (8, 32), 256


def run(name: str, samples: int, loss: str, steps: int) -> dict:
    problem, scaling = CASES[name]
    share, order = LOSSES[loss]
    one = SmallRun(problem, samples, steps, scaling, physics=share, order=order)
    row = {"problem": name, "samples": samples, "loss": loss, "percent": one.error()}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    cases = [(name, n, loss) for name in CASES for n in FEW for loss in LOSSES]
    cases += [(name, MANY, "equation") for name in CASES]
    report: dict = {"steps": options.steps, "points": POINTS, "runs": []}
    for case in cases:
        report["runs"].append(run(*case, options.steps))
        write_json(report, options.out / "physics.json")


if __name__ == "__main__":
    main()
