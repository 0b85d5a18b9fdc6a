"""The windowed-sinc activation as FIR filters: work by the taps, not by the points of an axis.

For integer ratios a row of U or D is the same few taps, shifted. Upsampling is then a transposed
convolution of every channel by itself, downsampling a strided one: the numbers of
`torchcno.operators.resampling.activation_matrices`, in another order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torchcno.operators.boundary import BOUNDARIES, extend
from torchcno.operators.filters import LowPass, WindowedSinc
from torchcno.operators.resampling import fine_rate


@dataclass(frozen=True)
class Band:
    """How U and D of one axis are made of FIR filters; the taps themselves are `fir_taps`."""

    up: int  # the ratio of upsampling, T / n_in
    down: int  # the ratio of downsampling, T / n_out
    margin: int  # samples of continuation before U, on either side
    crop: int  # samples of U's result that D does not look at, on either side
    fine_margin: int  # samples of continuation between σ and D, on either side


def band(
    n_in: int, n_out: int, upsampling: float | int, filter: LowPass, boundary: str
) -> Band | None:
    """The FIR form of U and D; None where only matrices do: other filters, ratios or tiny grids.

    A filter of F taps reaches (F − 1) f / 2 samples of the fine rate beyond a coarse cell of f. U
    has to be right as far as D looks, in the domain's continuation. Where that changes its sign it
    does so before σ and after, but σ of the one is not the other: there σ acts on the domain alone.
    """
    n_fine = fine_rate(max(n_in, n_out), upsampling)
    if not isinstance(filter, WindowedSinc) or n_fine % n_in or n_fine % n_out:
        return None
    up, down = n_fine // n_in, n_fine // n_out
    if any(factor > 1 and (filter.taps - 1) * factor % 2 for factor in (up, down)):
        return None
    tail_up, tail_down = ((filter.taps - 1) * f // 2 if f > 1 else 0 for f in (up, down))
    sign = BOUNDARIES[boundary].sign
    fine_margin = tail_down if sign < 0 else 0
    reach = tail_down - fine_margin
    # The tails of U over zeros are part of the field; over a continuation they lack its rest.
    margin = max(0, math.ceil((reach + tail_up if sign else reach - tail_up) / up))
    if sign and (margin > n_in or fine_margin > n_fine):
        return None
    return Band(up, down, margin, margin * up + tail_up - reach, fine_margin)


@dataclass(frozen=True)
class FirBands:
    """U and D of fields by FIR filters, one `Band`, two lists of taps and a boundary per axis."""

    bands: Sequence[Band]
    up_taps: Sequence[Tensor]
    down_taps: Sequence[Tensor]
    boundaries: Sequence[str]

    def up(self, x: Float[Tensor, "batch channel *space"]) -> Float[Tensor, "batch channel *fine"]:
        """U x, as far beyond the domain as D looks."""
        for axis, b, _ in self._axes(self.up_taps):
            x = extend(x, b.margin, self.boundaries[axis], axis)
        for axis, b, taps in reversed(self._axes(self.up_taps)):
            x = _along(F.conv_transpose2d, x, taps, axis, b.up, b.crop)
        return x

    def down(self, y: Float[Tensor, "batch channel *fine"]) -> Tensor:
        """D y."""
        for axis, b, taps in self._axes(self.down_taps):
            y = extend(y, b.fine_margin, self.boundaries[axis], axis)
            y = _along(F.conv2d, y, taps, axis, b.down)
        return y

    def _axes(self, taps: Sequence[Tensor]) -> list[tuple[int, Band, Tensor]]:
        return list(zip(range(-len(self.bands), 0), self.bands, taps, strict=True))


def _along(
    convolve: Callable[..., Tensor], x: Tensor, taps: Tensor, axis: int, stride: int, crop: int = 0
) -> Tensor:
    """`convolve` every channel of x by itself with `taps` along `axis`, counted from the end.

    The other axes of space are merged, which makes any dimension two. Channels come last in memory:
    there the libraries' convolutions of single channels are many times faster.
    """
    space = list(x.shape[2:])
    channels, n = x.shape[1], space[axis]
    if axis == -1:
        plane, kernel, steps, crops = (x.shape[0], -1, n), (1, -1), (1, stride), (0, crop)
    else:
        plane = (-1, n, math.prod(space[axis + 1 :]))
        kernel, steps, crops = (-1, 1), (stride, 1), (crop, 0)
    planes = x.movedim(1, -1).contiguous().view(*plane, channels).movedim(-1, 1)
    kernels = taps.view(1, 1, *kernel).expand(channels, -1, -1, -1)
    planes = convolve(planes, kernels, stride=steps, padding=crops, groups=channels)
    space[axis] = planes.shape[-1 if axis == -1 else -2]
    return planes.movedim(1, -1).reshape(x.shape[0], *space, channels).movedim(-1, 1)
