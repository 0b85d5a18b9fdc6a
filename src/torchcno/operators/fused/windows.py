"""Where the entries of U and D that are not zero lie, as programs that go row by row want them.

A cell is one point of the coarsest grid that the input's and the output's have in common: it holds
`inside` points of the input, `outside` of the output and `fine` of the fine grid. With filters of a
few taps a fine point has to do with the points of its own cell and `reach` more on either side:

    U[f, j] = up[c, r, k]   and   D[j, f] = down[c, r, k]   for the point j = count · c − reach + k

of the axis, modulo its length, where f is fine point r of cell c. A fine grid that goes on beyond
the domain (zeros outside) does so in cells before the first and after the last; without, the cells
there are those at the other end. So these tables hold for every boundary.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST_REACH = 4  # rows of a window are held in registers
LARGEST_CELL = 4  # fine points


@dataclass(frozen=True)
class Cells:
    """How the points of one axis fall into cells."""

    number: int
    inside: int
    outside: int
    fine: int
    reach: int
    tail: int  # fine points beyond the domain, on either side

    def up(
        self, matrix: Float[Tensor, "n_fine n_in"], first: int, count: int
    ) -> Float[Tensor, "count fine window"]:
        """`up` of the cells first, …, first + count − 1."""
        return self._window(matrix, first, count, self.inside)

    def down(
        self, matrix: Float[Tensor, "n_out n_fine"], first: int, count: int
    ) -> Float[Tensor, "count fine window"]:
        """`down` of the cells first, …, first + count − 1."""
        return self._window(matrix.T, first, count, self.outside)

    def _window(self, matrix: Tensor, first: int, count: int, points: int) -> Tensor:
        cells = torch.arange(first, first + count)
        k = torch.arange(points + 2 * self.reach) - self.reach
        columns = (points * cells[:, None] + k).remainder(matrix.shape[1])
        rows, exists = self.fine_points(first, count)
        values = matrix[rows.view(count, self.fine)[:, :, None], columns[:, None, :]]
        return values * exists.view(count, self.fine, 1)

    def fine_points(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Rows of U that belong to these cells, and whether there are such."""
        rows = torch.arange(first * self.fine, (first + count) * self.fine)
        if self.tail == 0:
            return rows.remainder(self.number * self.fine), torch.ones_like(rows, dtype=torch.bool)
        rows = rows + self.tail
        last = self.number * self.fine + 2 * self.tail - 1
        return rows.clamp(0, last), (rows >= 0) & (rows <= last)


def find_cells(
    up: Float[Tensor, "n_fine n_in"], down: Float[Tensor, "n_out n_fine"]
) -> Cells | None:
    """The cells of an axis; None where the matrices are not of a few taps, or the ratios odd."""
    (n_fine, n_in), n_out = up.shape, down.shape[0]
    number = math.gcd(n_in, n_out)
    inside, outside = n_in // number, n_out // number
    for fine in range(min(LARGEST_CELL, n_fine // number), 0, -1):
        tail, odd = divmod(n_fine - fine * number, 2)
        if odd or fine % inside or fine % outside:
            continue
        for reach in range(LARGEST_REACH + 1):
            cells = Cells(number, inside, outside, fine, reach, tail)
            if max(inside, outside) + 2 * reach > min(n_in, n_out) or tail > reach * fine:
                continue
            halo = reach if tail else 0
            shown = (-halo, number + 2 * halo)
            if _count(cells.up(up, *shown)) == _count(up) and (
                _count(cells.down(down, *shown)) == _count(down)
            ):
                return cells
    return None


def _count(entries: Tensor) -> int:
    return int(torch.count_nonzero(entries))
