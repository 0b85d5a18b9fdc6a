"""The windows of U and D hold every entry that is not zero, whatever the boundary and ratio."""

import pytest
import torch

from torchcno.operators.filters import Ideal, WindowedSinc
from torchcno.operators.fused.windows import find_cells
from torchcno.operators.resampling import activation_matrices

BOUNDARIES = ["zero", "periodic", "even", "odd"]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("n_in", "n_out"), [(16, 16), (16, 8), (8, 16), (20, 20)])
def test_the_windows_give_the_matrices_back(n_in, n_out, boundary):
    up, down = activation_matrices(n_in, n_out, 2, WindowedSinc(), boundary)
    cells = find_cells(up, down)
    assert (cells.inside, cells.outside) == (max(1, n_in // n_out), max(1, n_out // n_in))
    assert cells.reach == 3  # six taps
    halo = cells.reach if cells.tail else 0
    first, count = -halo, cells.number + 2 * halo
    rows, exist = cells.fine_points(first, count)
    for matrix, windows, points in [
        (up, cells.up(up, first, count), cells.inside),
        (down.T, cells.down(down, first, count), cells.outside),
    ]:
        rebuilt = torch.zeros_like(matrix)
        k = torch.arange(windows.shape[2]) - cells.reach
        for i, (row, exists) in enumerate(zip(rows, exist, strict=True)):
            cell = first + i // cells.fine
            columns = (points * cell + k).remainder(matrix.shape[1])
            if exists:
                rebuilt[row, columns] += windows.flatten(0, 1)[i]
        assert torch.equal(rebuilt, matrix)


@pytest.mark.parametrize(
    ("n_in", "n_out", "upsampling", "filter"),
    [
        (16, 16, 2, Ideal()),  # not local
        (32, 32, 2, WindowedSinc(taps=12)),  # a window of 13
        (24, 32, 2, WindowedSinc()),  # a ratio of 3 to 4
        (6, 6, 2, WindowedSinc()),  # a window longer than the axis
    ],
)
def test_other_matrices_have_no_windows(n_in, n_out, upsampling, filter):
    assert find_cells(*activation_matrices(n_in, n_out, upsampling, filter, "periodic")) is None
