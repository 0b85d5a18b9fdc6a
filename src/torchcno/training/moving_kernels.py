"""Samples of a batch, taken and moved in one kernel; importing this file needs Triton."""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # points that a program moves


def take_moved(
    fields: Tensor, batch: Tensor, numbers: Tensor, sizes: Tensor, strides: Tensor, zero: float
) -> Tensor:
    """The samples `batch` of `fields`, moved by the numbers of a `Move`.

    The points of a channel lie one after the other in memory. `sizes` and `strides` are those
    of the grid, one per axis.
    """
    _, channels, *space = fields.shape
    moved = fields.new_empty(len(batch), channels, *space)
    points = moved[0, 0].numel()
    _take_moved[(len(batch) * channels, -(-points // BLOCK))](
        fields, moved, batch, numbers, sizes, strides, zero, points, *fields.stride()[:2],
        C=channels, D=len(space), SIGNED=fields.dtype != torch.bool, BLOCK=BLOCK,
    )  # fmt: skip
    return moved


@triton.jit
def _take_moved(
    fields, moved, batch, numbers, sizes, strides, zero, POINTS, SAMPLE, CHANNEL,
    C: tl.constexpr, D: tl.constexpr, SIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    sample, channel = plane // C, plane % C
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.zeros((BLOCK,), tl.int32)
    for a in tl.static_range(D):
        axis = tl.load(numbers + a)
        # Axes that change places are equally long, and their steps in memory are their own.
        there = (i // tl.load(strides + axis).to(tl.int32)) % tl.load(sizes + axis).to(tl.int32)
        n = tl.load(sizes + a).to(tl.int32)
        j = tl.where(tl.load(numbers + D + a) == 1, n - 1 - there, there)
        j = (j - tl.load(numbers + 2 * D + a).to(tl.int32) + n) % n
        source += j * tl.load(strides + a).to(tl.int32)
    mask = i < POINTS
    row = tl.load(batch + sample)
    value = tl.load(fields + row * SAMPLE + channel * CHANNEL + source, mask=mask)
    if SIGNED:
        turned = tl.load(numbers + 3 * D + channel) == 1
        value = tl.where(turned, 2 * zero - value, value)
    tl.store(moved + plane * POINTS + i, value, mask=mask)
