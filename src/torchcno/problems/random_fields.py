"""Random functions by their coefficients: the same draw is the same function on every grid."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.constants import constants
from torchcno.grids import Grid


def uniform(bounds: tuple[float, float], *shape: int, generator: Generator) -> Tensor:
    """Independent draws from U(low, high) of the given shape, in float64."""
    low, high = bounds
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def sine_series(
    grid: Grid,
    n: int,
    K: int,
    r: tuple[float, float],
    generator: Generator,
    bound: float | None = None,
) -> Float[Tensor, "n 1 y x"]:
    """Random sine series of K modes per axis, Eq. (posf) of section 3, where b = π/K².

        f(x, y) = Σ_{i,j=1}^K a_ij (i² + j²)^{−r} sin(πix) sin(πjy),   a_ij ~ U(−b, b)

    with r ~ U(r[0], r[1]), one draw per function, and b the `bound` where it is given.
    """
    if K < 1:
        raise ValueError(f"K = {K} modes make no function; use K ≥ 1.")
    if min(grid.shape) < K + 2:
        raise ValueError(
            f"a grid of {grid.shape} points does not resolve K = {K} sine modes; "
            f"use a resolution of at least {K + 2}, or a smaller K."
        )
    a = uniform((-1.0, 1.0), n, K, K, generator=generator)
    decay = uniform(r, n, 1, 1, generator=generator)
    k = torch.arange(1, K + 1, dtype=torch.float64)
    bound = math.pi / K**2 if bound is None else bound
    amplitudes = bound * a * (k[:, None] ** 2 + k**2) ** -decay
    sines_y, sines_x = (torch.sin(math.pi * grid.axis(i)[:, None] * k) for i in (0, 1))
    return (sines_y @ amplitudes @ sines_x.T)[:, None]


@dataclass(frozen=True)
class TrigonometricField:
    """Centred Gaussian field Σ_kl √λ_kl ξ_kl φ_k(y) φ_l(x), ξ ~ N(0, 1), on a torus of some period.

    The φ are 1, √2 cos(2πkx/P), √2 sin(2πkx/P), k = 1 … k_max; see `trigonometric_basis`.
    """

    spectrum: Float[Tensor, "k l"]  # the variances λ of the coefficients
    period: float = 1.0  # P, the length of the torus

    def sample(self, grid: Grid, n: int, generator: Generator) -> Float[Tensor, "n 1 y x"]:
        """`n` fields on `grid`."""
        k_max = (len(self.spectrum) - 1) // 2
        xi = torch.randn(n, *self.spectrum.shape, generator=generator, dtype=torch.float64)
        along_y, along_x = (trigonometric_basis(grid, i, self.period, k_max) for i in (0, 1))
        return (along_y @ (self.spectrum.sqrt() * xi) @ along_x.T)[:, None]


def squared_exponential(variance: float, length: float) -> TrigonometricField:
    """Centred Gaussian field on the unit square with covariance σ² exp(−|x − y|²/l²).

    The covariance is made periodic with P = 1 + 6l, so that its images are below e^{−36} of it:

        λ_kl = σ² c_k c_l,   c_k = √π l/P exp(−(πkl/P)²),   until c_k/c_0 < e^{−36}

    which is exact to rounding on any grid.
    """
    period = 1 + 6 * length
    relative_length = math.pi * length / period
    k = _wavenumbers(math.ceil(6 / relative_length))
    c = relative_length / math.sqrt(math.pi) * torch.exp(-((k * relative_length) ** 2))
    return TrigonometricField(variance * c[:, None] * c, period)


def periodic_matern(scale: float, tau: float, alpha: float, k_max: int) -> TrigonometricField:
    """Centred Gaussian field N(0, s (−Δ + τ²)^{−α}) on the unit torus, of zero mean over it:

    λ_kl = s (4π²(k² + l²) + τ²)^{−α},   |k|, |l| ≤ k_max,   λ_00 = 0
    """
    angular_squared = (2 * math.pi * _wavenumbers(k_max)) ** 2
    laplacian = angular_squared[:, None] + angular_squared
    return TrigonometricField(scale * (laplacian + tau**2) ** -alpha * (laplacian > 0))


@lru_cache(maxsize=64)
@constants()
def trigonometric_basis(
    grid: Grid, axis: int, period: float, k_max: int
) -> Float[Tensor, "point function"]:
    """1, √2 cos(2πkx/P), √2 sin(2πkx/P), k = 1 … k_max, at the points of an axis of `grid`."""
    x = grid.axis(axis)
    phase = 2 * math.pi / period * x[:, None] * torch.arange(1, k_max + 1, dtype=torch.float64)
    root = math.sqrt(2)
    return torch.cat([torch.ones_like(x)[:, None], root * phase.cos(), root * phase.sin()], dim=1)


def _wavenumbers(k_max: int) -> Tensor:
    """The wavenumber of each function of `trigonometric_basis`."""
    k = torch.arange(k_max + 1, dtype=torch.float64)
    return torch.cat([k, k[1:]])
