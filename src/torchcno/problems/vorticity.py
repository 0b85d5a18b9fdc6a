"""The Navier-Stokes equations at low Reynolds number: the supplement's counter-example."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Complex
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.problem import Resolution
from torchcno.problems.random_fields import periodic_matern
from torchcno.problems.steppers import advance_crank_nicolson_heun, take_snapshots
from torchcno.problems.torus_flow import TorusFlow, torus_flow
from torchcno.selection import option


@dataclass(frozen=True)
class Vorticity(Evolution):
    """Vorticity equation: ω(0) ↦ ω(T) of ω_t + u·∇ω = νΔω + f on the torus, too smooth to be hard.

        f = 0.1 (sin 2π(x + y) + cos 2π(x + y)),   ω(0) ~ N(0, s (−Δ + τ²)^{−α})

    SM "On the Choice of the RPB benchmarks", which has the data of the Fourier Neural Operator. The
    text prints s = 7^{3/2}. The public generator of those data multiplies √2 · 7^{3/2} and the root
    of the spectrum onto the real and the imaginary part of every mode and takes the real part of
    the field: s = 2 · 7³. (Its newer versions have s = 7³.) The initial vorticity has zero mean, as
    a curl on the torus must. Solved with the modes of N² points, free of aliasing, in time by Crank
    and Nicolson's rule for diffusion and Heun's for the rest.

    The supplement states neither sizes nor an out-of-distribution set: the sizes are those of
    navier-stokes, and out of distribution the initial data are rougher, by the same rule with
    τ = 10.
    """

    scale: float = option(2.0 * 7**3, "size of the initial vorticity (s)")
    tau: float = option(7.0, "inverse length of its covariance (τ)")
    alpha: float = option(2.5, "its smoothness (α)")
    k_max: int = option(31, "highest mode of the initial vorticity, |k|∞ ≤ k_max")
    nu: float = option(1e-3, "viscosity (ν)")
    forcing: float = option(0.1, "amplitude of the force (f)")
    T: float = option(30.0, "final time")
    dt: float = option(1e-2, "time step (Δt)")
    N: int = option(64, "points per axis of the solver")

    name: ClassVar = "vorticity"
    version: ClassVar = 2
    layout: ClassVar = "periodic"
    boundary: ClassVar = "periodic"
    homogeneous: ClassVar = False  # the force has its crests in fixed places
    samples: ClassVar = {"train": 750, "val": 128, "test": 128, "ood": 128}
    ood: ClassVar = {"tau": 10.0, "scale": 2.0 * 10**3}
    input_label: ClassVar = "ω(0)"
    output_label: ClassVar = "ω(T)"

    def solver_grid(self, resolution: Resolution) -> Grid:
        """N² points, whatever the resolution of the data."""
        return self.grid(self.N)

    def coarsened(self, share: float) -> "Vorticity":
        """Longer steps; N points hold the initial vorticity, and fewer do not."""
        return replace(self, dt=self.dt / share)

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial vorticities."""
        if min(grid.shape) <= 2 * self.k_max:
            raise ValueError(
                f"a grid of {grid.shape} points does not resolve {self.k_max} wavenumbers; "
                f"use at least {2 * self.k_max + 1} points an axis, or a smaller k_max."
            )
        law = periodic_matern(self.scale, self.tau, self.alpha, self.k_max)
        return law.sample(grid, n, generator)

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Tensor:
        """ω at increasing `times`, from ω(0), whose mean is taken off."""
        omega = self.checked(inputs)[:, 0]
        check_times(times)
        n_points = omega.shape[-1]
        flow = torus_flow(n_points, omega.device)
        omega_hat = flow.coefficients(omega)
        omega_hat[:, 0, 0] = 0.0
        forcing = self._forcing(flow)
        at_rest = omega_hat.new_zeros(len(omega), 2)

        def tendency(omega_hat: Tensor) -> Tensor:
            velocity = flow.velocity(omega_hat, at_rest, flow.M)
            return flow.self_advection(velocity) + forcing

        def advance(now: Tensor, duration: float) -> Tensor:
            return advance_crank_nicolson_heun(
                now, tendency, self.nu, flow.k_squared, duration, self.dt
            )

        return take_snapshots(
            omega_hat, times, advance, lambda now: flow.values(now, n_points)[:, None]
        )

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """The mean vorticity, which stays zero."""
        return {"mean ω": fields.mean((-3, -2, -1))}

    def _forcing(self, flow: TorusFlow) -> Complex[Tensor, "M kx"]:
        """f's coefficient of e^{2πi(x + y)}: (cos φ + sin φ)^ = (1 − i)/2 at k = (1, 1)."""
        f_hat = torch.zeros_like(flow.k_squared)
        f_hat[1, 1] = torch.complex(torch.tensor(0.5), torch.tensor(-0.5))
        return self.forcing * f_hat
