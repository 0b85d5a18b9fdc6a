"""Convolution with the boundary's own padding."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators.filters import Boundary
from torchcno.operators.streams import current_aside, put_aside

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(nn.Module):
    """(K f)(x) = Σ_m k_m f(x − z_m) + b with a discrete kernel of k points an axis (section 2).

    f goes on beyond the edge as the boundary says, so the size stays. Initial values as those of
    `torch.nn.Conv2d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        dims: int,
        boundary: Boundary = "zero",
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size {kernel_size} has no middle; use an odd number such as 3."
            )
        self.boundary: Boundary = boundary
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *[kernel_size] * dims))
        self.bias = nn.Parameter(torch.empty(out_channels))
        bound = 1 / math.sqrt(in_channels * kernel_size**dims)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self, x: Float[Tensor, "batch channel *space"], centred_next: bool = False
    ) -> Float[Tensor, "batch out *space"]:
        """K x, of the same size.

        Where a normalisation takes the mean of the batch away next, it takes b with it, whose
        gradient is then zero. The sum over the batch that would come out as rounding errors, for
        Adam to scale up to whole steps, is not made.
        """
        aside = current_aside()
        dims, margin = self.weight.ndim - 2, self.weight.shape[-1] // 2
        if self.boundary != "zero":
            for axis in range(-dims, 0):
                x = extend(x, margin, self.boundary, axis)
            margin = 0
        weight = self.weight if aside is None else self.weight.detach()
        bias = self.bias if aside is None and not centred_next else self.bias.detach()
        y = CONVOLUTIONS[dims](x, weight, bias, padding=margin)
        if aside is not None:
            y = _GradientsAside.apply(y, x.detach(), self, margin, centred_next, aside, self.weight)
        elif centred_next:
            y = _ZeroGradient.apply(y, self.bias)
        return y

    def extra_repr(self) -> str:
        """What `print` shows."""
        out_channels, in_channels, *kernel = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel={tuple(kernel)}, boundary={self.boundary!r}"


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
            _, dweight, dbias = torch.ops.aten.convolution_backward(
                dy,
                x.to(dy.dtype),
                weight.to(dy.dtype),
                bias_sizes=[len(bias)],
                stride=[1] * dims,
                padding=[margin] * dims,
                dilation=[1] * dims,
                transposed=False,
                output_padding=[0] * dims,
                groups=1,
                output_mask=[False, True, not centred],
            )
            gradients = (dweight, torch.zeros_like(bias) if centred else dbias)
            for parameter, gradient in zip((weight, bias), gradients, strict=True):
                gradient = gradient.to(parameter.dtype)
                before = parameter.grad
                parameter.grad = gradient if before is None else before + gradient
        return dy, *[None] * 6


def extend(
    x: Float[Tensor, "..."], margin: int, boundary: Boundary, axis: int
) -> Float[Tensor, "..."]:
    """x with `margin` samples of its continuation at both ends of `axis`, counted from the end.

    Even and odd reflect at the edge itself, half a cell beyond the outermost sample.
    """
    if margin == 0:
        return x
    if boundary == "zero":
        return F.pad(x, (0, 0) * (-1 - axis) + (margin, margin))
    n = x.shape[axis]
    if margin > n:
        raise ValueError(
            f"a continuation of {margin} samples is longer than the field's {n}; "
            "use a smaller kernel_size or fewer levels."
        )
    extended: Tensor = _Extend.apply(x, margin, boundary, axis)
    return extended


class _Extend(torch.autograd.Function):
    """E x by reflection or repetition, and Eᵀ: the margins added to where they came from.

    PyTorch's own gradient makes a field of zeros for every part of x that is used once more.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, margin: int, boundary: Boundary, axis: int) -> Tensor:
        first, last = _ends(x, margin, axis)
        before, after = _continued(first, last, boundary, axis)
        return torch.cat([before, x, after], dim=axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.margin, ctx.boundary, ctx.axis = inputs[1:]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        margin, axis = ctx.margin, ctx.axis
        before, after = _ends(dy, margin, axis)
        dx = dy.narrow(axis, margin, dy.shape[axis] - 2 * margin).clone()
        first, last = _ends(dx, margin, axis)
        # Reflecting and repeating are their own adjoints, but for which end is which.
        to_first, to_last = _continued(before, after, ctx.boundary, axis)
        first += to_first
        last += to_last
        return dx, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, *_: Any) -> Tensor:
        tangent: Tensor = _Extend.apply(dx, ctx.margin, ctx.boundary, ctx.axis)
        return tangent


def _ends(x: Tensor, margin: int, axis: int) -> tuple[Tensor, Tensor]:
    return x.narrow(axis, 0, margin), x.narrow(axis, x.shape[axis] - margin, margin)


def _continued(first: Tensor, last: Tensor, boundary: Boundary, axis: int) -> tuple[Tensor, Tensor]:
    """What lies before and after a field with these samples at its ends."""
    if boundary == "periodic":
        return last, first
    sign = -1 if boundary == "odd" else 1
    return sign * first.flip(axis), sign * last.flip(axis)
