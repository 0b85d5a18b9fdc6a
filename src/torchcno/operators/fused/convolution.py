"""The convolution of a block as a step of training wants it: four savings on the same numbers.

- A batch norm that comes next takes the mean of the batch away, and the bias b with it. So b is
  left out, and its gradient is zero: the sum over the batch that would come out as rounding errors,
  for Adam to scale up to whole steps, is not made.
- In a CUDA graph the gradients of the weights are made beside the chain of the others.
- The gradient of the field is a convolution with the kernel turned round (`weights.py`).
- On CUDA a few channels are filled up to a block, and one or two have programs (`few.py`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from torchcno.operators.boundary import BOUNDARIES
from torchcno.operators.convolution import CONVOLUTIONS, Convolution
from torchcno.operators.fused import few, margins
from torchcno.operators.fused.choice import arithmetic_of
from torchcno.operators.fused.few import FEW
from torchcno.operators.fused.kernels import PROGRAMS, or_dense
from torchcno.operators.fused.layout import weight_format
from torchcno.operators.fused.row_plans import power_of_two
from torchcno.operators.fused.streams import current_aside, put_aside

FILLED = 8  # channels in half precision that are 16 bytes; fewer are filled up with zeros


def convolve(x: Tensor, convolution: Convolution, with_bias: bool = True) -> Tensor:
    """K x, or K x − b, where the caller has another use for b."""
    beside = current_aside()
    bias: Tensor | None = convolution.bias if with_bias else None
    if beside is None:
        x, margin = _extended(x, convolution)
        return _convolve_filled(x, convolution.weight, bias, margin)
    own: Tensor = convolution.weight
    half = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if half else own.dtype
    bias = None if bias is None else bias.detach()
    if few.has_program(x, own, convolution.boundaries):
        y = few.convolve_few(x, own.detach(), bias, convolution.boundaries, dtype)
        return _gradients_aside(y, x, convolution, None, with_bias)
    copies = beside.copies(dtype)
    weight = copies.straight[id(own)] if half and id(own) in copies.straight else own.detach()
    turned = copies.turned.get(id(own))
    if turned is None or turned.dtype != dtype or not _turns(x, convolution):
        x, margin = _extended(x, convolution)
        y = _convolve_filled(x, weight, bias, margin)
    else:
        inside = x.to(dtype)
        with torch.no_grad():
            x, margin = _extended(inside, convolution)
        y = _Turning.apply(inside, x, weight, bias, turned, convolution)
    return _gradients_aside(y, x, convolution, margin, with_bias)


def _gradients_aside(
    y: Tensor, x: Tensor, convolution: Convolution, margin: int | None, with_bias: bool
) -> Tensor:
    """y = K x, whose gradients for K are put aside; without a `margin`, x has none."""
    how = (margin, with_bias, current_aside())
    # With the weight among its inputs it has a gradient, also where x has none.
    aside: Tensor = _GradientsAside.apply(y, x.detach(), convolution, *how, convolution.weight)
    return aside


def _turns(x: Tensor, convolution: Convolution) -> bool:
    """Whether the adjoint of K is the same kind of convolution: no field is reflected.

    Few channels, which are filled up, stay with the library's adjoint.
    """
    filled = min(convolution.weight.shape[:2]) < FILLED
    reflected = any(BOUNDARIES[name].reflected for name in convolution.boundaries)
    return x.is_cuda and x.ndim == 4 and not filled and not reflected


def leave_untouched(y: Tensor, parameter: nn.Parameter) -> Tensor:
    """y as it is; its gradient for `parameter`, on which it does not depend, is zero."""
    beside = current_aside()
    if beside is None:
        return _ZeroGradient.apply(y, parameter)
    beside.untouched.append(parameter)
    return y


def convolve_by(x: Tensor, weight: Tensor, bias: Tensor, convolution: Convolution) -> Tensor:
    """K x with other weights than the convolution's own."""
    x, margin = _extended(x, convolution)
    return _convolve_filled(x, weight, bias, margin)


def _convolve_filled(x: Tensor, weight: Tensor, bias: Tensor | None, margin: int) -> Tensor:
    channels = len(weight)
    x, weight, bias = fill_blocks(x, weight, bias)
    y = CONVOLUTIONS[weight.ndim - 2](x, weight, bias, padding=margin)
    return y if y.shape[1] == channels else y[:, :channels]


def _extended(x: Tensor, convolution: Convolution) -> tuple[Tensor, int]:
    """`Convolution.extended`, by one program where there is one."""
    margin = convolution.weight.shape[-1] // 2
    boundaries = convolution.boundaries
    if set(boundaries) == {"zero"} or margin == 0 or not margins.is_supported(x):
        return convolution.extended(x)
    return margins.extend_plane(x, margin, boundaries), 0


def fill_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """On CUDA, few channels in or out with zeros up to 16 bytes, which matrix units read at once.

    With a single channel, cuDNN's programs take ten times as long as with four.
    """
    if not (x.is_cuda and weight.ndim == 4):
        return x, weight, bias
    half = x.dtype.itemsize == 2 or torch.is_autocast_enabled("cuda")
    block = FILLED if half else FILLED // 2
    more_out, more_in = (max(0, block - channels) for channels in weight.shape[:2])
    memory_format = weight_format(weight)
    if more_in:
        x = F.pad(x, (0, 0, 0, 0, 0, more_in)).contiguous(memory_format=memory_format)
    if more_in or more_out:
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
        weight = weight.contiguous(memory_format=memory_format)
    if more_out and bias is not None:
        bias = F.pad(bias, (0, more_out))
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


class _Turning(torch.autograd.Function):
    """K x of x with its margins; the gradient for x is the convolution with K turned round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, extended: Tensor, *given: Any) -> Tensor:
        weight, bias, turned, convolution = given
        ctx.save_for_backward(turned)
        ctx.convolution = convolution
        margin = 0 if extended.shape != x.shape else weight.shape[-1] // 2
        return CONVOLUTIONS[weight.ndim - 2](extended, weight, bias, padding=margin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (turned,) = ctx.saved_tensors
        dy, margin = _extended(dy, ctx.convolution)
        dx = CONVOLUTIONS[turned.ndim - 2](dy, turned, padding=margin)
        return dx, *[None] * 5


class _GradientsAside(torch.autograd.Function):
    """y = K x as it is; the gradients of K are made aside, and no one in the chain waits for them.

    What would be returned would be taken for ready: `beside` hands them over.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, convolution: Convolution, *how: Any) -> Tensor:
        ctx.save_for_backward(x)
        ctx.convolution, ctx.how = convolution, how
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (margin, with_bias, beside, _) = ctx.saved_tensors, ctx.how
        weight, bias = ctx.convolution.weight, ctx.convolution.bias
        with put_aside(beside.next_stream(), dy, x):
            given = dy, x.to(dy.dtype), margin
            if margin is None:
                given = _with_margins_of_few(*given[:2], ctx.convolution)
            beside.gradients.append((weight, weight_gradient(*given[:2], weight, given[2])))
            if with_bias:
                sums = dy.sum([0, *range(2, dy.ndim)], dtype=bias.dtype)
                beside.gradients.append((bias, sums))
        return dy, *[None] * 6


POINTS = 64  # that a program multiplies at a time


def _with_margins_of_few(
    dy: Tensor, x: Tensor, convolution: Convolution
) -> tuple[Tensor, Tensor, int]:
    """dy and x for `weight_gradient`, and its margin: that of few channels is extended.

    What x_c(p + i) reads beyond an edge, dy_o(q − i) reads beyond the opposite one.
    """
    weight = convolution.weight
    if weight.shape[1] <= FEW:
        return dy, *_extended(x, convolution)
    dy, zeros = _extended(dy, convolution)
    return dy, x, weight.shape[-1] - 1 - zeros


def weight_gradient(dy: Tensor, x: Tensor, weight: Tensor, margin: int) -> Tensor:
    """dk of y = K x, with `margin` zeros around x: dk_oci = Σ_n,p dy_nop x_nc(p + i)."""
    dims = weight.ndim - 2
    if dims == 2 and x.is_cuda and min(weight.shape[:2]) <= FEW:
        gradient: Tensor = or_dense(by_windows, by_library, dy, x, weight, margin)
        return gradient
    return by_library(dy, x, weight, margin)


def by_library(dy: Tensor, x: Tensor, weight: Tensor, margin: int) -> Tensor:
    """The gradient as PyTorch computes it."""
    dims = weight.ndim - 2
    gradients = torch.ops.aten.convolution_backward(
        dy,
        x,
        # Its size and its place in memory are asked for, and no number.
        torch.empty_like(weight, dtype=dy.dtype),
        bias_sizes=None,
        stride=[1] * dims,
        padding=[margin] * dims,
        dilation=[1] * dims,
        transposed=False,
        output_padding=[0] * dims,
        groups=1,
        output_mask=[False, True, False],
    )
    return gradients[1]


def by_windows(dy: Tensor, x: Tensor, weight: Tensor, margin: int) -> Tensor:
    """The gradient for few channels in or out, as products with windows of these.

    Of few channels out, the windows look the other way: Σ_n,q x_ncq dy_no(q − i).
    """
    k = weight.shape[-1]
    if weight.shape[1] <= FEW:
        return multiply_windows(dy, x, k, margin)
    return multiply_windows(x, dy, k, k - 1 - margin).transpose(0, 1).flip(2, 3)


def multiply_windows(many: Tensor, few: Tensor, k: int, pad: int) -> Tensor:
    """Σ_n,p many_nc(p) few_ns(p + i − pad) for the k² taps i, by a Triton program: (c, s, k, k).

    PyTorch would write out the windows of one sample after the other.
    """
    from torchcno.operators.fused import triton_sums

    many = many.contiguous(memory_format=torch.channels_last)
    (_, channels, *space), number = many.shape, few.shape[1]
    points, taps = many.numel() // channels, number * k * k
    block, tap_block = min(power_of_two(channels), 128), power_of_two(taps)
    tiles = -(-points // POINTS)
    programs = min(tiles, PROGRAMS)
    parts = torch.empty(programs, channels, tap_block, dtype=torch.float32, device=many.device)
    exact = arithmetic_of(many) == "fp32"
    triton_sums.products_with_windows[(programs, -(-channels // block))](
        many, few, parts, points, tiles, *space, *few.shape[2:], *few.stride(),
        C=channels, S=number, K=k, PAD=pad, PRECISION="ieee" if exact else "tf32",
        PB=POINTS, CB=block, TB=tap_block,
    )  # fmt: skip
    return parts.sum(0)[:, :taps].view(channels, number, k, k)
