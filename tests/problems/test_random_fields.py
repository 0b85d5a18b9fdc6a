import math

import pytest
import torch
from torch import Generator

from torchcno.grids import Grid
from torchcno.problems.random_fields import (
    TrigonometricField,
    periodic_matern,
    sine_series,
    squared_exponential,
    trigonometric_basis,
)


def covariance_along_x(field: TrigonometricField, grid: Grid) -> torch.Tensor:
    """Cov(g(y_0, x_i), g(y_0, x_j)) of the series, by its coefficients."""
    k_max = (len(field.spectrum) - 1) // 2
    along_y, along_x = (trigonometric_basis(grid, i, field.period, k_max) for i in (0, 1))
    return along_x @ torch.diag(along_y[0] ** 2 @ field.spectrum) @ along_x.T


@pytest.mark.parametrize("length", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("n_points", [33, 64])
def test_squared_exponential_covariance_is_exact(length: float, n_points: int) -> None:
    grid = Grid((n_points, n_points), "inclusive")
    x = grid.axis(1)
    kernel = 0.1 * torch.exp(-((x[:, None] - x) ** 2) / length**2)
    torch.testing.assert_close(
        covariance_along_x(squared_exponential(0.1, length), grid), kernel, atol=1e-12, rtol=0
    )


def test_sampled_covariance_matches_the_kernel(generator: Generator) -> None:
    grid = Grid((11, 11), "inclusive")
    g = squared_exponential(0.1, 0.1).sample(grid, 3000, generator)[:, 0]
    for lag in (0, 1, 2):
        expected = 0.1 * math.exp(-((lag * grid.spacing[0]) ** 2) / 0.1**2)
        for shifted, other in (
            (g[:, :, lag:], g[:, :, : 11 - lag]),
            (g[:, lag:, :], g[:, : 11 - lag, :]),
        ):
            # about 121 · 3000 weakly dependent products of standard deviation up to 0.14
            assert abs((shifted * other).mean() - expected) < 5 * 0.14 / (40 * 3000) ** 0.5


def test_matern_spectrum_is_that_of_the_operator() -> None:
    # Variance of the Fourier mode e^{2πi(3x + 2y)} of N(0, s (−Δ + τ²)^{−α})
    field = periodic_matern(scale=7**1.5, tau=7.0, alpha=2.5, k_max=4)
    g = field.sample(Grid((16, 16), "periodic"), 4000, Generator().manual_seed(0))[:, 0]
    coefficient = torch.fft.fft2(g, norm="forward")[:, 2, 3]
    expected = 7**1.5 * (4 * torch.pi**2 * 13 + 49) ** -2.5
    assert coefficient.abs().square().mean() == pytest.approx(expected, rel=0.08)
    assert g.mean((-2, -1)).abs().max() < 1e-14


def test_a_series_needs_modes() -> None:
    with pytest.raises(ValueError, match="K ≥ 1"):
        sine_series(Grid((8, 8), "inclusive"), 1, 0, (1.0, 1.0), Generator())
