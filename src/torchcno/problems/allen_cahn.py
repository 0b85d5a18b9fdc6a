"""The Allen-Cahn equation: fronts between two phases."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Generator, Tensor
from torch.nn.functional import pad

from torchcno.grids import Grid
from torchcno.problems.problem import Problem
from torchcno.problems.random_fields import sine_series


@dataclass(frozen=True)
class AllenCahn(Problem):
    """Allen-Cahn equation: f ↦ u(T) of u_t = Δu − ε² u (u² − 1) with u = 0 on the edge.

        f = A/K² Σ_{i,j=1}^K a_ij (i² + j²)^{−r} sin(πix) sin(πjy),   a_ij ~ U(−1, 1)

    on the unit square, section 3 and SM "Allen-Cahn Equation". Solved by the explicit scheme

        U^{n+1} = U^n + Δt/Δx² (Σ_neighbours U^n − 4 U^n) − Δt ε² U^n ((U^n)² − 1)

    where the points on the edge are the scheme's zero-valued cells. A front is 1/ε wide, less than
    Δx at 64²: there the data are those of the scheme, as in the paper, and resolved ones are finer.
    """

    K: int = 24  # modes an axis
    r: tuple[float, float] = (1.0, 1.0)  # range of the decay, one draw a sample
    amplitude: float = math.pi  # A, as printed; 1/π fits the published FFNN (docs/training.md)
    epsilon: float = 220.0  # ε
    T: float = 2e-4  # final time
    steps: int = 366  # N: Δt ≈ 5.47e-7

    name: ClassVar = "allen-cahn"
    layout: ClassVar = "inclusive"
    boundary: ClassVar = "odd"
    samples: ClassVar[Mapping[str, int]] = {"train": 256, "val": 128, "test": 128, "ood": 128}
    ood: ClassVar[Mapping[str, Any]] = {"K": 16, "r": (0.85, 1.15)}
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial data f."""
        return sine_series(grid, n, self.K, self.r, generator, self.amplitude)

    def solve(self, inputs: Tensor) -> Tensor:
        """u(T) from f."""
        u = self.checked(inputs)[..., 1:-1, 1:-1]
        dt, dx = self.T / self.steps, 1 / (inputs.shape[-1] - 1)
        # Explicit Euler decays in every mode of −Δ_h (at most 8/Δx²) and about u = ±1 (rate 2ε²).
        stiffness = 8 / dx**2 + 2 * self.epsilon**2
        if dt * stiffness > 2:
            raise ValueError(
                f"{self.steps} explicit steps to T = {self.T} are unstable on {inputs.shape[-1]} "
                f"points an axis; use steps={int(self.T * stiffness / 2) + 1} or more."
            )
        diffusion, reaction = dt / dx**2, dt * self.epsilon**2
        for _ in range(self.steps):
            padded = pad(u, (1, 1, 1, 1))
            neighbours = (
                (padded[..., 2:, 1:-1] + padded[..., :-2, 1:-1])
                .add_(padded[..., 1:-1, 2:])
                .add_(padded[..., 1:-1, :-2])
            )
            growth = (1 + reaction - 4 * diffusion) - reaction * u.square()
            u = growth.mul_(u).add_(neighbours, alpha=diffusion)
        return pad(u, (1, 1, 1, 1))
