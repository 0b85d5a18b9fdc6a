"""The Navier-Stokes equations in three dimensions: Taylor-Green vortices that break up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from jaxtyping import Complex, Float
from torch import Generator, Tensor

from torchcno.constants import constants
from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.problem import Resolution
from torchcno.problems.random_fields import uniform
from torchcno.problems.steppers import advance_integrating_factor, take_snapshots
from torchcno.selection import option

PRODUCTS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))  # of components: u ⊗ u is symmetric


@dataclass(frozen=True)
class TaylorGreen(Evolution):
    """Taylor-Green vortices: u(0) ↦ u(T) of u_t + (u·∇)u + ∇p = νΔu, div u = 0, on the 3-torus.

        u(0) = Σ_{i=1}^3 a_i R^i V(x − s_i),   a_i ~ U(a), s_i ~ U(0, 1)³
        V = (sin X cos Y cos Z, −cos X sin Y cos Z, 0),   (X, Y, Z) = 2π(x, y, z)

    where R exchanges the axes in a circle. Three-dimensional, and not of the paper. One vortex
    alone is that of Taylor and Green (1937); three of them in random places break up into smaller
    ones. Solved with the modes of N³ points, free of aliasing (products on 3N/2 points per axis),
    in time by the rule of Runge and Kutta, with diffusion exactly:

        ∂_t û = −(I − kkᵀ/|k|²) (div(u ⊗ u))^ − ν |2πk|² û

    Out of distribution the vortices are stronger. States are (u, v, w), and networks see all three.
    """

    amplitude: tuple[float, float] = option((0.3, 0.7), "range of the vortices' strength (a)")
    nu: float = option(5e-3, "viscosity (ν)", least=0)
    T: float = option(1.0, "final time")
    N: int = option(32, "points per axis of the solver", least=4)
    dt: float = option(1e-2, "longest time step (Δt)", above=0)

    name: ClassVar = "taylor-green"
    layout: ClassVar = "periodic"
    boundary: ClassVar = "periodic"
    symmetries: ClassVar = ("odd-reflections", "translations")
    samples: ClassVar = {"train": 256, "val": 64, "test": 64, "ood": 64}
    ood: ClassVar = {"amplitude": (0.7, 0.9)}
    resolution: ClassVar = 16
    extent: ClassVar = ((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))
    state_channels: ClassVar = 3
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    @property
    def channels(self) -> tuple[int, int]:
        """The three components of the velocity."""
        return 3, 3

    def solver_grid(self, resolution: Resolution) -> Grid:
        """N³ points, whatever the resolution of the data."""
        return self.grid(self.N)

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random vortices: (n, [u, v, w], z, y, x)."""
        strength = uniform(self.amplitude, n, 3, generator=generator)
        place = uniform((0.0, 1.0), n, 3, 3, generator=generator)
        return sum_vortices(grid, strength, place)

    def trajectory(
        self, inputs: Tensor, times: Sequence[float]
    ) -> Float[Tensor, "batch time 3 n n n"]:
        """(u, v, w) at increasing `times`, from the divergence-free part of the initial velocity.

        On any number of points per axis.
        """
        velocity = self.checked(inputs)
        check_times(times)
        n_points = velocity.shape[-1]
        modes = box_modes(n_points, velocity.device)

        def tendency(u_hat: Tensor) -> Tensor:
            return modes.project(modes.minus_divergence(u_hat))

        def advance(now: Tensor, duration: float) -> Tensor:
            speed = float(modes.values(now, modes.M).abs().sum(1).max())
            return advance_integrating_factor(
                now, tendency, self.nu * modes.k_squared, modes.k_max * speed, duration, self.dt
            )

        return take_snapshots(
            modes.project(modes.coefficients(velocity)),
            times,
            advance,
            lambda now: modes.values(now, n_points),
        )

    def coarsened(self, share: float) -> "TaylorGreen":
        """Fewer points per axis, and longer steps."""
        points = max(4, 2 * round(share * self.N / 2))
        return replace(self, N=points, dt=self.dt * self.N / points)

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """The mean velocity, which stays, and the energy, which falls."""
        means = fields.mean((-3, -2, -1))
        energy = fields.square().sum(-4).mean((-3, -2, -1)) / 2
        return {**{f"mean {c}": means[..., i] for i, c in enumerate("uvw")}, "energy": energy}


def sum_vortices(
    grid: Grid, strength: Float[Tensor, "n 3"], place: Float[Tensor, "n 3 3"]
) -> Float[Tensor, "n 3 z y x"]:
    """Σ_i a_i R^i V(x − s_i): the i-th vortex lies in the plane of the axes i and i + 1."""
    z, y, x = (2 * math.pi * axis for axis in grid.mesh())
    flow = torch.zeros(len(strength), 3, *grid.shape, dtype=torch.float64)
    for i in range(3):
        shift = 2 * math.pi * place[:, i, :, None, None, None]
        phases = [coordinate - shift[:, axis] for axis, coordinate in enumerate((x, y, z))]
        first, second, third = (phases[(i + j) % 3] for j in range(3))
        wave = strength[:, i, None, None, None] * third.cos()
        flow[:, i] += wave * first.sin() * second.cos()
        flow[:, (i + 1) % 3] -= wave * first.cos() * second.sin()
    return flow


@dataclass(frozen=True)
class BoxModes:
    """The modes |k|∞ ≤ K that N³ points resolve strictly, and the operators between them.

    Coefficients are (…, k_z, k_y, k_x) on M ≥ 3N/2 points per axis, as of `rfftn`, zero beyond K.
    """

    k_max: float  # 2πK, the largest wavenumber along an axis
    M: int  # points per axis where products are formed
    k: Complex[Tensor, "3 m m kx"]  # 2πik: (k_x, k_y, k_z), zero beyond K
    k_squared: Float[Tensor, "m m kx"]  # |2πk|²; 1 at k = 0
    in_band: Float[Tensor, "m m kx"]  # 1 where |k|∞ ≤ K, else 0

    def coefficients(
        self, fields: Float[Tensor, "*batch n n n"]
    ) -> Complex[Tensor, "*batch m m kx"]:
        """Fourier coefficients of samples on n³ points, cut to |k|∞ ≤ K."""
        return self.in_band * _resize(self._transform(fields), self.M)

    def values(
        self, coefficients: Complex[Tensor, "*batch m m kx"], n_points: int
    ) -> Float[Tensor, "*batch n n n"]:
        """Samples on n_points > 2K points per axis."""
        if n_points != self.M:
            coefficients = _resize(coefficients, n_points)
        return torch.fft.irfftn(coefficients, s=(n_points,) * 3, dim=(-3, -2, -1), norm="forward")

    def project(
        self, u_hat: Complex[Tensor, "batch 3 m m kx"]
    ) -> Complex[Tensor, "batch 3 m m kx"]:
        """The divergence-free part: (I − kkᵀ/|k|²) û."""
        return u_hat + self.k * ((self.k * u_hat).sum(1, keepdim=True) / self.k_squared)

    def minus_divergence(
        self, u_hat: Complex[Tensor, "batch 3 m m kx"]
    ) -> Complex[Tensor, "batch 3 m m kx"]:
        """−(div(u ⊗ u))^, from products on M³ points."""
        u = self.values(u_hat, self.M)
        stress = torch.stack([u[:, i] * u[:, j] for i, j in PRODUCTS], dim=1)
        of = dict(zip(PRODUCTS, self._transform(stress).unbind(1), strict=True))
        rows = [sum(self.k[j] * of[min(i, j), max(i, j)] for j in range(3)) for i in range(3)]
        return -torch.stack([torch.as_tensor(row) for row in rows], dim=1)

    def _transform(self, fields: Float[Tensor, "*batch n n n"]) -> Complex[Tensor, "*batch n n kx"]:
        return torch.fft.rfftn(fields, dim=(-3, -2, -1), norm="forward")


def _resize(
    coefficients: Complex[Tensor, "*batch n n kn"], rows: int
) -> Complex[Tensor, "*batch m m km"]:
    """Coefficients in the layout of another number of points, as far as both have them."""
    have = coefficients.shape[-3]
    keep = (min(have, rows) - 1) // 2
    resized = coefficients.new_zeros(*coefficients.shape[:-3], rows, rows, rows // 2 + 1)
    for z in (slice(0, keep + 1), slice(-keep, None)):
        for y in (slice(0, keep + 1), slice(-keep, None)):
            resized[..., z, y, : keep + 1] = coefficients[..., z, y, : keep + 1]
    return resized


@lru_cache(maxsize=8)
@constants()
def box_modes(n_points: int, device: torch.device) -> BoxModes:
    """The modes that n_points³ samples resolve."""
    if n_points < 4:
        raise ValueError(f"{n_points} points per axis resolve no vortex; use 4 or more.")
    k_max, m = (n_points - 1) // 2, 3 * ((n_points + 1) // 2)
    around = torch.fft.fftfreq(m, 1 / m, dtype=torch.float64, device=device)
    along_x = torch.arange(m // 2 + 1, dtype=torch.float64, device=device)
    k_z, k_y, k_x = torch.meshgrid(around, around, along_x, indexing="ij")
    k = torch.stack([k_x, k_y, k_z])
    in_band = (k.abs().amax(0) <= k_max).double()
    k = 2 * math.pi * k * in_band
    k_squared = k.square().sum(0)
    k_squared[k_squared == 0] = 1.0
    return BoxModes(2 * math.pi * k_max, m, 1j * k, k_squared, in_band)
