"""The Poisson equation with a source of many scales."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor
from torch.nn.functional import pad

from torchcno.grids import Grid
from torchcno.problems.krylov import gradient_iterates, take
from torchcno.problems.problem import Problem
from torchcno.problems.random_fields import sine_series
from torchcno.problems.sine_space import multiply_modes
from torchcno.selection import option


@dataclass(frozen=True)
class Poisson(Problem):
    """Poisson equation: source f ↦ solution u of −Δu = f with u = 0 on the edge.

        f = π/K² Σ_{i,j=1}^K a_ij (i² + j²)^{−r} sin(πix) sin(πjy),   a_ij ~ U(−1, 1)

    on the unit square, section 3 and SM "Poisson Equation". Solved exactly in the sine modes of the
    grid: û_ij = f̂_ij / (π² (i² + j²)).
    """

    K: int = option(16, "modes per axis")
    r: float = option(-0.5, "decay of the amplitudes; negative: they grow")

    name: ClassVar = "poisson"
    layout: ClassVar = "inclusive"
    boundary: ClassVar = "odd"
    symmetries: ClassVar = ("square", "odd-square", "exchange")
    samples: ClassVar = {"train": 1024, "val": 128, "test": 256, "ood": 256}
    ood: ClassVar = {"K": 20}
    has_residual: ClassVar = True
    input_label: ClassVar = "source f"
    output_label: ClassVar = "solution u"

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random sources f."""
        return sine_series(grid, n, self.K, (self.r, self.r), generator)

    def solve(self, inputs: Tensor) -> Tensor:
        """u from f."""
        return multiply_modes(self.checked(inputs), lambda k2: 1 / (math.pi**2 * k2))

    def imbalance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """f + Δu in the sine modes of the grid: on its inner points, zero on the edge."""
        return _on_inner_points(inputs - _minus_laplacian(outputs))

    def correct(self, inputs: Tensor, outputs: Tensor, iterations: int) -> Tensor:
        """Conjugate gradients on the inner points; values on the edge become zero.

        Without a preconditioner: the one that is at hand, the inverse in sine modes, solves.
        """
        f, u = self.checked(inputs), self.checked(outputs)
        if iterations == 0:
            return u

        def apply(v: Tensor) -> Tensor:
            return _minus_laplacian(pad(v, (1, 1, 1, 1)))[..., 1:-1, 1:-1]

        iterates = gradient_iterates(apply, _inner(f), lambda r: r, 1e-13, _inner(u))
        return pad(take(iterates, iterations, _inner(u)), (1, 1, 1, 1))


def _minus_laplacian(u: Tensor) -> Tensor:
    return multiply_modes(u, lambda k2: math.pi**2 * k2)


def _inner(u: Tensor) -> Tensor:
    return u[..., 1:-1, 1:-1]


def _on_inner_points(u: Tensor) -> Tensor:
    return pad(_inner(u), (1, 1, 1, 1))
