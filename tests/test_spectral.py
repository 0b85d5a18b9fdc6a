"""Band-limited resampling, on each layout and extension of a grid."""

import pytest
import torch

from torchcno.grids import unit_positions
from torchcno.spectral import modes, resample, resampling_matrix, transform

SPACES = [
    ("periodic", "periodic"),
    ("cell-centred", "periodic"),
    ("cell-centred", "even"),
    ("cell-centred", "odd"),
    ("inclusive", "even"),
    ("inclusive", "odd"),
]


def band_limited(n, layout, extension, points):
    """A random function of the space that n points resolve, at the positions of `points` points."""
    xi = unit_positions(points, layout)
    if extension == "linear-odd":
        inner = band_limited(n, layout, "odd", points)
        return 2 - 3 * xi + inner
    basis = modes(xi, n, layout, extension)
    generator = torch.Generator().manual_seed(0)
    return basis @ torch.randn(basis.shape[1], dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("layout", "extension"), [*SPACES, ("inclusive", "linear-odd")])
@pytest.mark.parametrize(("n", "m"), [(9, 16), (10, 13), (16, 16), (8, 32)])
def test_resampling_is_exact_on_the_coarser_grid_s_space(layout, extension, n, m):
    coarse, fine = (band_limited(n, layout, extension, points) for points in (n, m))
    up = resampling_matrix(n, m, layout, extension)
    down = resampling_matrix(m, n, layout, extension)
    torch.testing.assert_close(up @ coarse, fine, rtol=0, atol=1e-11)
    torch.testing.assert_close(down @ fine, coarse, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("layout", "extension"), SPACES)
@pytest.mark.parametrize("n", [7, 8])
def test_transform_inverts_the_modes(layout, extension, n):
    basis = modes(unit_positions(12, layout), n, layout, extension)
    identity = torch.eye(basis.shape[1], dtype=torch.float64)
    torch.testing.assert_close(
        transform(12, n, layout, extension) @ basis, identity, rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("n", [7, 8])
def test_periodic_resampling_pads_the_spectrum(n):
    """The part of the FFT below the Nyquist mode, taken over to the longer one."""
    u = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u_hat = torch.fft.rfft(u)[: (n + 1) // 2]
    padded = torch.zeros(11, dtype=torch.complex128)
    padded[: len(u_hat)] = u_hat
    expected = torch.fft.irfft(padded, 20) * 20 / n
    torch.testing.assert_close(resampling_matrix(n, 20, "periodic", "periodic") @ u, expected)


@pytest.mark.parametrize(("layout", "extension"), SPACES)
def test_what_the_coarse_grid_does_not_resolve_is_filtered_out_not_folded_back(layout, extension):
    fine_modes = modes(unit_positions(24, layout), 24, layout, extension)
    low = modes(unit_positions(24, layout), 12, layout, extension)
    down = resampling_matrix(24, 12, layout, extension)
    weights = torch.ones(24, 1, dtype=torch.float64)
    if layout == "inclusive":
        weights[[0, -1]] = 0.5
    unresolved = [f for f in fine_modes.T if (low.T @ (weights[:, 0] * f)).abs().max() < 1e-10]
    assert unresolved
    assert max((down @ f).abs().max() for f in unresolved) < 1e-12


def test_several_axes_are_resampled_one_by_one():
    u = torch.randn(2, 3, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = resampling_matrix(8, 12, "cell-centred", "even")
    x = resampling_matrix(6, 5, "cell-centred", "even")
    expected = torch.einsum("ij,bcjk,lk->bcil", y, u, x)
    torch.testing.assert_close(resample(u, (12, 5), "cell-centred"), expected)


def test_an_axis_that_keeps_its_size_is_left_alone():
    u = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(resample(u, (8, 8), "periodic"), u)


def test_inclusive_resampling_keeps_lines_and_ends():
    """Fields of Dirichlet problems with any data on the edge."""
    line = 2 - 3 * unit_positions(9, "inclusive")
    torch.testing.assert_close(
        resample(line, (31,), "inclusive"), 2 - 3 * unit_positions(31, "inclusive")
    )
    u = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(resample(u, (31,), "inclusive")[[0, -1]], u[[0, -1]])


def test_cached_matrices_are_real_whatever_the_default_device():
    with torch.device("meta"):
        matrix = resampling_matrix(37, 41, "periodic", "periodic")
    assert matrix.device.type == "cpu"


def test_bad_combinations_say_what_to_do():
    with pytest.raises(ValueError, match="use 'periodic'"):
        resampling_matrix(8, 16, "periodic", "even")
    with pytest.raises(ValueError, match="use layout='periodic'"):
        resampling_matrix(8, 16, "inclusive", "periodic")


def test_what_is_kept_can_be_trained_through():
    """Matrices first made without gradients serve a backward pass as well as any."""
    resampling_matrix.cache_clear()
    u = torch.randn(1, 1, 10, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        resample(u, (14,), "periodic")
    (gradient,) = torch.autograd.grad(resample(u, (14,), "periodic").square().sum(), u)
    assert gradient.isfinite().all()
