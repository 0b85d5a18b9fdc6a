"""How a field goes on beyond the edge of its domain."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from torchcno.selection import select
from torchcno.tracing import is_traced


@dataclass(frozen=True)
class Boundary:
    """The continuation of n cell-centred samples f_0, …, f_{n−1} to every integer j.

        repeated    f_j = s^m f_{j − mn}             with m the laps from the domain to j
        reflected   f_{−1−j} = s f_j                 and the same at the other end

    with the sign s. Reflection is at the edge of a cell-centred field, half a cell beyond its
    outermost sample. s = 0: the field is zero beyond the edge.
    """

    sign: int
    reflected: bool = False

    def fold(
        self, j: Int[Tensor, " image"], n: int
    ) -> tuple[Int[Tensor, " image"], Float[Tensor, " image"]]:
        """The sample that each image j is made of, and its sign; for s ≠ 0."""
        lap = torch.div(j, n, rounding_mode="floor")
        index = j - n * lap
        if self.reflected:
            index = torch.where(lap % 2 == 1, n - 1 - index, index)
        return index, torch.where(lap % 2 == 1, float(self.sign), 1.0)

    def beyond(self, first: Tensor, last: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """What lies before and after a field with these samples at its ends; for s ≠ 0."""
        if self.reflected:
            first, last = last.flip(axis), first.flip(axis)
        return (last, first) if self.sign == 1 else (self.sign * last, self.sign * first)


BOUNDARIES: dict[str, Boundary] = {
    "zero": Boundary(0),
    "periodic": Boundary(1),
    "even": Boundary(1, reflected=True),
    "odd": Boundary(-1, reflected=True),
}


Boundaries = str | tuple[str, ...]  # of all axes, or one per axis


def boundary_of_axes(boundary: Boundaries, axes: int) -> tuple[str, ...]:
    """A boundary for each of so many axes."""
    each = tuple(boundary) if isinstance(boundary, list | tuple) else (boundary,) * axes
    if len(each) != axes:
        raise ValueError(
            f"{len(each)} boundaries for {axes} axes; give one for all, or one per axis."
        )
    for one in each:
        select(BOUNDARIES, one, "boundary")
    return each


def extend(x: Float[Tensor, "..."], margin: int, boundary: str, axis: int) -> Float[Tensor, "..."]:
    """x with `margin` samples of its continuation at both ends of `axis`, counted from the end.

    On an inclusive grid the outermost sample is on the edge itself and comes twice where the field
    is reflected, so that what lies beyond comes one sample late.
    """
    if margin == 0:
        return x
    if BOUNDARIES[boundary].sign == 0:
        return F.pad(x, (0, 0) * (-1 - axis) + (margin, margin))
    n = x.shape[axis]
    if margin > n:
        raise ValueError(
            f"a continuation of {margin} samples is longer than the field's {n}; "
            "use a smaller kernel_size or fewer levels."
        )
    # A trace and a compiler see through plain operations alone, and without gradients they do.
    if not torch.is_grad_enabled() or is_traced() or torch.compiler.is_compiling():
        return _Extend.forward(x, margin, boundary, axis)
    extended: Tensor = _Extend.apply(x, margin, boundary, axis)
    return extended


class _Extend(torch.autograd.Function):
    """E x by reflection or repetition, and Eᵀ: the margins added to where they came from.

    PyTorch's own gradient makes a field of zeros for every part of x that is used once more.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, margin: int, boundary: str, axis: int) -> Tensor:
        before, after = BOUNDARIES[boundary].beyond(*_ends(x, margin, axis), axis)
        return torch.cat([before, x, after], dim=axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.margin, ctx.boundary, ctx.axis = inputs[1:]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        margin, axis = ctx.margin, ctx.axis
        dx = dy.narrow(axis, margin, dy.shape[axis] - 2 * margin).clone()
        first, last = _ends(dx, margin, axis)
        # Reflecting and repeating are their own adjoints, but for which end is which.
        to_first, to_last = BOUNDARIES[ctx.boundary].beyond(*_ends(dy, margin, axis), axis)
        first += to_first
        last += to_last
        return dx, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, *_: Any) -> Tensor:
        tangent: Tensor = _Extend.apply(dx, ctx.margin, ctx.boundary, ctx.axis)
        return tangent


def _ends(x: Tensor, margin: int, axis: int) -> tuple[Tensor, Tensor]:
    return x.narrow(axis, 0, margin), x.narrow(axis, x.shape[axis] - margin, margin)
