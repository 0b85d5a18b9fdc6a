"""Convolutions of planes with one or two channels in or out, as lifts and projections have them.

A library's programs take channels by blocks: fields are filled up with zeros to a block, and most
of what is multiplied is those. The programs here read few channels as windows, and take the margins
from where the boundary says that they come from.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchcno.operators.boundary import BOUNDARIES, extend
from torchcno.operators.fused import margins
from torchcno.operators.fused.choice import arithmetic_of
from torchcno.operators.fused.kernels import or_dense
from torchcno.operators.fused.layout import weight_format
from torchcno.operators.fused.row_plans import power_of_two

FEW = 2  # channels
POINTS = 64  # of a program that makes many channels of few
VALUES = 2048  # that a program holds which makes few channels of many
LARGEST = 128  # channels that a program takes at a time


def has_program(x: Tensor, weight: Tensor, boundaries: tuple[str, ...]) -> bool:
    """Whether K x is made here, and its adjoint: no field is reflected."""
    reflected = any(BOUNDARIES[name].reflected for name in boundaries)
    few = weight.ndim == 4 and min(weight.shape[:2]) <= FEW
    last = few and weight_format(weight) == torch.channels_last
    return last and not reflected and margins.is_supported(x)


def convolve_few(
    x: Tensor, weight: Tensor, bias: Tensor | None, boundaries: tuple[str, ...], dtype: torch.dtype
) -> Tensor:
    """K x in this type, with a gradient for x alone; the products are of numbers of this type."""
    y: Tensor = _ConvolveFew.apply(x, weight, bias, boundaries, dtype)
    return y


class _ConvolveFew(torch.autograd.Function):
    """K x; the gradient is the convolution with the kernel turned round (`weights.py`)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, *how: Any) -> Tensor:
        bias, boundaries, dtype = how
        ctx.save_for_backward(weight)
        ctx.how = boundaries, x.dtype
        return convolve_or_turn(x, weight, bias, boundaries, dtype, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), (boundaries, dtype) = ctx.saved_tensors, ctx.how
        dx = convolve_or_turn(dy, weight, None, boundaries, dtype, True)
        return dx, *[None] * 4


def convolve_or_turn(x: Tensor, weight: Tensor, *how: Any) -> Tensor:
    """K x, or Kᵀ x, by a program where there is one; `how` as in `launch`."""
    y: Tensor = or_dense(launch, by_library, x, weight, *how)
    return y


def by_library(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    boundaries: tuple[str, ...],
    dtype: torch.dtype,
    turned: bool,
) -> Tensor:
    """What `launch` makes, by PyTorch's convolution."""
    if turned:
        weight = weight.transpose(0, 1).flip(2, 3)
    for axis, name in zip((-2, -1), boundaries, strict=True):
        x = extend(x, weight.shape[-1] // 2, name, axis)
    return F.conv2d(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    boundaries: tuple[str, ...],
    dtype: torch.dtype,
    turned: bool,
) -> Tensor:
    """K x + b, or Kᵀ x, where the weights of K are as they are stored, in any type."""
    from torchcno.operators.fused import triton_few

    inputs, outputs = (0, 1) if turned else (1, 0)
    spreads = weight.shape[inputs] <= FEW
    few, many = (inputs, outputs) if spreads else (outputs, inputs)
    x = x if spreads else x.contiguous(memory_format=torch.channels_last)
    batch, _, rows, columns = x.shape
    y = torch.empty(
        (batch, weight.shape[outputs], rows, columns),
        dtype=dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    channels, number, k = weight.shape[many], weight.shape[few], weight.shape[-1]
    points, block = batch * rows * columns, min(power_of_two(channels), LARGEST)
    tile = POINTS if spreads else VALUES // block
    by_row, by_column = (BOUNDARIES[name] for name in boundaries)
    grid = (-(-points // tile), -(-channels // block) if spreads else 1)
    strides = weight.stride(many), weight.stride(few), *weight.stride()[2:]
    of_program = {"TB": power_of_two(number * k * k), "PRECISION": _precision(y)} if spreads else {}
    program = triton_few.spread if spreads else triton_few.gather
    program[grid](
        x, weight, bias, y, points, *x.stride(), *strides,
        H=rows, W=columns, C=channels, S=number, K=k, TURNED=turned, SIGN_H=by_row.sign,
        SIGN_W=by_column.sign, PB=tile, CB=block, **of_program,
    )  # fmt: skip
    return y


def _precision(y: Tensor) -> str:
    return "ieee" if arithmetic_of(y) == "fp32" else "tf32"
