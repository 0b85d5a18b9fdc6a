"""The convolution of a block as a step of training wants it: three savings on the same numbers.

- A batch norm that comes next takes the mean of the batch away, and the bias b with it. So b is
  left out, and its gradient is zero: the sum over the batch that would come out as rounding errors,
  for Adam to scale up to whole steps, is not made.
- In a CUDA graph the gradients of the weights are made beside the chain of the others.
- On CUDA a few channels are filled up to a block.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcno.operators.convolution import CONVOLUTIONS, Convolution
from torchcno.operators.fused.layout import weight_format
from torchcno.operators.fused.streams import current_aside, put_aside


def convolve(x: Tensor, convolution: Convolution, with_bias: bool = True) -> Tensor:
    """K x, or K x − b."""
    aside, channels = current_aside(), len(convolution.weight)
    x, margin = convolution.extended(x)
    weight: Tensor = convolution.weight
    bias: Tensor | None = convolution.bias if with_bias else None
    if aside is not None:
        weight, bias = weight.detach(), None if bias is None else bias.detach()
    x, weight, bias = fill_blocks(x, weight, bias)
    y = CONVOLUTIONS[weight.ndim - 2](x, weight, bias, padding=margin)
    if aside is not None:
        how = (margin, with_bias, aside, convolution.weight)
        y = _GradientsAside.apply(y, x.detach(), convolution, *how)
    elif not with_bias:
        y = _ZeroGradient.apply(y, convolution.bias)
    return y if y.shape[1] == channels else y[:, :channels]


def fill_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """On CUDA, few channels in or out with zeros up to 16 bytes, which matrix units read at once.

    With a single channel, cuDNN's programs take ten times as long as with four.
    """
    if not (x.is_cuda and weight.ndim == 4):
        return x, weight, bias
    half = x.dtype.itemsize == 2 or torch.is_autocast_enabled("cuda")
    block = 8 if half else 4
    more_out, more_in = (max(0, block - channels) for channels in weight.shape[:2])
    if more_in or more_out:
        memory_format = weight_format(weight)
        x = F.pad(x, (0, 0, 0, 0, 0, more_in)).contiguous(memory_format=memory_format)
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
        weight = weight.contiguous(memory_format=memory_format)
        bias = None if bias is None else F.pad(bias, (0, more_out))
    return x, weight, bias


class _ZeroGradient(torch.autograd.Function):
    """y as it is, with a gradient of zero for a parameter that it does not depend on."""

    @staticmethod
    def forward(y: Tensor, parameter: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        return dy, torch.zeros_like(ctx.saved_tensors[0])


class _GradientsAside(torch.autograd.Function):
    """y = K x as it is; the gradients of K are made aside, and no one in the chain waits for them.

    They go into `grad` of weight and bias by themselves: what is returned would be taken for ready.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, convolution: Convolution, *how: Any) -> Tensor:
        ctx.save_for_backward(x)
        ctx.convolution, ctx.how = convolution, how
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (margin, with_bias, aside, _) = ctx.saved_tensors, ctx.how
        weight, bias = ctx.convolution.weight, ctx.convolution.bias
        dims = weight.ndim - 2
        with put_aside(aside, dy, x):
            shape = (dy.shape[1], x.shape[1], *weight.shape[2:])
            _, dweight, dbias = torch.ops.aten.convolution_backward(
                dy,
                x.to(dy.dtype),
                # Its size and its place in memory are asked for, and no number.
                dy.new_empty(shape).contiguous(memory_format=weight_format(weight)),
                bias_sizes=[dy.shape[1]],
                stride=[1] * dims,
                padding=[margin] * dims,
                dilation=[1] * dims,
                transposed=False,
                output_padding=[0] * dims,
                groups=1,
                output_mask=[False, True, with_bias],
            )
            dweight = dweight[: weight.shape[0], : weight.shape[1]]
            gradients = (dweight, dbias[: len(bias)] if with_bias else torch.zeros_like(bias))
            for parameter, gradient in zip((weight, bias), gradients, strict=True):
                if not parameter.requires_grad:
                    continue
                if (gradient.dtype, gradient.stride()) != (parameter.dtype, parameter.stride()):
                    gradient = torch.empty_like(parameter).copy_(gradient)
                before = parameter.grad
                parameter.grad = gradient if before is None else before + gradient
        return dy, *[None] * 6
