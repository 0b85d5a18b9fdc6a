"""What the programs of `triton_rows.py` are launched with: tables of U and D, and sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torchcno.operators.versions import version
from torchcno.operators.windows import Cells, find_cells

LARGEST_BLOCK = 64  # coarse columns that a program reads


@dataclass(frozen=True)
class Cut:
    """How the work of a launch is shared out among programs."""

    planes: int  # P
    strip: int  # cells of rows
    tile: int  # fine columns, at most
    warps: int


# The fastest on an H200 of those tried, by whether the fine grid goes on beyond the domain: without
# that its columns are a power of two, and a program takes all of them.
FORWARD = {False: Cut(16, 32, 128, 4), True: Cut(16, 32, 160, 8)}
BACKWARD = {False: Cut(16, 32, 128, 8), True: Cut(16, 32, 64, 4)}


@dataclass(frozen=True)
class Plan:
    """One direction of an activation: tables in the order of the program's arguments, and sizes."""

    tables: tuple[Tensor, ...]
    sizes: dict[str, int]
    strips: int
    tiles: int

    def grid(self, planes: int) -> tuple[int, int, int]:
        """The programs for this many planes."""
        return -(-planes // self.sizes["P"]), self.strips, self.tiles


def forward_plan(
    ups: Sequence[Tensor], downs: Sequence[Tensor], rounding: Callable[[Tensor], Tensor]
) -> Plan | None:
    """The plan of `forward`; None for lines, for many taps and for odd ratios."""
    return _remembered(_make_forward, ups, downs, rounding)


def backward_plan(
    ups: Sequence[Tensor], downs: Sequence[Tensor], rounding: Callable[[Tensor], Tensor]
) -> Plan | None:
    """The plan of `backward`, as `forward_plan`."""
    return _remembered(_make_backward, ups, downs, rounding)


def _make_forward(rows: "Axis", columns: "Axis", rounding: Callable[[Tensor], Tensor]) -> Plan:
    cut = FORWARD[columns.cells.tail > 0]
    tile = _tile(columns, columns.cells.outside, cut.tile)
    x, y = columns.cells.inside, columns.cells.outside
    sizes = {
        "X_START": tile.start(x),
        "X_STEP": tile.cells * x,
        "Y_STEP": tile.cells * y,
        "BX": tile.block(x, columns.up.shape[1]),
        "BY": power_of_two(tile.cells * y),
    }
    tables = (
        tile.to_fine(columns.up, x, sizes["BX"]),
        tile.to_coarse(columns.down.T, y, sizes["BY"]),
    )
    return _plan(rows, rows.cells.outside, tile, tables, sizes, rounding, cut)


def _make_backward(rows: "Axis", columns: "Axis", rounding: Callable[[Tensor], Tensor]) -> Plan:
    cut = BACKWARD[columns.cells.tail > 0]
    tile = _tile(columns, columns.cells.inside, cut.tile)
    x, y = columns.cells.inside, columns.cells.outside
    sizes = {
        "X_START": tile.start(x),
        "X_STEP": tile.cells * x,
        "Y_START": tile.start(y),
        "Y_STEP": tile.cells * y,
        "BX": tile.block(x, columns.up.shape[1]),
        "BY": tile.block(y, columns.down.shape[0]),
        "B": power_of_two(tile.cells * x),
    }
    tables = (
        tile.to_fine(columns.up, x, sizes["BX"]),
        tile.to_fine(columns.down.T, y, sizes["BY"]),
        tile.to_coarse(columns.up, x, sizes["B"]),
    )
    return _plan(rows, rows.cells.inside, tile, tables, sizes, rounding, cut)


def _plan(
    rows: "Axis",
    results: int,
    tile: "Tile",
    tables: Sequence[Tensor],
    sizes: dict[str, int],
    rounding: Callable[[Tensor], Tensor],
    cut: Cut,
) -> Plan:
    cells = rows.cells
    strips = -(-cells.number // cut.strip)
    shown = (-cells.reach, strips * cut.strip + 2 * cells.reach)
    windows = cells.up(rows.up, *shown), cells.down(rows.down, *shown)
    return Plan(
        tables=(*(w.float().contiguous() for w in windows), *map(rounding, tables)),
        sizes={
            "IN": cells.inside,
            "OUT": cells.outside,
            "R": cells.fine,
            "REACH": cells.reach,
            "HALO": -(-cells.reach // results),
            "STRIP": cut.strip,
            "FIRST": tile.first,
            "SECOND": tile.second,
            "P": cut.planes,
            "num_warps": cut.warps,
            **sizes,
        },
        strips=strips,
        tiles=tile.number,
    )


@dataclass(frozen=True)
class Axis:
    """U, D and the cells of one axis."""

    up: Tensor
    down: Tensor
    cells: Cells


@dataclass(frozen=True)
class Tile:
    """The columns of one program: all of them, or those of a few cells.

    For the results of `cells` cells the fine columns of `halo` more on either side are needed, and
    for those the coarse columns of their cells and of `reach` points more.
    """

    axis: Cells
    number: int
    cells: int
    halo: int
    fine: int

    @property
    def whole(self) -> bool:
        """Whether there is nothing to cut."""
        return self.number == 1

    @property
    def first(self) -> int:
        """Fine columns of the first block: a power of two."""
        half = power_of_two(self.fine) // 2
        return half if half + _second(self.fine - half) < 2 * half else 2 * half

    @property
    def second(self) -> int:
        """Fine columns of the second block: those beyond the first."""
        return 0 if self.fine <= self.first else _second(self.fine - self.first)

    def start(self, points: int) -> int:
        """The first coarse column that tile 0 reads, of an axis with so many points a cell."""
        return 0 if self.whole else -points * self.halo - self.axis.reach

    def block(self, points: int, n: int) -> int:
        """A power of two that holds the coarse columns that a tile reads."""
        return power_of_two(n if self.whole else self._read(points))

    def to_fine(self, matrix: Tensor, points: int, block: int) -> Tensor:
        """(tile, block, fine): from the coarse columns that a tile reads; `matrix` (fine, n)."""
        tiles = torch.zeros(self.number, block, self.first + self.second, dtype=matrix.dtype)
        for t in range(self.number):
            first = self.start(points) + t * self.cells * points
            n = matrix.shape[1] if self.whole else self._read(points)
            columns = torch.arange(first, first + n).remainder(matrix.shape[1])
            tiles[t, :n, : self.fine] = self._fine_rows(matrix, t)[:, columns].T
        return tiles

    def to_coarse(self, matrix: Tensor, points: int, block: int) -> Tensor:
        """(tile, fine, block): to the coarse columns that a tile is to make; `matrix` (fine, n)."""
        tiles = torch.zeros(self.number, self.first + self.second, block, dtype=matrix.dtype)
        for t in range(self.number):
            made = self._fine_rows(matrix, t)[:, t * self.cells * points :]
            made = made[:, : self.cells * points]
            tiles[t, : self.fine, : made.shape[1]] = made
        return tiles

    def _read(self, points: int) -> int:
        return points * (self.cells + 2 * self.halo) + 2 * self.axis.reach

    def _fine_rows(self, matrix: Tensor, t: int) -> Tensor:
        if self.whole:
            return matrix
        first, count = t * self.cells - self.halo, self.cells + 2 * self.halo
        rows, exist = self.axis.fine_points(first, count)
        return matrix[rows] * exist[:, None]


def _tile(axis: Axis, results: int, largest: int) -> Tile:
    """The tiles of an axis of columns, for results with so many points a cell."""
    cells, coarse = axis.cells, max(axis.up.shape[1], axis.down.shape[0])
    if axis.up.shape[0] <= largest and coarse <= LARGEST_BLOCK:
        return Tile(cells, 1, cells.number, 0, axis.up.shape[0])
    halo = -(-cells.reach // results)
    read = max(cells.inside, cells.outside)
    most = min(largest // cells.fine, (LARGEST_BLOCK - 2 * cells.reach) // read) - 2 * halo
    number = -(-cells.number // most)
    size = -(-cells.number // number)
    return Tile(cells, number, size, halo, (size + 2 * halo) * cells.fine)


def _second(n: int) -> int:
    # Wider than 16, the planes: Triton shares only such products out by their columns.
    return max(32, power_of_two(n))


def power_of_two(n: int) -> int:
    """The power of two that holds n; the matrix units want 16 at least."""
    return max(16, 1 << (n - 1).bit_length())


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _remembered(
    make: Callable[..., Plan],
    ups: Sequence[Tensor],
    downs: Sequence[Tensor],
    rounding: Callable[[Tensor], Tensor],
) -> Plan | None:
    """The plan, made once: matrices are constants that live as long as a model."""
    matrices = [*ups, *downs]
    key = (make, rounding, *((id(m), version(m)) for m in matrices))
    plans: dict[Any, tuple[Plan | None, list[Tensor]]] = _known.setdefault(ups[0], {})
    if key not in plans:
        # The matrices are kept with the plan, so that no others come to have their addresses; all
        # but the first, with which the plan is to go.
        others = [m for m in matrices if m is not ups[0]]
        plans[key] = _planned(make, ups, downs, rounding), others
    return plans[key][0]


def _planned(
    make: Callable[..., Plan],
    ups: Sequence[Tensor],
    downs: Sequence[Tensor],
    rounding: Callable[[Tensor], Tensor],
) -> Plan | None:
    if len(ups) != 2:
        return None
    axes = []
    for up, down in zip(ups, downs, strict=True):
        up, down = up.detach().cpu(), down.detach().cpu()
        cells = find_cells(up, down)
        if cells is None:
            return None
        axes.append(Axis(up, down, cells))
    plan = make(*axes, rounding)
    return replace(plan, tables=tuple(table.to(ups[0].device) for table in plan.tables))
