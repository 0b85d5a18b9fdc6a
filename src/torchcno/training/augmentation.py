"""Pairs that follow from others by a symmetry of the operator: G(g u) = g G(u).

Only right for operators that have the symmetry: `translations` on a periodic domain, `square` where
the equation and its boundary conditions know no direction, `exchange` where they are the same along
every axis (a wind along the diagonal), `reflections` for the velocity of a flow on a torus, scaled
to [0, 1], and `odd-reflections` for one whose zero stays zero (normalization `symmetric`). One
symmetry is drawn for a batch, so that the fields move as a whole and nothing waits for the device.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

Transform = Callable[[Tensor], Tensor]


def identity(space: torch.Size, generator: Generator) -> Transform:
    """Fields as they are."""
    return lambda u: u


def translation(space: torch.Size, generator: Generator) -> Transform:
    """A shift by whole grid steps along every axis, around the edge."""
    shifts = [int(torch.randint(n, (), generator=generator)) for n in space]
    axes = list(range(-len(space), 0))
    return lambda u: u.roll(shifts, axes)


def square_symmetry(space: torch.Size, generator: Generator) -> Transform:
    """One of the symmetries of the cube: axes reversed and exchanged, 8 in two dimensions."""
    reversed_axes = [a for a in range(-len(space), 0) if torch.randint(2, (), generator=generator)]
    exchange = axis_exchange(space, generator)
    return lambda u: exchange(u.flip(reversed_axes))


def axis_exchange(space: torch.Size, generator: Generator) -> Transform:
    """The axes in any order: of two, as they are or exchanged."""
    if len(set(space)) > 1:
        raise ValueError(f"fields of {tuple(space)} are no square; use augmentation='none'.")
    d = len(space)
    order = [int(a) - d for a in torch.randperm(d, generator=generator)]
    return lambda u: u.permute(list(range(u.ndim - d)) + order).contiguous()


def flow_reflection(space: torch.Size, generator: Generator, zero: float = 0.5) -> Transform:
    """One of the four mirror images of a plane flow, whose zero is scaled to `zero`.

    Mirrored along x, u changes its sign, and along y, v does where it is seen: to 2·zero − ũ and
    2·zero − ṽ. Shear layers scaled to [0, 1] have their zero at 1/2.
    """
    along_x, along_y = (bool(torch.randint(2, (), generator=generator)) for _ in range(2))
    axes = [axis for axis, mirrored in ((-1, along_x), (-2, along_y)) if mirrored]

    def apply(w: Tensor) -> Tensor:
        if w.dtype == torch.bool:  # a mask, which has no sign
            return w.flip(axes)
        if not 1 <= w.shape[1] <= 2:
            raise ValueError(
                f"{w.shape[1]} channels are no plane velocity u or (u, v); use augmentation='none'."
            )
        signs = zip(w.flip(axes).split(1, dim=1), (along_x, along_y), strict=False)
        return torch.cat([2 * zero - one if turned else one for one, turned in signs], dim=1)

    return apply


AUGMENTATIONS: dict[str, Callable[[torch.Size, Generator], Transform]] = {
    "none": identity,
    "translations": translation,
    "square": square_symmetry,
    "exchange": axis_exchange,
    "reflections": flow_reflection,
    "odd-reflections": partial(flow_reflection, zero=0.0),
}
# Where physical zero has to be scaled to, for those that change signs.
ZEROS = {"reflections": 0.5, "odd-reflections": 0.0}
