"""Low-pass filters.

A filter is a frozen record of numbers; `torchcno.operators.resampling` makes matrices of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.constants import constants
from torchcno.operators.boundary import BOUNDARIES
from torchcno.selection import option, select


@dataclass(frozen=True)
class WindowedSinc:
    """The interpolation sinc of a rate s under a Kaiser window (SM, "Design of the filters").

        h(x) ∝ sinc(2 w_c x) · I₀(β √(1 − (2x/X)²)) / I₀(β),   w_c = s / cutoff

    with the window's length X of `taps` samples, and β from Kaiser's formula for a transition band
    of half-width c_h s − w_c. Local, and nearly exact for functions well below the cutoff.
    """

    taps: int = option(6, "samples under the window (F); N_tap = F N_σ")
    half_width: float = option(0.8, "half-width of the transition band (c_h)")
    cutoff: float = option(2.0001, "sampling rate over cutoff frequency (s / w_c)")
    kind: Literal["windowed-sinc"] = "windowed-sinc"

    def __post_init__(self) -> None:
        if self.taps < 2:
            raise ValueError(f"taps = {self.taps} is no window; use 2 or more (the paper: 6).")
        if not self.half_width * self.cutoff > 1:
            raise ValueError(
                f"half_width = {self.half_width} leaves no transition band; "
                f"use more than 1/cutoff = {1 / self.cutoff:.4g} (the paper: 0.8)."
            )


@dataclass(frozen=True)
class Ideal:
    """The orthogonal projection on the modes that a grid resolves strictly, |k| < n/2.

    The Dirichlet kernel on a periodic axis, its cosine and sine counterparts on even and odd ones.
    The Nyquist mode of an even n is dropped, so that a translation is exact.
    """

    kind: Literal["ideal"] = "ideal"


@dataclass(frozen=True)
class Nearest:
    """No filter: nearest upsampling, average pooling, pointwise σ (the paper's first ablation)."""

    kind: Literal["nearest"] = "nearest"


LowPass = WindowedSinc | Ideal
Filter = WindowedSinc | Ideal | Nearest

FILTERS: dict[str, type[WindowedSinc] | type[Ideal] | type[Nearest]] = {
    "windowed-sinc": WindowedSinc,
    "ideal": Ideal,
    "nearest": Nearest,
}


def filter_from(fields: Mapping[str, Any] | str) -> Filter:
    """The filter that `dataclasses.asdict` turned into `fields`; of its kind alone: the default."""
    if isinstance(fields, str):
        fields = {"kind": fields}
    return select(FILTERS, fields.get("kind", ""), "filter")(**fields)


def kaiser_sinc(
    offset: Float[Tensor, "*points"], factor: float | int, filter: WindowedSinc
) -> Float[Tensor, "*points"]:
    """The windowed sinc of a rate s at `offset` steps of the rate T = `factor` s, up to its scale.

    With n = F T/s taps the design of `scipy.signal.firwin(n, w_c, width=2 (c_h s − w_c), fs=T)`:

        A = 2.285 (n − 1) π Δ + 7.95,   Δ = 4 (c_h − w_c/s) s/T

    for which Kaiser's β(A) trades the transition band against the attenuation A in dB. n need not
    be an integer, so rational ratios are no special case.
    """
    n = filter.taps * factor
    width = 4 * (filter.half_width - 1 / filter.cutoff) / factor
    beta = kaiser_beta(2.285 * (n - 1) * torch.pi * width + 7.95)
    inside = 1 - (2 * offset / (n - 1)) ** 2
    window = torch.special.i0(beta * inside.clamp(min=0).sqrt())
    # The outermost taps lie on the window's very edge: rounding must not decide whether they count.
    within = inside > -1e-12
    return torch.where(within, window * torch.sinc(2 * offset / (filter.cutoff * factor)), 0.0)


def kaiser_beta(attenuation: float) -> float:
    """Kaiser's window parameter for a stop band `attenuation` dB down (Kaiser 1974)."""
    if attenuation > 50:
        return 0.1102 * (attenuation - 8.7)
    if attenuation > 21:
        return 0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21)
    return 0.0


@lru_cache(maxsize=256)
@constants()
def fir_taps(
    factor: int, filter: WindowedSinc, boundary: str
) -> tuple[Float[Tensor, " taps"], Float[Tensor, " taps"]]:
    """The filters between a rate and `factor` times that rate: (up, down), in float64.

    The sum of the taps that meet one fine sample is 1 for each of them, or with zeros outside on
    their average; so constants are kept as the matrices keep them.
    """
    n = filter.taps * factor if factor > 1 else 1
    offsets = torch.arange(n, dtype=torch.float64) - (n - 1) / 2
    h = kaiser_sinc(offsets, factor, filter) if factor > 1 else torch.ones_like(offsets)
    phases = h.view(-1, factor)
    up = phases / (phases.sum(0) if BOUNDARIES[boundary].sign else phases.sum() / factor)
    return up.flatten(), h / h.sum()
