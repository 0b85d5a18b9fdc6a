"""A problem that costs nothing, importable by the processes that tests start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.problem import Problem


@dataclass(frozen=True)
class Toy(Problem):
    """Amplification: v = a u of a sum of K random waves u.

    Nothing that a stranger must read.
    """

    K: int = 3
    a: float = 2.0

    name = "toy"
    layout = "periodic"
    boundary = "periodic"
    samples: ClassVar[Mapping[str, int]] = {"train": 10, "val": 5, "test": 5, "ood": 5}
    ood: ClassVar[Mapping[str, Any]] = {"K": 5}
    resolution = 16
    input_label = "wave u"
    output_label = "amplified wave v"

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        amplitudes = torch.rand(n, self.K, 1, 1, generator=generator, dtype=torch.float64)
        y, x = grid.mesh()
        k = torch.arange(1, self.K + 1)[:, None, None]
        return (amplitudes * torch.sin(2 * torch.pi * k * (x + y))).sum(1, keepdim=True)

    def solve(self, inputs: Tensor) -> Tensor:
        return self.a * inputs
