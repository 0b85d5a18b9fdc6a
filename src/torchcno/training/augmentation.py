"""Pairs that follow from others by a symmetry of the operator: G(g u) = g G(u).

Only right for operators that have the symmetry: `translations` on a periodic domain, `square` where
the equation and its boundary conditions know no direction, `exchange` where they are the same along
every axis (a wind along the diagonal), `reflections` for the velocity of a flow on a torus, scaled
to [0, 1]. `odd-square` and `odd-reflections` change signs where physical zero is scaled to zero
(normalization `symmetric`). One symmetry is drawn for a batch, so that the fields move as a whole.

What is drawn is a few whole numbers. They are read on the device, so that a captured step moves
every batch differently.
"""

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.selection import select
from torchcno.tracing import is_traced

_HAS_TRITON = importlib.util.find_spec("triton") is not None


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
    """One of the mirror images of a flow: two in one dimension, four in a plane, eight in space.

    Mirrored along x, u changes its sign, and along y, v does where it is seen.
    """
    if not 1 <= channels <= len(space):
        raise ValueError(
            f"{channels} channels in {len(space)} dimensions are no velocity u, (u, v) or "
            "(u, v, w); use augmentation='none'."
        )
    mirrors = [int(torch.randint(2, (), generator=generator)) for _ in space]  # along x, y, z
    return _mirror_flow(mirrors, channels)


def _mirror_flow(mirrors: Sequence[int], channels: int) -> Move:
    """A flow mirrored along some of the axes x, y, z, which are z, y, x of the grid."""
    d = len(mirrors)
    return Move(list(range(d)), list(mirrors[::-1]), [0] * d, list(mirrors[:channels]))


def contradiction(name: str, grid: Grid, channels: tuple[int, int]) -> str:
    """Why fields on `grid` cannot have the symmetry `name`; empty where they can."""
    axes = len(grid.shape)
    if name == "translations" and grid.layout != "periodic":
        return f"the grid is {grid.layout}, and only a periodic one goes on beyond its edge"
    ends = [round(b - a, 9) for a, b in grid.extent]
    alike = len(set(zip(grid.shape, grid.layouts, ends, strict=True))) == 1
    if name in ("square", "odd-square", "exchange") and not alike:
        return f"the axes of {grid.shape} points, {grid.layout}, on {grid.extent} are not alike"
    if name == "exchange" and axes == 1:
        return "one axis has no other to be exchanged with"
    words = f"{channels[0]} to {channels[1]} channels on {axes} axes are no velocity"
    if name == "reflections" and (axes != 2 or max(channels) > 2):
        return f"{words} in a plane"
    if name == "odd-reflections" and max(channels) > axes:
        return words
    return ""


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


def square_group(space: torch.Size, channels: int) -> list[Move]:
    """All symmetries of the cube: 8 in two dimensions."""
    d = len(space)
    mirrors = list(product((0, 1), repeat=d))
    return [
        move._replace(mirrored=mirrored)
        for move in exchange_group(space, channels)
        for mirrored in mirrors
    ]


def odd_square_group(space: torch.Size, channels: int) -> list[Move]:
    """Those of the cube, with and without a change of sign."""
    moves = square_group(space, channels)
    return [move._replace(turned=[sign] * channels) for sign in (0, 1) for move in moves]


def exchange_group(space: torch.Size, channels: int) -> list[Move]:
    """All orders of the axes."""
    if len(set(space)) > 1:
        raise ValueError(
            f"fields of {tuple(space)} are no square, and have not its symmetries; use as many "
            "points along every axis."
        )
    d = len(space)
    return [Move(list(axes), [0] * d, [0] * d, [0] * channels) for axes in permutations(range(d))]


def reflection_group(space: torch.Size, channels: int) -> list[Move]:
    """All mirror images of a flow: four in a plane."""
    return [_mirror_flow(mirrors, channels) for mirrors in product((0, 1), repeat=len(space))]


# All elements of those that are few: predictions are averaged over them.
GROUPS: dict[str, Callable[[torch.Size, int], list[Move]]] = {
    "square": square_group,
    "odd-square": odd_square_group,
    "exchange": exchange_group,
    "reflections": reflection_group,
    "odd-reflections": reflection_group,
}


# Points of all fields that are given to a network at once, as copies of fewer: some hundred on 64².
AT_ONCE = 2**21


def average_over_group(
    network: Callable[..., Tensor],
    group: str,
    u: Float[Tensor, "batch channel *space"],
    *conditions: Shaped[Tensor, "batch ..."],
) -> Float[Tensor, "batch out_channel *space"]:
    """(1/|G|) Σ_g g⁻¹ N(g u), which has every symmetry of the group `GROUPS[group]` exactly.

    N is called with the `conditions`, too, a row per sample. The moved copies of few fields go
    through it together: one large batch takes less time than many small ones.
    """
    moves = select(GROUPS, group, "group of symmetries")(u.shape[2:], u.shape[1])
    zero = ZEROS.get(group, 0.0)
    together = 1  # an exported network takes batches of any size, and cannot ask for it
    if not is_traced():
        together = max(1, AT_ONCE // max(1, u.shape[0] * math.prod(u.shape[2:])))
    total: Tensor | float = 0.0
    for begin in range(0, len(moves), together):
        some = moves[begin : begin + together]
        copies = torch.cat([move_by(u, move, zero) for move in some])
        found = network(copies, *(torch.cat([rows] * len(some)) for rows in conditions))
        # `split` would fix the size of the batch in an export.
        parts = found.unflatten(0, (len(some), u.shape[0])).unbind()
        for move, v in zip(some, parts, strict=True):
            total = total + move_back(v, move, zero)
    assert isinstance(total, Tensor)
    return total / len(moves)


def move_by(
    u: Float[Tensor, "batch channel *space"], move: Move, zero: float = 0.0
) -> Float[Tensor, "batch channel *space"]:
    """g u for an element g of a group, which shifts nothing."""
    order = [2 + list(move.axes).index(axis) for axis in range(len(move.axes))]
    return _turned(u.flip(_mirrored(move)).permute(0, 1, *order).contiguous(), move, zero)


def move_back(
    v: Float[Tensor, "batch channel *space"], move: Move, zero: float = 0.0
) -> Float[Tensor, "batch channel *space"]:
    """g⁻¹ v, the inverse of `move_by`."""
    order = [2 + axis for axis in move.axes]
    return _turned(v, move, zero).permute(0, 1, *order).flip(_mirrored(move))


def _mirrored(move: Move) -> list[int]:
    return [2 + axis for axis, mirrors in enumerate(move.mirrored) if mirrors]


def _turned(fields: Tensor, move: Move, zero: float) -> Tensor:
    """2 · zero − f for the channels that change sign; further ones change as the last."""
    if not any(move.turned):
        return fields
    turned = [*move.turned, *[move.turned[-1]] * fields.shape[1]][: fields.shape[1]]
    one = fields.split(1, dim=1)
    return torch.cat([2 * zero - f if t else f for f, t in zip(one, turned, strict=True)], dim=1)


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
        """The samples `batch` of `fields`, moved by a `Move` whose numbers stand in one row."""
        return self.by(numbers)(fields, batch)

    def by(self, numbers: Int[Tensor, " number"]) -> Callable[[Tensor, Tensor], Tensor]:
        """What takes samples and moves them by one `Move`, for as many fields as there are."""
        if _HAS_TRITON and numbers.is_cuda:
            return partial(self._take_by_kernel, numbers)
        d = len(self.n)
        axes, mirrored, shifts, turned = numbers.split([d, d, d, len(numbers) - 3 * d])
        j = self.points.index_select(0, axes)
        j = torch.where(mirrored[:, None] == 1, self.n - 1 - j, j) - shifts[:, None]
        # Where every point of the moved field comes from, and the channels that change sign.
        source, changed = (j.remainder(self.n) * self.strides).sum(0), (turned == 1)[:, None]

        def take(fields: Tensor, batch: Tensor) -> Tensor:
            channels = fields.shape[1]
            every = torch.arange(channels, device=fields.device)[:, None]
            moved = fields.flatten(2)[batch[:, None, None], every, source]
            if fields.dtype != torch.bool:  # what is true or false, as a mask, has no sign
                moved = torch.where(changed[:channels], 2 * self.zero - moved, moved)
            return moved.view(len(batch), *fields.shape[1:])

        return take

    def _take_by_kernel(self, numbers: Tensor, fields: Tensor, batch: Tensor) -> Tensor:
        from torchcno.training import moving_kernels

        if not fields[0, 0].is_contiguous():
            fields = fields.contiguous()
        grid = self.n, self.strides
        return moving_kernels.take_moved(fields, batch, numbers, *grid, self.zero)
