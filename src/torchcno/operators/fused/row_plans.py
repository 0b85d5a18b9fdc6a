"""What the programs of `triton_rows.py` are launched with: tables of U and D, and sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchcno.constants import remember
from torchcno.operators.fused.windows import Cells, find_cells

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
class Side:
    """The input's grid, or the output's, as a program walks over it."""

    H: int
    W: int
    CELL: int  # rows of a cell
    START: int  # the first column that tile 0 reads
    STEP: int  # columns from a tile to the next
    BLOCK: int  # columns that a tile reads, or makes


@dataclass(frozen=True)
class Walk:
    """What a program is compiled for; the last four are those of the fields."""

    X: Side
    Y: Side
    R: int  # fine rows of a cell
    REACH: int
    HALO: int  # cells
    STRIP: int  # cells
    FIRST: int  # fine columns of the first block
    SECOND: int  # and of the second
    BACK: int  # columns of dX that a tile makes
    P: int  # planes
    C: int = 0  # channels
    LAST: bool = False  # channels last in memory
    SIGMA: str = ""
    ARITHMETIC: str = ""


@dataclass(frozen=True)
class Plan:
    """One direction of an activation: tables in the order of the program's arguments, and sizes."""

    tables: tuple[Tensor, ...]
    walk: Walk
    options: dict[str, int]  # of the compiler
    strips: int
    tiles: int

    def grid(self, planes: int) -> tuple[int, int, int]:
        """The programs for this many planes."""
        return -(-planes // self.walk.P), self.strips, self.tiles


def find_plan(
    ups: Sequence[Tensor],
    downs: Sequence[Tensor],
    rounding: Callable[[Tensor], Tensor],
    backward: bool,
) -> Plan | None:
    """The plan of `forward`, or of `backward`; None for lines, for many taps and for odd ratios."""

    def make() -> Plan | None:
        axes = []
        for up, down in zip(ups, downs, strict=True):
            up, down = up.detach().cpu(), down.detach().cpu()
            if (cells := find_cells(up, down)) is None:
                return None
            axes.append(Axis(up, down, cells))
        rows, columns = axes
        plan = _make_plan(rows, columns, rounding, backward)
        return replace(plan, tables=tuple(table.to(ups[0].device) for table in plan.tables))

    return remember(make, (rounding, backward), *ups, *downs) if len(ups) == 2 else None


def _make_plan(
    rows: "Axis", columns: "Axis", rounding: Callable[[Tensor], Tensor], backward: bool
) -> Plan:
    cut = (BACKWARD if backward else FORWARD)[columns.cells.tail > 0]
    x, y = columns.cells.inside, columns.cells.outside
    tile = _tile(columns, x if backward else y, cut.tile)
    up = tile.to_fine(columns.up, x)
    if backward:
        down, back = tile.to_fine(columns.down.T, y), tile.to_coarse(columns.up, x)
        tables, y_block, x_made = [up, down, back], down.shape[1], back.shape[2]
    else:
        down = tile.to_coarse(columns.down.T, y)
        tables, y_block, x_made = [up, down], down.shape[2], 0
    cells = rows.cells
    strips = -(-cells.number // cut.strip)
    shown = (-cells.reach, strips * cut.strip + 2 * cells.reach)
    windows = cells.up(rows.up, *shown), cells.down(rows.down, *shown)

    def side(h: int, w: int, cell: int, points: int, block: int) -> Side:
        return Side(h, w, cell, tile.start(points), tile.cells * points, block)

    walk = Walk(
        X=side(rows.up.shape[1], columns.up.shape[1], cells.inside, x, up.shape[1]),
        Y=side(rows.down.shape[0], columns.down.shape[0], cells.outside, y, y_block),
        R=cells.fine,
        REACH=cells.reach,
        HALO=-(-cells.reach // (cells.inside if backward else cells.outside)),
        STRIP=cut.strip,
        FIRST=tile.first,
        SECOND=tile.second,
        BACK=x_made,
        P=cut.planes,
    )
    tables = [*(w.float().contiguous() for w in windows), *map(rounding, tables)]
    return Plan(tuple(tables), walk, {"num_warps": cut.warps}, strips, tile.number)


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

    def to_fine(self, matrix: Tensor, points: int) -> Tensor:
        """(tile, block, fine): from the coarse columns that a tile reads; `matrix` (fine, n)."""
        n = matrix.shape[1]
        if not self.whole:
            n = points * (self.cells + 2 * self.halo) + 2 * self.axis.reach
        fine = self.first + self.second
        tiles = torch.zeros(self.number, power_of_two(n), fine, dtype=matrix.dtype)
        for t in range(self.number):
            first = self.start(points) + t * self.cells * points
            columns = torch.arange(first, first + n).remainder(matrix.shape[1])
            tiles[t, :n, : self.fine] = self._fine_rows(matrix, t)[:, columns].T
        return tiles

    def to_coarse(self, matrix: Tensor, points: int) -> Tensor:
        """(tile, fine, block): to the coarse columns that a tile is to make; `matrix` (fine, n)."""
        n, fine = self.cells * points, self.first + self.second
        tiles = torch.zeros(self.number, fine, power_of_two(n), dtype=matrix.dtype)
        for t in range(self.number):
            made = self._fine_rows(matrix, t)[:, t * n : (t + 1) * n]
            tiles[t, : self.fine, : made.shape[1]] = made
        return tiles

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
