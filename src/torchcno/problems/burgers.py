"""Burgers' equation: waves that steepen to shocks, in one dimension."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.problem import Resolution
from torchcno.problems.random_fields import uniform
from torchcno.problems.steppers import advance_integrating_factor, take_snapshots
from torchcno.selection import option


@dataclass(frozen=True)
class Burgers(Evolution):
    """Burgers' equation: u(0) ↦ u(T) of u_t + (u²/2)_x = ν u_xx on the unit circle.

        u(0) = c + A Σ_{k=1}^K α_k k^{−r} sin(2πkx − β_k),   α ~ U(0, 1), β ~ U(0, 2π), c ~ U(−C, C)

    One-dimensional, and not of the paper. Solved with the modes of N points, free of aliasing
    (products on 3N/2 points), in time by the rule of Runge and Kutta, with diffusion exactly.
    Waves steepen to shocks by the time 1/(2πA), about 0.3, whose width is about 4ν over their
    height. N resolves them; the data are band-limited to the resolution.

    Out of distribution the initial data have more modes, and decay more slowly.
    """

    K: int = option(5, "modes of the initial data", least=1)
    r: float = option(1.0, "decay of their amplitudes")
    amplitude: float = option(0.5, "size of the initial data (A)")
    mean: float = option(0.25, "largest mean velocity (C)")
    nu: float = option(1e-3, "viscosity (ν)", above=0)
    T: float = option(1.0, "final time")
    N: int = option(512, "points of the solver", least=3)
    dt: float = option(1e-3, "longest time step (Δt)", above=0)

    name: ClassVar = "burgers"
    layout: ClassVar = "periodic"
    boundary: ClassVar = "periodic"
    symmetries: ClassVar = ("odd-reflections", "translations")
    samples: ClassVar = {"train": 512, "val": 128, "test": 128, "ood": 128}
    ood: ClassVar = {"K": 8, "r": 0.8}
    resolution: ClassVar = 256
    extent: ClassVar = ((0.0, 1.0),)
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    def solver_grid(self, resolution: Resolution) -> Grid:
        """N points, whatever the resolution of the data."""
        return self.grid(self.N)

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random smooth initial data."""
        if grid.shape[0] <= 2 * self.K:
            raise ValueError(
                f"{grid.shape[0]} points do not resolve K = {self.K} modes; use at least "
                f"{2 * self.K + 1}, or a smaller K."
            )
        alpha = uniform((0.0, 1.0), n, self.K, 1, generator=generator)
        beta = uniform((0.0, 2 * math.pi), n, self.K, 1, generator=generator)
        mean = uniform((-self.mean, self.mean), n, 1, 1, generator=generator)
        k = torch.arange(1, self.K + 1, dtype=torch.float64)[:, None]
        waves = alpha * k**-self.r * torch.sin(2 * math.pi * k * grid.axis(0) - beta)
        return mean + self.amplitude * waves.sum(1, keepdim=True)

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Float[Tensor, "batch time 1 n"]:
        """u at increasing `times`, from the initial data, on any number of points."""
        u = self.checked(inputs)
        check_times(times)
        n_points = u.shape[-1]
        k_max, m = (n_points - 1) // 2, 3 * ((n_points + 1) // 2)
        k = 2 * math.pi * torch.arange(k_max + 1, dtype=torch.float64, device=u.device)

        def tendency(u_hat: Tensor) -> Tensor:
            """−(u²/2)_x, from u on 3N/2 points."""
            u = torch.fft.irfft(u_hat, n=m, norm="forward")
            return -0.5j * k * torch.fft.rfft(u.square(), norm="forward")[..., : k_max + 1]

        def advance(now: Tensor, duration: float) -> Tensor:
            return advance_integrating_factor(
                now, tendency, self.nu * k.square(), fastest, duration, self.dt
            )

        fastest = float(k[-1] * u.abs().max())  # which never grows: the maximum principle
        return take_snapshots(
            torch.fft.rfft(u, norm="forward")[..., : k_max + 1],
            times,
            advance,
            lambda now: torch.fft.irfft(now, n=n_points, norm="forward"),
        )

    def coarsened(self, share: float) -> "Burgers":
        """Fewer points, and longer steps."""
        points = max(2 * self.K + 2, 2 * round(share * self.N / 2))
        return replace(self, N=points, dt=self.dt * self.N / points)

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """The mean velocity, which stays, and the energy, which falls."""
        energy = fields.square().mean((-2, -1)) / 2
        return {"mean u": fields.mean((-2, -1)), "energy": energy}
