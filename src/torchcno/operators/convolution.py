"""Convolution with the boundary's own padding."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcno.operators.boundary import extend
from torchcno.operators.fused.layout import weight_format
from torchcno.operators.fused.streams import current_aside, put_aside

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(nn.Module):
    """(K f)(x) = Σ_m k_m f(x − z_m) + b with a discrete kernel of k points per axis (section 2).

    f goes on beyond the edge as the boundary says, so the size stays. Initial values as those of
    `torch.nn.Conv2d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        dims: int,
        boundary: str = "zero",
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size {kernel_size} has no middle; use an odd number such as 3."
            )
        self.boundary = boundary
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *[kernel_size] * dims))
        self.bias = nn.Parameter(torch.empty(out_channels))
        bound = 1 / math.sqrt(in_channels * kernel_size**dims)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self, x: Float[Tensor, "batch channel *space"], next_norm: nn.Module | None = None
    ) -> Float[Tensor, "batch out *space"]:
        """K x, of the same size.

        A batch norm that comes next takes the mean of the batch away, and b with it. Then b is left
        out, and `next_norm` told. Its gradient is zero: the sum over the batch that would come out
        as rounding errors, for Adam to scale up to whole steps, is not made.
        """
        aside, centred = current_aside(), _takes_the_mean(next_norm)
        dims, margin = self.weight.ndim - 2, self.weight.shape[-1] // 2
        if self.boundary != "zero":
            for axis in range(-dims, 0):
                x = extend(x, margin, self.boundary, axis)
            margin = 0
        weight: Tensor = self.weight
        bias: Tensor | None = None if centred else self.bias
        if aside is not None:
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        x, weight, bias = in_blocks(x, weight, bias)
        y = CONVOLUTIONS[dims](x, weight, bias, padding=margin)
        if aside is not None:
            y = _GradientsAside.apply(y, x.detach(), self, margin, centred, aside, self.weight)
        elif centred:
            y = _ZeroGradient.apply(y, self.bias)
        if centred:
            _tell(next_norm, self.bias.detach())
        return y if y.shape[1] == len(self.weight) else y[:, : len(self.weight)]

    def extra_repr(self) -> str:
        """What `print` shows."""
        out_channels, in_channels, *kernel = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel={tuple(kernel)}, boundary={self.boundary!r}"


def _takes_the_mean(norm: nn.Module | None) -> bool:
    """Whether `norm` subtracts the mean of the batch, and remembers it in a way that can be told.

    With a momentum of 1 the running mean forgets what it is told before.
    """
    return (
        isinstance(norm, _BatchNorm)
        and norm.training
        and norm.momentum is not None
        and norm.momentum < 1
    )


def _tell(norm: Any, bias: Tensor) -> None:
    """Have the running mean r that `norm` is about to make, (1 − m) r + m μ, contain `bias`."""
    if norm.running_mean is not None:
        # As data: autograd keeps it with what `norm` normalised before, and never reads it.
        norm.running_mean.data.add_(bias, alpha=norm.momentum / (1 - norm.momentum))


def in_blocks(
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
        (x,), (margin, centred, aside, _) = ctx.saved_tensors, ctx.how
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
                output_mask=[False, True, not centred],
            )
            dweight = dweight[: weight.shape[0], : weight.shape[1]]
            gradients = (dweight, torch.zeros_like(bias) if centred else dbias[: len(bias)])
            for parameter, gradient in zip((weight, bias), gradients, strict=True):
                if not parameter.requires_grad:
                    continue
                if (gradient.dtype, gradient.stride()) != (parameter.dtype, parameter.stride()):
                    gradient = torch.empty_like(parameter).copy_(gradient)
                before = parameter.grad
                parameter.grad = gradient if before is None else before + gradient
        return dy, *[None] * 6
