"""Incompressible flow on the unit torus, in the Fourier coefficients of its vorticity."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from torchcno.constants import constants


@dataclass(frozen=True)
class TorusFlow:
    """The modes |k|∞ ≤ K that N² points resolve strictly, and the operators between them.

    Products are formed on M ≥ 3N/2 points an axis, where they are free of aliasing. Coefficients
    are `(…, M, K + 1)`: k_x = 0 … K (the others are conjugates), all k_y of M points in the order
    of the FFT, zero where |k_y| > K: the transforms of a time step move no data to pad or cut. A
    flow is its vorticity ω = ∂_x v − ∂_y u and its mean velocity, which never changes.
    """

    K: int  # the largest wavenumber
    M: int  # points an axis where products are formed
    k: Complex[Tensor, "2 M kx"]  # 2πk: (k_x, k_y)
    k_squared: Complex[Tensor, "M kx"]  # |2πk|²; 1 at k = 0
    biot_savart: Complex[Tensor, "2 M kx"]  # ω̂ to (û, v̂)
    curl_of_stress: Complex[Tensor, "2 M kx"]  # (uv, v² − u²)^ to ∂_t ω̂, zero where |k_y| > K

    def coefficients(self, fields: Float[Tensor, "*batch n n"]) -> Complex[Tensor, "*batch M kx"]:
        """Fourier coefficients of samples on n² points, n > 2K, cut to |k|∞ ≤ K."""
        return self._with_rows(self._transform(fields), self.M)

    def values(
        self, coefficients: Complex[Tensor, "*batch M kx"], n_points: int
    ) -> Float[Tensor, "*batch n n"]:
        """Samples on n_points > 2K points an axis."""
        if n_points != self.M:
            coefficients = self._with_rows(coefficients, n_points)
        along_y = torch.fft.ifft(coefficients, dim=-2, norm="forward")
        return torch.fft.irfft(along_y, n=n_points, dim=-1, norm="forward")

    def vorticity(
        self, velocity: Float[Tensor, "batch 2 n n"]
    ) -> tuple[Complex[Tensor, "batch M kx"], Complex[Tensor, "batch 2"]]:
        """ω̂ and the mean of the divergence-free part of a velocity (its Leray projection)."""
        coefficients = self.coefficients(velocity)
        u_hat, v_hat = coefficients.unbind(1)
        k_x, k_y = self.k
        return 1j * (k_x * v_hat - k_y * u_hat), coefficients[..., 0, 0]

    def velocity(
        self,
        omega_hat: Complex[Tensor, "batch M kx"],
        mean: Complex[Tensor, "batch 2"],
        n_points: int,
    ) -> Float[Tensor, "batch 2 n n"]:
        """(u, v) on n_points² points."""
        coefficients = self.biot_savart * omega_hat[:, None]
        coefficients[..., 0, 0] = mean
        return self.values(coefficients, n_points)

    def self_advection(
        self, velocity: Float[Tensor, "batch 2 M M"]
    ) -> Complex[Tensor, "batch M kx"]:
        """−(u·∇ω)^ from (u, v) on M² points: by two more transforms, where u·∇ω needs three."""
        u, v = velocity.unbind(1)
        stress = torch.empty_like(velocity)
        torch.mul(u, v, out=stress[:, 0])
        torch.mul(v, v, out=stress[:, 1]).addcmul_(u, u, value=-1)
        uv, anisotropy = self._transform(stress).unbind(1)
        return torch.addcmul(self.curl_of_stress[0] * uv, self.curl_of_stress[1], anisotropy)

    def _transform(self, fields: Float[Tensor, "*batch n n"]) -> Complex[Tensor, "*batch n kx"]:
        # Cutting along x first spares the transforms along y of what is dropped.
        along_x = torch.fft.rfft(fields, dim=-1, norm="forward")[..., : self.K + 1]
        return torch.fft.fft(along_x, dim=-2, norm="forward")

    def _with_rows(
        self, coefficients: Complex[Tensor, "*batch m kx"], rows: int
    ) -> Complex[Tensor, "*batch n kx"]:
        """The same |k_y| ≤ K in the layout of another number of points."""
        moved = coefficients.new_zeros(*coefficients.shape[:-2], rows, self.K + 1)
        moved[..., : self.K + 1, :] = coefficients[..., : self.K + 1, :]
        moved[..., rows - self.K :, :] = coefficients[..., coefficients.shape[-2] - self.K :, :]
        return moved


@lru_cache(maxsize=8)
@constants()
def torus_flow(n_points: int, device: torch.device) -> TorusFlow:
    """The flow that n_points² samples resolve."""
    if n_points < 3:
        raise ValueError(f"{n_points} points an axis resolve no flow; use 3 or more.")
    k_max, m = (n_points - 1) // 2, 3 * ((n_points + 1) // 2)
    along_x = torch.arange(k_max + 1, dtype=torch.float64, device=device)
    along_y = torch.fft.fftfreq(m, 1 / m, dtype=torch.float64, device=device)
    k_y, k_x = torch.meshgrid(along_y, along_x, indexing="ij")
    in_band = k_y.abs() <= k_max
    k_x, k_y = 2 * math.pi * k_x, 2 * math.pi * k_y
    k_squared = k_x**2 + k_y**2
    k_squared[0, 0] = 1.0
    # ∂_t ω = −curl div(u ⊗ u) = −(∂_xx − ∂_yy)(uv) − ∂_x ∂_y (v² − u²)
    curl_of_stress = torch.stack([k_x**2 - k_y**2, k_x * k_y]) * in_band
    return TorusFlow(
        K=k_max,
        M=m,
        k=torch.stack([k_x, k_y]).to(torch.complex128),
        k_squared=k_squared.to(torch.complex128),
        # u = ∂_y ψ, v = −∂_x ψ with −Δψ = ω
        biot_savart=torch.stack([1j * k_y / k_squared, -1j * k_x / k_squared]),
        curl_of_stress=curl_of_stress.to(torch.complex128),
    )
