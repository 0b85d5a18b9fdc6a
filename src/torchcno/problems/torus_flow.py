"""Incompressible flow on the unit torus, in the Fourier coefficients of its vorticity."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Complex, Float
from torch import Tensor


@dataclass(frozen=True)
class TorusFlow:
    """The modes |k|∞ ≤ K that N² points resolve strictly, and the operators between them.

    Coefficients ω̂ are `(batch, 2K + 1, K + 1)`: k_y = 0 … K, −K … −1 and k_x = 0 … K, the others
    being their conjugates. Products are formed on M ≥ 3N/2 points an axis, where they are free of
    aliasing. A flow is its vorticity ω = ∂_x v − ∂_y u and its mean velocity, which never changes.
    """

    N: int
    K: int  # the largest wavenumber
    k: Complex[Tensor, "2 ky kx"]  # 2πk: (k_x, k_y)
    k_squared: Complex[Tensor, "ky kx"]  # |2πk|²; 1 at k = 0
    integer_k_squared: Float[Tensor, "ky kx"]  # |k|²
    biot_savart: Complex[Tensor, "2 ky kx"]  # ω̂ to (û, v̂)
    curl_of_stress: Complex[Tensor, "2 ky kx"]  # (uv, v² − u²)^ to ∂_t ω̂

    @classmethod
    def on(cls, n_points: int, device: torch.device) -> "TorusFlow":
        """The flow that n_points² samples resolve."""
        k_max = (n_points - 1) // 2
        along_x = torch.arange(k_max + 1, dtype=torch.float64, device=device)
        along_y = torch.cat([along_x, -along_x[1:].flip(0)])
        k_y, k_x = torch.meshgrid(along_y, along_x, indexing="ij")
        integer_k_squared = k_x**2 + k_y**2
        k_x, k_y = 2 * math.pi * k_x, 2 * math.pi * k_y
        k_squared = k_x**2 + k_y**2
        k_squared[0, 0] = 1.0
        return cls(
            N=n_points,
            K=k_max,
            k=torch.stack([k_x, k_y]).to(torch.complex128),
            k_squared=k_squared.to(torch.complex128),
            integer_k_squared=integer_k_squared,
            # u = ∂_y ψ, v = −∂_x ψ with −Δψ = ω
            biot_savart=torch.stack([1j * k_y / k_squared, -1j * k_x / k_squared]),
            # ∂_t ω = −curl div(u ⊗ u) = −(∂_xx − ∂_yy)(uv) − ∂_x ∂_y (v² − u²)
            curl_of_stress=torch.stack([k_x**2 - k_y**2, k_x * k_y]).to(torch.complex128),
        )

    def coefficients(self, fields: Float[Tensor, "*batch n n"]) -> Complex[Tensor, "*batch ky kx"]:
        """Fourier coefficients of samples on any n ≥ N points, cut to |k|∞ ≤ K."""
        # Cutting after each axis spares the transform of what is dropped.
        along_x = torch.fft.rfft(fields, dim=-1, norm="forward")[..., : self.K + 1]
        along_y = torch.fft.fft(along_x, dim=-2, norm="forward")
        return torch.cat([along_y[..., : self.K + 1, :], along_y[..., -self.K :, :]], dim=-2)

    def values(
        self, coefficients: Complex[Tensor, "*batch ky kx"], n_points: int
    ) -> Float[Tensor, "*batch n n"]:
        """Samples on n_points ≥ N points an axis."""
        *batch, _, columns = coefficients.shape
        padded = coefficients.new_zeros(*batch, n_points, columns)
        padded[..., : self.K + 1, :] = coefficients[..., : self.K + 1, :]
        padded[..., -self.K :, :] = coefficients[..., -self.K :, :]
        along_y = torch.fft.ifft(padded, dim=-2, norm="forward")
        return torch.fft.irfft(along_y, n=n_points, dim=-1, norm="forward")

    def vorticity(
        self, velocity: Float[Tensor, "batch 2 n n"]
    ) -> tuple[Complex[Tensor, "batch ky kx"], Complex[Tensor, "batch 2"]]:
        """ω̂ and the mean of the divergence-free part of a velocity (its Leray projection)."""
        u_hat, v_hat = self.coefficients(velocity).unbind(1)
        k_x, k_y = self.k
        mean = torch.stack([u_hat[:, 0, 0], v_hat[:, 0, 0]], dim=1)
        return 1j * (k_x * v_hat - k_y * u_hat), mean

    def velocity(
        self,
        omega_hat: Complex[Tensor, "batch ky kx"],
        mean: Complex[Tensor, "batch 2"],
        n_points: int,
    ) -> Float[Tensor, "batch 2 n n"]:
        """(u, v) on n_points² points."""
        coefficients = self.biot_savart * omega_hat[:, None]
        coefficients[..., 0, 0] = mean
        return self.values(coefficients, n_points)

    def products_velocity(
        self, omega_hat: Complex[Tensor, "batch ky kx"], mean: Complex[Tensor, "batch 2"]
    ) -> Float[Tensor, "batch 2 m m"]:
        """(u, v) on the points where products are formed."""
        return self.velocity(omega_hat, mean, 3 * ((self.N + 1) // 2))

    def self_advection(
        self, velocity: Float[Tensor, "batch 2 m m"]
    ) -> Complex[Tensor, "batch ky kx"]:
        """−(u·∇ω)^ from `products_velocity`: four transforms in all instead of five by u, v, ∇ω."""
        u, v = velocity.unbind(1)
        stress = torch.stack([u * v, (v - u) * (v + u)], dim=1)
        return (self.curl_of_stress * self.coefficients(stress)).sum(1)


@lru_cache(maxsize=8)
def torus_flow(n_points: int, device: torch.device) -> TorusFlow:
    """`TorusFlow.on`, kept between calls."""
    return TorusFlow.on(n_points, device)
