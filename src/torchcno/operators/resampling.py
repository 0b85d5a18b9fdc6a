"""Up- and downsampling as one small matrix per axis.

Samples are cell centres, x_j = (j + 1/2)/n on a domain of length 1, at every rate: nothing is
shifted when the rate changes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno import spectral
from torchcno.constants import constants
from torchcno.operators.boundary import BOUNDARIES
from torchcno.operators.filters import Ideal, LowPass, WindowedSinc, kaiser_sinc
from torchcno.selection import select


@lru_cache(maxsize=1024)
@constants()
def resampling_matrix(
    n_in: int, n_out: int, filter: LowPass, boundary: str
) -> Float[Tensor, "n_out n_in"]:
    """Samples of a band-limited function on `n_out` points from `n_in` samples, along one axis.

        (R f)(x_i) = Σ_j h((x_i − x_j) n) f(x_j),   n = min(n_in, n_out)

    Section A.4, in float64; the sum goes over the field and its continuation beyond the edge,
    folded back. Exact for `Ideal` filters where f has no content beyond n/2. Constants are kept to
    rounding by periodic and even boundaries. The ratio n_out / n_in is any rational number.
    """
    _check(n_in, n_out, boundary)
    if isinstance(filter, Ideal):
        if boundary not in get_args(spectral.Extension):
            raise ValueError(
                f"the ideal filter reaches over the whole line and has no {boundary} boundary; "
                "use boundary='periodic', 'even' or 'odd', or filter=WindowedSinc()."
            )
        return spectral.resampling_matrix(n_in, n_out, "cell-centred", cast(Any, boundary))
    fine = torch.arange(max(n_in, n_out), dtype=torch.float64) + 0.5
    return _windowed(n_in, n_out, fine, filter, boundary)


@lru_cache(maxsize=1024)
@constants()
def activation_matrices(
    n_in: int, n_out: int, upsampling: float | int, filter: LowPass, boundary: str
) -> tuple[Float[Tensor, "n_fine n_in"], Float[Tensor, "n_out n_fine"]]:
    """The pair (U, D) of the activation D ∘ σ ∘ U from `n_in` to `n_out` points, along one axis.

    σ acts at the rate T = ⌈N_σ max(n_in, n_out)⌉. With the zero boundary the tails of U reach
    beyond the domain, and so does the fine grid: as far as D looks, (F − 1) T / n_out samples more.
    """
    _check(n_in, n_out, boundary)
    n_fine = fine_rate(max(n_in, n_out), upsampling)
    if BOUNDARIES[boundary].sign or isinstance(filter, Ideal):
        return (
            resampling_matrix(n_in, n_fine, filter, boundary),
            resampling_matrix(n_fine, n_out, filter, boundary),
        )
    # A ratio of one is no filter (the identity), which looks no further than its own sample.
    reach = 0 if n_fine == n_out else math.floor((filter.taps - 1) * Fraction(n_fine, n_out))
    fine = torch.arange(n_fine + reach, dtype=torch.float64) + (1 - reach) / 2
    return (
        _windowed(n_in, n_fine, fine, filter, boundary),
        _windowed(n_fine, n_out, fine, filter, boundary),
    )


def fine_rate(n: int, upsampling: float | int) -> int:
    """⌈N_σ n⌉, reading a float as the simple fraction it stands for (1.1 × 20 is 22)."""
    if upsampling < 1:
        raise ValueError(f"activation_upsampling N_σ = {upsampling} is below 1; use 1 or more.")
    return math.ceil(Fraction(upsampling).limit_denominator(1000) * n)


def along(
    matrix: Float[Tensor, "n_out n_in"], x: Float[Tensor, "..."], axis: int
) -> Float[Tensor, "..."]:
    """`matrix` applied along `axis` of x, counted from the end: −1 is the last."""
    if axis == -1:
        return x @ matrix.T
    rows = x.flatten(axis + 1)
    batch = rows.flatten(0, -3)
    out = torch.bmm(matrix.expand(batch.shape[0], *matrix.shape), batch)
    return out.reshape(*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])


@dataclass(frozen=True)
class Matrices:
    """U and D of fields by one matrix per axis."""

    ups: Sequence[Tensor]
    downs: Sequence[Tensor]

    def up(self, x: Float[Tensor, "batch channel *space"]) -> Float[Tensor, "batch channel *fine"]:
        """U x, the last axis first: the least work."""
        return _along_all(reversed(self.ups), x, reversed(range(-len(self.ups), 0)))

    def down(self, y: Float[Tensor, "batch channel *fine"]) -> Tensor:
        """D y."""
        return _along_all(self.downs, y, range(-len(self.downs), 0))


def _along_all(matrices: Iterable[Tensor], x: Tensor, axes: Iterable[int]) -> Tensor:
    # Where channels come last in memory, products that leave them there work on longer rows.
    last = x.ndim > 3 and x.stride(1) == 1 and not x.is_contiguous()
    x = x.movedim(1, -1) if last else x
    for matrix, axis in zip(matrices, axes, strict=True):
        x = along(matrix, x, axis - last)
    return x.movedim(-1, 1) if last else x


def _check(n_in: int, n_out: int, boundary: str) -> None:
    if min(n_in, n_out) < 1:
        raise ValueError(f"cannot resample {n_in} points to {n_out}; use 1 or more.")
    select(BOUNDARIES, boundary, "boundary")


def _windowed(n_in: int, n_out: int, fine: Tensor, filter: WindowedSinc, boundary: str) -> Tensor:
    """The windowed-sinc matrix between a coarse grid and `fine` positions, in fine steps.

    The kernel is symmetric, so downsampling is the adjoint of upsampling from the same coarse grid,
    up to the scale of its rows.
    """
    n_coarse, n_fine = min(n_in, n_out), max(n_in, n_out)
    if n_coarse == n_fine:
        return (fine[:, None] == torch.arange(n_in) + 0.5).double()
    weights = _folded(n_coarse, n_fine, fine, filter, boundary)
    upsampling = n_in < n_out
    # Row sums of the unfolded kernel are nearly 1. Where a constant goes on as a constant, each
    # row is divided by its own; with zeros outside, all by the mean over a period, as a FIR is.
    if BOUNDARIES[boundary].sign == 0:
        period = n_fine // math.gcd(n_fine, n_coarse)
        phases = fine[:period].remainder(n_fine)
        mean = _folded(n_coarse, n_fine, phases, filter, "periodic").sum(1).mean()
        return weights / mean if upsampling else weights.T / (mean * n_fine / n_coarse)
    unsigned = _folded(n_coarse, n_fine, fine, filter, boundary, signed=False)
    if upsampling:
        return weights / unsigned.sum(1, keepdim=True)
    return (weights / unsigned.sum(0)).T


def _folded(
    n_coarse: int,
    n_fine: int,
    fine: Tensor,
    filter: WindowedSinc,
    boundary: str,
    signed: bool = True,
) -> Float[Tensor, "fine coarse"]:
    """h(x_i − x_j) summed over the images of each coarse sample j beyond the edges."""
    factor, continuation = n_fine / n_coarse, BOUNDARIES[boundary]
    reach = filter.taps // 2 + 1 if continuation.sign else 0
    j = torch.arange(-reach, n_coarse + reach)
    weights = kaiser_sinc(fine[:, None] - factor * (j.double() + 0.5), factor, filter)
    if continuation.sign == 0:
        return weights
    index, sign = continuation.fold(j, n_coarse)
    out = torch.zeros(len(fine), n_coarse, dtype=torch.float64)
    return out.index_add(1, index, weights * sign if signed else weights)
