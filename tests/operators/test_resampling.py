"""Up- and downsampling: projections, adjoints, and what each boundary keeps."""

import pytest
import torch

from torchcno.operators.filters import Ideal, WindowedSinc
from torchcno.operators.resampling import (
    activation_matrices,
    along,
    fine_rate,
    resampling_matrix,
)

CONTINUED = ("periodic", "even", "odd")
PAIRS = ((8, 16), (11, 20), (16, 24), (9, 27), (64, 128), (12, 12))


def cells(n):
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


def function(boundary, n, x, generator):
    """A random function of x that n points resolve strictly, continued as `boundary` says."""
    if boundary == "periodic":
        k = torch.arange((n + 1) // 2, dtype=torch.float64)
        a, b = torch.randn(2, len(k), dtype=torch.float64, generator=generator)
        phase = 2 * torch.pi * k * x[:, None]
        return phase.cos() @ a + phase.sin() @ b
    k = torch.arange(0 if boundary == "even" else 1, n, dtype=torch.float64)
    a = torch.randn(len(k), dtype=torch.float64, generator=generator)
    phase = torch.pi * k * x[:, None]
    return (phase.cos() if boundary == "even" else phase.sin()) @ a


@pytest.mark.parametrize("boundary", CONTINUED)
@pytest.mark.parametrize(("n_coarse", "n_fine"), PAIRS)
class TestIdeal:
    def test_samples_the_same_function(self, n_coarse, n_fine, boundary):
        coarse, fine = (
            function(boundary, n_coarse, cells(n), torch.Generator().manual_seed(1))
            for n in (n_coarse, n_fine)
        )
        up = resampling_matrix(n_coarse, n_fine, Ideal(), boundary)
        down = resampling_matrix(n_fine, n_coarse, Ideal(), boundary)
        torch.testing.assert_close(up @ coarse, fine, rtol=0, atol=1e-11)
        torch.testing.assert_close(down @ fine, coarse, rtol=0, atol=1e-11)

    def test_up_is_an_isometry_and_down_its_adjoint_up_to_scale(self, n_coarse, n_fine, boundary):
        up = resampling_matrix(n_coarse, n_fine, Ideal(), boundary)
        down = resampling_matrix(n_fine, n_coarse, Ideal(), boundary)
        torch.testing.assert_close(down, up.T * n_coarse / n_fine, rtol=0, atol=1e-14)
        f = function(boundary, n_coarse, cells(n_coarse), torch.Generator().manual_seed(2))
        torch.testing.assert_close((up @ f).square().mean(), f.square().mean())

    def test_round_trips_are_orthogonal_projections(self, n_coarse, n_fine, boundary):
        up = resampling_matrix(n_coarse, n_fine, Ideal(), boundary)
        down = resampling_matrix(n_fine, n_coarse, Ideal(), boundary)
        for projection in (up @ down, down @ up):
            torch.testing.assert_close(projection @ projection, projection, rtol=0, atol=1e-13)
            torch.testing.assert_close(projection, projection.T, rtol=0, atol=1e-13)


def test_ideal_drops_the_nyquist_mode_of_an_even_grid():
    alternating = (-1.0) ** torch.arange(8, dtype=torch.float64)
    assert (resampling_matrix(8, 16, Ideal(), "periodic") @ alternating).abs().max() < 1e-14


@pytest.mark.parametrize("filter", [Ideal(), WindowedSinc(), WindowedSinc(5, 1.0)])
@pytest.mark.parametrize("boundary", ["periodic", "even"])
@pytest.mark.parametrize(("n_in", "n_out"), [*PAIRS, (20, 11), (64, 16), (4, 8), (2, 5)])
def test_constants_are_kept_up_to_the_edge(n_in, n_out, boundary, filter):
    ones = resampling_matrix(n_in, n_out, filter, boundary).sum(1)
    torch.testing.assert_close(ones, torch.ones_like(ones), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("n_in", "n_out"), [(16, 32), (11, 20), (32, 16)])
def test_odd_keeps_a_sine_up_to_the_edge(n_in, n_out):
    sine_in, sine_out = (torch.sin(3 * torch.pi * cells(n)) for n in (n_in, n_out))
    ideal = resampling_matrix(n_in, n_out, Ideal(), "odd") @ sine_in
    torch.testing.assert_close(ideal, sine_out, rtol=0, atol=1e-14)
    windowed = resampling_matrix(n_in, n_out, WindowedSinc(), "odd") @ sine_in
    torch.testing.assert_close(windowed, sine_out, rtol=0, atol=0.02)


@pytest.mark.parametrize("boundary", CONTINUED)
def test_a_windowed_round_trip_only_scales_the_modes_of_its_boundary(boundary):
    """D U is a symmetric filter of the continuation, so that sines stay sines to rounding."""
    up, down = activation_matrices(16, 16, 2, WindowedSinc(), boundary)
    for k in range(1, 8):
        angle = (2 if boundary == "periodic" else 1) * torch.pi * k * cells(16)
        mode = angle.cos() if boundary == "even" else angle.sin()
        image = down @ (up @ mode)
        gain = image @ mode / (mode @ mode)
        torch.testing.assert_close(image, gain * mode, rtol=0, atol=1e-13)
        if k < 5:  # well below the cutoff
            assert abs(gain - 1) < 0.05


@pytest.mark.parametrize("filter", [Ideal(), WindowedSinc()])
@pytest.mark.parametrize(("n_in", "n_out"), [(8, 16), (11, 20), (20, 11), (16, 4)])
@pytest.mark.parametrize(("boundary", "sign"), [("even", 1), ("odd", -1)])
def test_reflections_are_periodic_on_the_doubled_domain(boundary, sign, n_in, n_out, filter):
    matrix = resampling_matrix(n_in, n_out, filter, boundary)
    doubled = resampling_matrix(2 * n_in, 2 * n_out, filter, "periodic")
    f = torch.randn(n_in, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (doubled @ torch.cat([f, sign * f.flip(0)]))[:n_out]
    torch.testing.assert_close(matrix @ f, expected, rtol=0, atol=1e-13)


def test_windowed_sinc_tends_to_the_ideal_as_the_window_grows():
    low = torch.sin(2 * torch.pi * 5 * cells(32)), torch.sin(2 * torch.pi * 5 * cells(64))
    errors = [
        (resampling_matrix(32, 64, WindowedSinc(taps, 0.65), "periodic") @ low[0] - low[1])
        .abs()
        .max()
        for taps in (4, 8, 16)
    ]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


def test_zero_boundary_is_zero_beyond_the_edge():
    up, down = activation_matrices(16, 8, 2, WindowedSinc(), "zero")
    wide_up, wide_down = activation_matrices(48, 24, 2, WindowedSinc(), "zero")
    padded = torch.zeros(48, dtype=torch.float64)
    padded[16:32] = torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inner = (wide_down @ (wide_up @ padded).abs())[8:16]
    torch.testing.assert_close(down @ (up @ padded[16:32]).abs(), inner, rtol=0, atol=1e-14)


@pytest.mark.parametrize("upsampling", [1, 1.5, 2, 2.5, 3])
@pytest.mark.parametrize("boundary", ["zero", *CONTINUED])
def test_any_rational_upsampling_keeps_the_middle_of_a_constant(boundary, upsampling):
    up, down = activation_matrices(22, 11, upsampling, WindowedSinc(), boundary)
    middle = (down @ up).sum(1)[5]
    assert abs(middle - 1) < 2e-3


def test_fine_rate_reads_floats_as_fractions():
    assert [fine_rate(20, 1.1), fine_rate(11, 1.5), fine_rate(9, 4 / 3)] == [22, 17, 12]


@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_along_is_the_product_on_one_axis(axis):
    x = torch.randn(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    matrix = torch.randn(7, x.shape[axis], generator=torch.Generator().manual_seed(1))
    expected = torch.tensordot(x, matrix, ([axis], [1])).movedim(-1, axis)
    torch.testing.assert_close(along(matrix, x, axis), expected)


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="use boundary='periodic', 'even' or 'odd', or filter"):
        resampling_matrix(8, 16, Ideal(), "zero")
    with pytest.raises(ValueError, match=r"N_σ = 0\.5 is below 1; use 1 or more"):
        activation_matrices(8, 8, 0.5, Ideal(), "periodic")
    with pytest.raises(ValueError, match="use 1 or more"):
        resampling_matrix(0, 16, Ideal(), "periodic")
