"""The wave equation: standing waves of many scales."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.random_fields import sine_series
from torchcno.problems.sine_space import multiply_modes
from torchcno.selection import option


@dataclass(frozen=True)
class Wave(Evolution):
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
    unseen: ClassVar = "the velocity u_t, which is zero only at time 0"

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial displacements f."""
        return sine_series(grid, n, self.K, (self.r, self.r), generator)

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Tensor:
        """u at increasing `times`, from f."""
        displacement = self.checked(inputs)
        check_times(times)
        return torch.stack([self._displace(displacement, time) for time in times], dim=1)

    def solve(self, inputs: Tensor) -> Tensor:
        """u(T) from f."""
        return self._displace(self.checked(inputs), self.T)

    def _displace(self, f: Tensor, time: float | Tensor) -> Tensor:
        phase = self.c * math.pi * time
        return multiply_modes(f, lambda k2: (phase * k2.sqrt()).cos())
