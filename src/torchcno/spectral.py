"""Band-limited functions on a grid: transforms between samples and modes, and resampling.

A band-limited space is spanned by the modes that a grid resolves strictly. Which modes those are
depends on how a function goes on beyond the edge of its domain, its `extension`:

    periodic     e^{2πikξ},  |k| < n/2
    even         cos(πkξ),   0 ≤ k < N       (reflected at the edges)
    odd          sin(πkξ),   0 < k < N       (reflected with a change of sign: zero on the edges)
    linear-odd   1, ξ, sin(πkξ)              (odd once the line through the end values is taken off)

with N = n on a cell-centred grid and N = n − 1 on an inclusive one. The Nyquist mode of a grid is
dropped: its samples do not determine it, and without it a translation is exact (section 2, B_w).
"""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from torchcno.constants import constants
from torchcno.grids import Layout, Layouts, layout_of_axes, unit_positions

Extension = Literal["periodic", "even", "odd", "linear-odd"]

Extensions = Extension | None | tuple[Extension | None, ...]  # of all axes, or one per axis

# The space that is exact for fields of each layout when nothing more is known of them.
NATURAL_EXTENSION: dict[Layout, Extension] = {
    "periodic": "periodic",
    "inclusive": "linear-odd",
    "cell-centred": "even",
}


def modes(
    xi: Tensor, n: int, layout: Layout, extension: Literal["periodic", "even", "odd"]
) -> Tensor:
    """The modes that n points resolve strictly, a column each, at the positions `xi`."""
    if layout == "periodic" and extension != "periodic":
        raise ValueError(f"a periodic grid has no {extension!r} extension; use 'periodic'.")
    if layout == "inclusive" and extension == "periodic":
        raise ValueError("an inclusive grid holds the period's end twice; use layout='periodic'.")
    if extension == "periodic":
        k = torch.arange(1, (n + 1) // 2, dtype=torch.float64)
        phase = 2 * torch.pi * xi[:, None] * k
        return torch.cat([torch.ones_like(xi)[:, None], phase.cos(), phase.sin()], dim=1)
    nyquist = n - 1 if layout == "inclusive" else n
    k = torch.arange(nyquist, dtype=torch.float64)
    phase = torch.pi * xi[:, None] * k
    if extension == "even":
        return phase.cos()
    return phase[:, 1:].sin()


def transform(
    n: int, n_modes: int, layout: Layout, extension: Literal["periodic", "even", "odd"]
) -> Tensor:
    """Coefficients of the modes that `n_modes` points resolve, from n ≥ n_modes samples.

    The modes are orthogonal on the grid under the trapezoidal weights w, so that

        c_k = Σ_j w_j φ_k(ξ_j) f(ξ_j) / Σ_j w_j φ_k(ξ_j)²
    """
    basis = modes(unit_positions(n, layout), n_modes, layout, extension)
    weights = torch.ones(n, 1, dtype=torch.float64)
    if layout == "inclusive":
        weights[[0, -1]] = 0.5
    weighted = weights * basis
    return (weighted / (weighted * basis).sum(0)).T


@lru_cache(maxsize=256)
@constants()
def resampling_matrix(n_in: int, n_out: int, layout: Layout, extension: Extension) -> Tensor:
    """Samples on `n_out` points of the part of a function that both grids resolve: (n_out, n_in).

        R = Φ_n(ξ_out) T_n(ξ_in),   n = min(n_in, n_out)

    In float64. Exact on the band-limited space of the coarser grid; what is beyond its band is
    filtered out, not folded back. With n_in = n_out it is the projection on that space.
    """
    n = min(n_in, n_out)
    xi_in, xi_out = unit_positions(n_in, layout), unit_positions(n_out, layout)
    if extension != "linear-odd":
        return modes(xi_out, n, layout, extension) @ transform(n_in, n, layout, extension)
    ends = torch.zeros(2, n_in, dtype=torch.float64)
    ends[0, 0] = ends[1, -1] = 1.0
    line_in = torch.stack([1 - xi_in, xi_in], dim=1) @ ends
    line_out = torch.stack([1 - xi_out, xi_out], dim=1) @ ends
    sines = resampling_matrix(n_in, n_out, layout, "odd")
    return line_out + sines @ (torch.eye(n_in, dtype=torch.float64) - line_in)


def resample(
    u: Tensor, shape: tuple[int, ...], layout: Layouts, extension: Extensions = None
) -> Tensor:
    """`u` on a grid of another `shape` over the same box: the last len(shape) axes are space.

    The change of representation of the paper's Eq. (A.4), by the coarser grid's band-limited space,
    `NATURAL_EXTENSION` unless said. An axis that keeps its size is left as it is. `layout` and
    `extension` are those of all axes, or one per axis.
    """
    layouts = layout_of_axes(layout, len(shape))
    extensions = extension if isinstance(extension, tuple) else (extension,) * len(shape)
    for i, (n_out, where, goes_on) in enumerate(zip(shape, layouts, extensions, strict=True)):
        axis = u.ndim - len(shape) + i
        n_in = int(u.shape[axis])
        if n_in != n_out:
            natural = NATURAL_EXTENSION[where]
            matrix = resampling_matrix(n_in, n_out, where, goes_on or natural).to(u)
            u = torch.movedim(torch.movedim(u, axis, -1) @ matrix.T, -1, axis)
    return u
