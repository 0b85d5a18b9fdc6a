"""Pairs that follow from others by a symmetry of the operator: G(g u) = g G(u).

Only right for operators that have the symmetry: `translations` on a periodic domain, `square` where
the equation and its boundary conditions know no direction, `exchange` where they are the same along
every axis (a wind along the diagonal), `reflections` for the velocity of a flow on a torus, scaled
to [0, 1]. `odd-square` and `odd-reflections` change signs where physical zero is scaled to zero
(normalization `symmetric`). One symmetry is drawn for a batch, so that the fields move as a whole.

What is drawn is a few whole numbers. They are read on the device, so that a captured step moves
every batch differently.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Generator, Tensor


class Move(NamedTuple):
    """(g u)(x) at the point i of the grid is ± u at the point j(i):

    j_a = i_{axes[a]}, counted from the other end where `mirrored`, less `shifts`, around the edge.
    """

    axes: Sequence[int]  # of the moved field, for every axis of the field
    mirrored: Sequence[int]  # 1: that axis is reversed
    shifts: Sequence[int]  # grid steps, an axis
    turned: Sequence[int]  # 1: that channel changes its sign


def translation(space: torch.Size, channels: int, generator: Generator) -> Move:
    """A shift by whole grid steps along every axis, around the edge."""
    shifts = [int(torch.randint(n, (), generator=generator)) for n in space]
    return Move(range(len(space)), [0] * len(space), shifts, [0] * channels)


def square_symmetry(space: torch.Size, channels: int, generator: Generator) -> Move:
    """One of the symmetries of the cube: axes reversed and exchanged, 8 in two dimensions."""
    mirrored = [int(torch.randint(2, (), generator=generator)) for _ in space]
    return axis_exchange(space, channels, generator)._replace(mirrored=mirrored)


def odd_square_symmetry(space: torch.Size, channels: int, generator: Generator) -> Move:
    """A symmetry of the cube, or one that changes the sign of all fields as well."""
    turned = int(torch.randint(2, (), generator=generator))
    return square_symmetry(space, channels, generator)._replace(turned=[turned] * channels)


def axis_exchange(space: torch.Size, channels: int, generator: Generator) -> Move:
    """The axes in any order: of two, as they are or exchanged."""
    if len(set(space)) > 1:
        raise ValueError(f"fields of {tuple(space)} are no square; use augmentation='none'.")
    d = len(space)
    axes = torch.randperm(d, generator=generator).argsort().tolist()
    return Move(axes, [0] * d, [0] * d, [0] * channels)


def flow_reflection(space: torch.Size, channels: int, generator: Generator) -> Move:
    """One of the four mirror images of a plane flow.

    Mirrored along x, u changes its sign, and along y, v does where it is seen.
    """
    if len(space) != 2 or not 1 <= channels <= 2:
        raise ValueError(
            f"{channels} channels in {len(space)} dimensions are no plane velocity u or (u, v); "
            "use augmentation='none'."
        )
    along_x, along_y = (int(torch.randint(2, (), generator=generator)) for _ in range(2))
    return Move([0, 1], [along_y, along_x], [0, 0], [along_x, along_y][:channels])


# None: fields stay as they are.
AUGMENTATIONS: dict[str, Callable[[torch.Size, int, Generator], Move] | None] = {
    "none": None,
    "translations": translation,
    "square": square_symmetry,
    "exchange": axis_exchange,
    "odd-square": odd_square_symmetry,
    "reflections": flow_reflection,
    "odd-reflections": flow_reflection,
}
# Where physical zero has to be scaled to, for those that change signs: f becomes 2 · zero − f.
# Shear layers scaled to [0, 1] have theirs at 1/2.
ZEROS = {"reflections": 0.5, "odd-square": 0.0, "odd-reflections": 0.0}


class Mover:
    """Moves the samples of batches of fields on one grid, by numbers that lie on the device."""

    def __init__(self, space: torch.Size, device: torch.device, zero: float = 0.0) -> None:
        n, d = torch.tensor(space), len(space)
        grid = torch.cartesian_prod(*map(torch.arange, space)).view(-1, d)
        strides = torch.tensor([math.prod(space[axis + 1 :]) for axis in range(d)])
        self.points, self.n = grid.T.contiguous().to(device), n[:, None].to(device)
        self.strides, self.zero = strides[:, None].to(device), zero

    def __call__(
        self,
        fields: Shaped[Tensor, "sample channel *space"],
        batch: Int[Tensor, " batch"],
        numbers: Int[Tensor, " number"],
    ) -> Shaped[Tensor, "batch channel *space"]:
        """The samples `batch` of `fields`, moved by a `Move` whose numbers stand in one row.

        What is true or false, as a mask, has no sign.
        """
        channels, d = fields.shape[1], len(self.n)
        axes, mirrored, shifts, turned = numbers.split([d, d, d, len(numbers) - 3 * d])
        j = self.points.index_select(0, axes)
        j = torch.where(mirrored[:, None] == 1, self.n - 1 - j, j) - shifts[:, None]
        source = (j.remainder(self.n) * self.strides).sum(0)
        every = torch.arange(channels, device=fields.device)[:, None]
        moved = fields.flatten(2)[batch[:, None, None], every, source]
        if fields.dtype != torch.bool:
            moved = torch.where(turned[:channels, None] == 1, 2 * self.zero - moved, moved)
        return moved.view(len(batch), *fields.shape[1:])
