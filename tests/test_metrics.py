import math

import pytest
import torch

from torchcno.grids import Grid
from torchcno.metrics import relative_h1, relative_l1, relative_l2


def sine(grid: Grid, k: int) -> torch.Tensor:
    """sin(2πkx), constant along y, as one sample of one channel."""
    _, x = grid.mesh()
    return (2 * math.pi * k * x).sin()[None, None]


def test_a_scaled_truth_has_its_scale_as_error_in_every_norm():
    v = torch.rand(5, 2, 8, 8, dtype=torch.float64) + 0.1
    scale = torch.tensor([0.01, 0.1, 0.5, 1.0, 3.0], dtype=torch.float64)
    p = v * (1 + scale)[:, None, None, None]
    grid = Grid((8, 8), "inclusive")
    for error in (relative_l1(p, v), relative_l2(p, v), relative_h1(p, v, grid)):
        torch.testing.assert_close(error, scale)


def test_errors_are_taken_over_channels_and_space_of_each_sample_alone():
    v = torch.ones(2, 2, 4, 4)
    p = v.clone()
    p[1, 0, 0, 0] += 8.0  # one of 32 entries of the second sample
    torch.testing.assert_close(relative_l1(p, v), torch.tensor([0.0, 8 / 32]))
    torch.testing.assert_close(relative_l2(p, v), torch.tensor([0.0, 8 / math.sqrt(32)]))


def test_h1_weighs_a_mode_by_its_wavenumber():
    # ‖sin 2πkx‖²_H¹ = (1 + (2πk)²) / 2, up to the second order of the differences.
    grid = Grid((4, 512), "periodic")
    v, p = sine(grid, 1), sine(grid, 1) + 0.1 * sine(grid, 3)
    expected = 0.1 * math.sqrt((1 + (6 * math.pi) ** 2) / (1 + (2 * math.pi) ** 2))
    assert relative_h1(p, v, grid).item() == pytest.approx(expected, rel=1e-3)
    assert relative_l2(p, v).item() == pytest.approx(0.1, rel=1e-6)


def test_h1_of_a_line_does_not_see_the_edge_of_a_grid_with_ends():
    # Its slope is 1 everywhere; wrapped around, the jump from 1 to 0 would count.
    grid = Grid((64, 64), "inclusive")
    _, x = grid.mesh()
    v = torch.full((1, 1, 64, 64), 2.0, dtype=torch.float64)
    error = relative_h1(v + x, v, grid).item()
    assert error == pytest.approx(math.sqrt((x.square().mean().item() + 1) / 4))


def test_the_gradient_of_an_exact_prediction_is_not_nan():
    v = torch.rand(2, 1, 4, 4)
    p = v.clone().requires_grad_()
    relative_l2(p, v).sum().backward()
    assert p.grad is not None
    assert torch.equal(p.grad, torch.zeros_like(v))


def test_h1_refuses_a_grid_of_another_size():
    v = torch.rand(1, 1, 8, 8)
    with pytest.raises(ValueError, match=r"\(8, 8\).*\(16, 16\)"):
        relative_h1(v, v, Grid((16, 16), "periodic"))
