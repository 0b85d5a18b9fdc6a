"""Spectra in the modes of each layout."""

import math

import pytest
import torch

from torchcno.evaluation.spectra import (
    averaged_amplitude,
    coefficients,
    error_by_band,
    radial_spectrum,
    wavenumbers,
)
from torchcno.grids import Grid

LAYOUTS = ["periodic", "inclusive", "cell-centred"]


def mode(n, layout, k_y, k_x):
    """A mode of unit mean square (a wave and its conjugate on a periodic grid)."""
    y, x = Grid((n, n), layout).mesh()
    if layout == "periodic":
        return math.sqrt(2) * torch.cos(2 * math.pi * (k_y * y + k_x * x))[None, None]
    wave = torch.sin if layout == "inclusive" else torch.cos
    return 2 * (wave(math.pi * k_y * y) * wave(math.pi * k_x * x))[None, None]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mode_is_one_coefficient(layout):
    amplitude = averaged_amplitude(mode(16, layout, 5, 3), layout)
    k = wavenumbers(16, layout).tolist()
    expected = torch.zeros_like(amplitude)
    if layout == "periodic":
        expected[k.index(5), k.index(3)] = expected[k.index(-5), k.index(-3)] = math.sqrt(0.5)
    else:
        expected[k.index(5), k.index(3)] = 1
    torch.testing.assert_close(amplitude, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parseval(layout):
    v = torch.randn(3, 2, 15, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cells = 15
    if layout == "inclusive":  # where lines are none of the modes
        v[..., [0, -1], :] = v[..., :, [0, -1]] = 0
        cells = 14
    squares = v.square().sum((-1, -2)) / cells**2
    energy = coefficients(v, layout).abs().square().sum((-1, -2))
    torch.testing.assert_close(energy, squares)
    radial = radial_spectrum(v, layout)
    torch.testing.assert_close(radial.sum(), squares.sum(1).mean())


def test_a_shell_holds_the_wavenumbers_of_its_length():
    radial = radial_spectrum(mode(32, "periodic", 3, 4) + mode(32, "periodic", 0, 12), "periodic")
    assert (radial > 1e-20).nonzero().flatten().tolist() == [5, 12]
    torch.testing.assert_close(radial[[5, 12]], torch.ones(2, dtype=torch.float64))


def test_the_ends_of_an_inclusive_grid_are_no_part_of_its_sines():
    """A field scaled to [0, 1] has the spectrum of the field."""
    u = mode(16, "inclusive", 2, 3)
    for shifted in (u + 0.5, u + 3 * Grid((16, 16), "inclusive").mesh()[1]):
        torch.testing.assert_close(
            averaged_amplitude(shifted, "inclusive"), averaged_amplitude(u, "inclusive")
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_error_is_found_in_its_octave(layout):
    truth = mode(32, layout, 1, 1) + 0.5 * mode(32, layout, 3, 6) + 0.25 * mode(32, layout, 9, 2)
    wrong = truth + 0.1 * mode(32, layout, 3, 6) + 0.2 * mode(32, layout, 9, 2)
    bands = {(b.low, b.high): b for b in error_by_band(wrong, truth, layout)}
    assert bands[4, 8].relative == pytest.approx(0.2)
    assert bands[4, 8].share == pytest.approx(0.01 / 0.05)
    octave = (8, 16)
    assert bands[octave].relative == pytest.approx(0.8)
    assert bands[1, 2].relative < 1e-12
    assert sum(b.share for b in bands.values()) == pytest.approx(1)


def test_where_there_is_no_truth_an_error_is_infinite():
    zero = torch.zeros(1, 1, 8, 8)
    assert all(b.relative == 0 for b in error_by_band(zero, zero, "periodic"))
    (mean, *_) = error_by_band(zero + 1, zero, "periodic")
    assert mean.relative == math.inf
