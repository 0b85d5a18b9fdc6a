"""The wave equation: standing waves of many scales."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.problem import Problem
from torchcno.problems.random_fields import sine_series
from torchcno.problems.sine_space import multiply_modes
from torchcno.selection import option


@dataclass(frozen=True)
class Wave(Problem):
    """Wave equation: initial displacement f ↦ u(T) of u_tt = c² Δu at rest, u = 0 on the edge.

        f = π/K² Σ_{i,j=1}^K a_ij (i² + j²)^{−r} sin(πix) sin(πjy),   a_ij ~ U(−1, 1)

    on the unit square, section 3 and SM "Wave Equation". Solved exactly in the sine modes of the
    grid: û_ij(T) = f̂_ij cos(cπT √(i² + j²)).
    """

    K: int = option(24, "modes per axis")
    r: float = option(1.0, "decay of the amplitudes")
    c: float = option(0.1, "speed of propagation")
    T: float = option(5.0, "final time")

    name: ClassVar = "wave"
    layout: ClassVar = "inclusive"
    boundary: ClassVar = "odd"
    symmetries: ClassVar = ("square", "odd-square", "exchange")
    samples: ClassVar = {"train": 512, "val": 128, "test": 256, "ood": 256}
    ood: ClassVar = {"K": 32, "r": 0.85}
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial displacements f."""
        return sine_series(grid, n, self.K, (self.r, self.r), generator)

    def solve(self, inputs: Tensor) -> Tensor:
        """u(T) from f."""
        phase = self.c * math.pi * self.T
        return multiply_modes(self.checked(inputs), lambda k2: (phase * k2.sqrt()).cos())
