"""The physics-informed loss with few samples: data alone, the equation alone, both.

    python validation/theory/physics.py [--steps 300] [--out results/theory]

A small CNO on 32² points of poisson and darcy, as many steps in every run. "Equation" needs inputs
and no outputs: so there is a row with many of them. Errors are medians over test samples of the
relative L1 error of physical fields. Writes `physics.json` as runs end.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Generator

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.disk import write_json
from torchcno.metrics import relative_l1
from torchcno.models.cno import CNO, CNOConfig
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import Problem
from torchcno.runs.physics import ScaledEquation
from torchcno.training import Pairs, Recipe, fit

POINTS, BATCH = 32, 8
NETWORK = CNOConfig(
    size=(POINTS, POINTS), levels=3, width=16, lift_width=32, neck_blocks=1, skip_blocks=1,
    layout="inclusive",
)  # fmt: skip
# Data are solved on the grid of the network, so that the equation and the data agree.
PROBLEM: dict[str, tuple[Problem, str]] = {
    "poisson": (PROBLEMS["poisson"](), "symmetric"),
    "darcy": (PROBLEMS["darcy"](refinement=1), "standard"),
}
# By name: the share of the equation, and the order of the dual norm of its residual.
LOSSES = {
    "data": (0.0, 1.0),
    "equation": (1.0, 1.0),
    "equation, in L²": (1.0, 0.0),
    "both": (0.5, 1.0),
}
FEW, MANY = (8, 32), 256


def make(problem: Problem, first: int, count: int) -> Fields:
    generators = [Generator().manual_seed(i) for i in range(first, first + count)]
    return Fields(*problem.pairs(generators, POINTS), problem.grid(POINTS))


def run(name: str, samples: int, loss: str, steps: int) -> dict:
    problem, scale = PROBLEM[name]
    share, order = LOSSES[loss]
    train, val, test = (make(problem, *s) for s in ((0, samples), (1000, 16), (2000, 64)))
    scaling = Normalization.fit(train, scale)

    def pairs(fields: Fields) -> Pairs:
        u, v = scaling.normalize_inputs(fields.inputs), scaling.normalize_outputs(fields.outputs)
        return Pairs(u.float(), v.float())

    torch.manual_seed(0)
    network, epochs = CNO(NETWORK), steps * BATCH // samples
    recipe = Recipe(
        epochs=epochs, batch_size=BATCH, learning_rate=2e-3, schedule="cosine", warmup=0.02,
        patience=None, evaluate_every=max(1, epochs // 10), physics=share,
    )  # fmt: skip
    equation = ScaledEquation(problem, scaling, order)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        fit(
            network,
            replace(pairs(train), equation=equation),
            pairs(val),
            recipe,
            Path(folder) / "r",
        )
    with torch.no_grad():
        prediction = scaling.denormalize_outputs(network(pairs(test).inputs).double())
    error = 100 * float(relative_l1(prediction, test.outputs).median())
    seconds = time.process_time() - began
    row = {"problem": name, "samples": samples, "loss": loss, "percent": error, "seconds": seconds}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    cases = [(name, n, loss) for name in PROBLEM for n in FEW for loss in LOSSES]
    cases += [(name, MANY, "equation") for name in PROBLEM]
    report: dict = {"steps": options.steps, "points": POINTS, "runs": []}
    for case in cases:
        report["runs"].append(run(*case, options.steps))
        write_json(report, options.out / "physics.json")


if __name__ == "__main__":
    main()
