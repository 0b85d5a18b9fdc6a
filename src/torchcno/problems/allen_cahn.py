"""The Allen-Cahn equation: fronts between two phases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Generator, Tensor
from torch.nn.functional import pad

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.random_fields import sine_series
from torchcno.problems.steppers import take_snapshots
from torchcno.selection import option


@dataclass(frozen=True)
class AllenCahn(Evolution):
    """Allen-Cahn equation: f ↦ u(T) of u_t = Δu − ε² u (u² − 1) on the unit torus.

        f = A/(K + 1)² Σ_{i,j=1}^K a_ij (i² + j²)^{−r} sin(πix) sin(πjy),   a_ij ~ U(−1, 1)

    section 3 and SM "Allen-Cahn Equation". Solved by the explicit scheme

        U^{n+1} = U^n + Δt/Δx² (Σ_neighbours U^n − 4 U^n) − Δt ε² U^n ((U^n)² − 1)

    A front is 1/ε wide, less than Δx at 64², but fronts have only begun to form at T: the data at
    64² are 0.3 % off those of four times as many points per axis.

    Where the text and samples of the published data differ, this is as the samples: coefficients
    are bounded by 1/(π(K + 1)²), a tenth of the printed π/K²; T = 373 Δt is 2.04e-4, printed as
    2e-4; and both ends of an axis are one point, so that the scheme is periodic over 63 × 63 points
    and the last row and column copy the first. f vanishes there, u(T) does not.
    """

    K: int = option(24, "modes per axis")
    r: tuple[float, float] = option((1.0, 1.0), "range of the decay, one draw per sample")
    amplitude: float = option(1 / math.pi, "size of the initial data (A)")
    epsilon: float = option(220.0, "strength of the reaction (ε)")
    dt: float = option(5.47e-7, "time step (Δt)")
    steps: int = option(373, "time steps (N); the final time is T = N Δt")

    name: ClassVar = "allen-cahn"
    version: ClassVar = 2
    layout: ClassVar = "inclusive"
    boundary: ClassVar = "periodic"
    symmetries: ClassVar = ("square", "odd-square", "exchange")
    samples: ClassVar = {"train": 256, "val": 128, "test": 128, "ood": 128}
    ood: ClassVar = {"K": 16, "r": (0.85, 1.15)}
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    def coarsened(self, share: float) -> "AllenCahn":
        """Fewer and longer steps to the same time."""
        steps = max(1, round(share * self.steps))
        return replace(self, steps=steps, dt=self.dt * self.steps / steps)

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial data f."""
        bound = self.amplitude / (self.K + 1) ** 2
        return sine_series(grid, n, self.K, self.r, generator, bound)

    @property
    def T(self) -> float:  # noqa: N802
        """The time of the outputs, N Δt."""
        return self.steps * self.dt

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Tensor:
        """u at increasing `times`, from f, whose last row and column play no part."""
        u = self.checked(inputs)[..., :-1, :-1]
        check_times(times)
        return take_snapshots(
            u, times, self._advance, lambda now: pad(now, (0, 1, 0, 1), mode="circular")
        )

    def _advance(self, u: Tensor, duration: float) -> Tensor:
        """u after `duration`, in steps of Δt; of a little less where they would not end there.

        Beyond 466 points per axis a step is divided, so that the scheme stays monotone.
        """
        steps = math.ceil(duration / self.dt * (1 - 1e-9))
        step = self.dt if math.isclose(steps * self.dt, duration) else duration / steps
        dx = 1 / u.shape[-1]
        # −Δ_h has eigenvalues up to 8/Δx², and about u = ±1 the reaction decays at the rate 2ε²:
        # no mode may change its sign in a step.
        divisor = math.ceil(step * (8 / dx**2 + 2 * self.epsilon**2))
        dt = step / divisor
        diffusion, reaction = dt / dx**2, dt * self.epsilon**2
        for _ in range(steps * divisor):
            padded = pad(u, (1, 1, 1, 1), mode="circular")
            neighbours = (
                (padded[..., 2:, 1:-1] + padded[..., :-2, 1:-1])
                .add_(padded[..., 1:-1, 2:])
                .add_(padded[..., 1:-1, :-2])
            )
            growth = (1 + reaction - 4 * diffusion) - reaction * u.square()
            u = growth.mul_(u).add_(neighbours, alpha=diffusion)
        return u

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """The energy ∫ |∇_h u|²/2 + ε²/4 (u² − 1)², which falls: the scheme is its descent."""
        u = fields[..., 0, :-1, :-1]
        steps = [(u.roll(-1, axis) - u).square() for axis in (-2, -1)]
        gradient = (steps[0] + steps[1]) * u.shape[-1] ** 2
        density = gradient / 2 + self.epsilon**2 / 4 * (u.square() - 1).square()
        return {"energy": density.mean((-2, -1))}
