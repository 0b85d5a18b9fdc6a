"""What scales a field has, and at which of them a prediction is wrong.

Fields are expanded in the modes of each axis' layout, scaled so that the sum of |v̂_k|² is the
mean of v² (Parseval's identity):

    periodic       e^{2πik·ξ}                              |k_a| < n/2
    cell-centred   Π √2 cos(πk_a ξ_a), 1 for k_a = 0       0 ≤ k_a < n
    inclusive      Π √2 sin(πk_a ξ_a)                      0 < k_a < n − 1

On an inclusive grid the sines are those of a field less the lines through its end values, which
the fields of Dirichlet problems do not have.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Num
from torch import Tensor

from torchcno.grids import Layout, Layouts, layout_of_axes, unit_positions
from torchcno.spectral import transform

FieldBatch = Float[Tensor, "sample channel *space"]
NO_TRUTH = 1e4  # relative errors beyond it are of bands where the truth has nothing but rounding


@dataclass(frozen=True)
class BandError:
    """The error of a prediction in the modes low ≤ |k|∞ < high."""

    low: int
    high: int
    relative: float  # the error's norm over the truth's, in the band; inf where there is no truth
    share: float  # of the error's energy over all bands


def wavenumbers(n: int, layout: Layout) -> Float[Tensor, " k"]:
    """The wavenumbers of n points, in the order of `coefficients`."""
    highest = {"periodic": (n - 1) // 2, "cell-centred": n - 1, "inclusive": n - 2}[layout]
    lowest = {"periodic": -highest, "cell-centred": 0, "inclusive": 1}[layout]
    return torch.arange(lowest, highest + 1, dtype=torch.float64)


def coefficients(v: FieldBatch, layout: Layouts) -> Num[Tensor, "sample channel *k"]:
    """v̂, the coefficients of the modes above, in float64; complex on a periodic grid."""
    v_hat = v.double()
    for axis, one in enumerate(layout_of_axes(layout, v.ndim - 2), start=2):
        matrix = _analysis(v.shape[axis], one).to(v.device)
        number = torch.promote_types(v_hat.dtype, matrix.dtype)  # complex from a periodic axis on
        along = torch.movedim(v_hat.to(number), axis, -1)
        v_hat = torch.movedim(along @ matrix.T.to(number), -1, axis)
    return v_hat


def averaged_amplitude(v: FieldBatch, layout: Layouts) -> Float[Tensor, "*k"]:
    """|v̂_k| averaged over samples and channels: figure 2 (left) shows its logarithm."""
    return coefficients(v, layout).abs().mean((0, 1))


def radial_spectrum(v: FieldBatch, layout: Layouts) -> Float[Tensor, " shell"]:
    """The energy of v in shells κ = 0, 1, 2 … of the wavenumber's length:

    Σ |v̂_k|² over κ − 1/2 ≤ |k| < κ + 1/2, summed over channels, mean over samples
    """
    energy = _energy(v, layout)
    length = torch.stack(_mesh(v, layout)).square().sum(0).sqrt().to(v.device)
    shell = length.round().long().flatten()
    summed = torch.zeros(int(shell.max()) + 1, dtype=torch.float64, device=v.device)
    return summed.index_add_(0, shell, energy.flatten()).cpu()


def error_by_band(prediction: FieldBatch, truth: FieldBatch, layout: Layouts) -> list[BandError]:
    """The error in the mean and in octaves, 1 ≤ |k|∞ < 2, 2 ≤ |k|∞ < 4, … over all samples."""
    error, there = _energy(prediction - truth, layout), _energy(truth, layout)
    largest = torch.stack(_mesh(truth, layout)).abs().amax(0).to(truth.device)
    highest = int(largest.max())
    edges = [0, *(2**j for j in range(highest.bit_length() + 1))]
    total = float(error.sum())
    found = []
    for low, high in pairwise(edges):
        band = (largest >= low) & (largest < high)
        if band.any():
            wrong, right = float(error[band].sum()), float(there[band].sum())
            relative = math.sqrt(wrong / right) if right > 0 else (math.inf if wrong > 0 else 0.0)
            found.append(
                BandError(low, min(high, highest + 1), relative, wrong / total if total else 0.0)
            )
    return found


def _energy(v: FieldBatch, layout: Layouts) -> Float[Tensor, "*k"]:
    """|v̂_k|², the mean over samples, summed over channels."""
    return coefficients(v, layout).abs().square().sum(1).mean(0)


def _mesh(v: FieldBatch, layout: Layouts) -> tuple[Tensor, ...]:
    layouts = layout_of_axes(layout, v.ndim - 2)
    axes = [wavenumbers(n, one) for n, one in zip(v.shape[2:], layouts, strict=True)]
    return torch.meshgrid(*axes, indexing="ij")


def _analysis(n: int, layout: Layout) -> Num[Tensor, "k n"]:
    """Samples along one axis to coefficients."""
    if layout == "periodic":
        k, xi = wavenumbers(n, layout), unit_positions(n, layout)
        return torch.exp(-2j * torch.pi * k[:, None] * xi) / n
    if layout == "cell-centred":
        cosines = transform(n, n, layout, "even") / math.sqrt(2)
        cosines[0] *= math.sqrt(2)
        return cosines
    xi, ends = unit_positions(n, layout), torch.zeros(2, n, dtype=torch.float64)
    ends[0, 0] = ends[1, -1] = 1.0
    lines = torch.stack([1 - xi, xi], dim=1) @ ends
    return transform(n, n, layout, "odd") @ (torch.eye(n, dtype=torch.float64) - lines) / 2**0.5
