"""Short trainings of a small CNO on 32² points, by which losses and networks are compared."""

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.metrics import relative_l1
from torchcno.models.cno import CNO, CNOConfig
from torchcno.problems.problem import Problem
from torchcno.runs.physics import ScaledEquation
from torchcno.training import Pairs, Recipe, fit

POINTS = 32
NETWORK = CNOConfig(
    size=(POINTS, POINTS), levels=3, width=16, lift_width=32, neck_blocks=1, skip_blocks=1,
    layout="inclusive",
)  # fmt: skip


@cache
def make(problem: Problem, first: int, count: int) -> Fields:
    generators = [Generator().manual_seed(i) for i in range(first, first + count)]
    return Fields(*problem.pairs(generators, POINTS), problem.grid(POINTS))


@dataclass(frozen=True)
class SmallRun:
    """One training, with as many steps whatever the number of samples."""

    problem: Problem
    samples: int
    steps: int
    normalization: str = "symmetric"
    network: CNOConfig = NETWORK
    batch: int = 8
    physics: float = 0.0
    order: float = 1.0  # of the dual norm of the residual
    seed: int = 0

    def error(self) -> float:
        """The median over test samples of the relative L1 error of physical fields, in percent."""
        sets = ((0, self.samples), (1000, 16), (2000, 64))
        train, val, test = (make(self.problem, *s) for s in sets)
        scaling = Normalization.fit(train, self.normalization)

        def pairs(fields: Fields, **more: Any) -> Pairs:
            u = scaling.normalize_inputs(fields.inputs)
            v = scaling.normalize_outputs(fields.outputs)
            return replace(Pairs(u.float(), v.float()), **more)

        epochs = self.steps * self.batch // self.samples
        recipe = Recipe(
            epochs=epochs, batch_size=self.batch, learning_rate=2e-3, schedule="cosine",
            warmup=0.02, patience=None, evaluate_every=max(1, epochs // 10), physics=self.physics,
        )  # fmt: skip
        torch.manual_seed(self.seed)
        network = CNO(self.network)
        equation = ScaledEquation(self.problem, scaling, self.order)
        with tempfile.TemporaryDirectory() as folder:
            fit(
                network,
                pairs(train, equation=equation),
                pairs(val),
                recipe,
                Path(folder) / "run",
                seed=self.seed,
            )
        with torch.no_grad():
            prediction = scaling.denormalize_outputs(network(pairs(test).inputs).double())
        return 100 * float(relative_l1(prediction, test.outputs).median())
