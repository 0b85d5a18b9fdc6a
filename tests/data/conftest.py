"""A problem that costs nothing and counts what it solves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution
from torchcno.problems.problem import Problem


@dataclass(frozen=True)
class Toy(Problem):
    """Amplification: v = a u of a sum u of K random waves.

    More of it, in a second paragraph.
    """

    K: int = 3
    a: float = 2.0
    dimension: int = 2

    name: ClassVar = "toy"
    layout: ClassVar = "periodic"
    boundary: ClassVar = "periodic"
    samples: ClassVar[Mapping[str, int]] = {"train": 10, "val": 5, "test": 5, "ood": 5}
    ood: ClassVar[Mapping[str, Any]] = {"K": 5}
    resolution: ClassVar = 16
    square: ClassVar = False
    input_label: ClassVar = "wave u"
    output_label: ClassVar = "amplified wave v"
    solved: ClassVar[list[int]] = []  # sizes of the batches so far

    @property
    def extent(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 1.0),) * self.dimension

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        ones = (1,) * self.dimension
        amplitudes = torch.rand(n, self.K, *ones, generator=generator, dtype=torch.float64)
        k = torch.arange(1, self.K + 1).reshape(-1, *ones)
        return (amplitudes * torch.sin(2 * torch.pi * k * sum(grid.mesh()))).sum(1, keepdim=True)

    def solve(self, inputs: Tensor) -> Tensor:
        self.solved.append(len(inputs))
        return self.a * inputs


@dataclass(frozen=True)
class Corrected(Toy):
    """The same problem by a later version of its recipe, which has the other sign."""

    version: ClassVar = 2

    def solve(self, inputs: Tensor) -> Tensor:
        return -super().solve(inputs)


@dataclass(frozen=True)
class Decay(Evolution, Toy):
    """Decay: u(0) ↦ u(T) of u_t = −a u."""

    T: float = 1.0

    name: ClassVar = "decay"

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Tensor:
        self.solved.append(len(inputs))
        return torch.stack([math.exp(-self.a * t) * inputs for t in times], dim=1)


@pytest.fixture
def decay() -> Decay:
    Toy.solved.clear()
    return Decay()


@pytest.fixture
def toy() -> Toy:
    Toy.solved.clear()
    return Toy()


@pytest.fixture
def corrected() -> Corrected:
    return Corrected()
