import pytest
import torch

from torchcno.grids import Grid
from torchcno.problems.airfoil.geometry import (
    AMPLITUDES,
    HicksHenne,
    Naca4,
    Tabulated,
    characteristic,
    crossing,
    hicks_henne_bumps,
    perturbed,
    rae2822,
)


def test_the_reference_shapes_come_out_to_rounding(reference):
    lower, upper = perturbed(rae2822(), reference["psi"]).surfaces(reference["x"])
    torch.testing.assert_close(lower, reference["y_lower"], rtol=0, atol=1e-15)
    torch.testing.assert_close(upper, reference["y_upper"], rtol=0, atol=1e-15)


def test_the_reference_masks_come_out_to_the_pixel(reference, text_window):
    grid = Grid((128, 128), "cell-centred", text_window)
    mask = characteristic(perturbed(rae2822(), reference["psi"]), grid)
    assert torch.equal(mask, reference["mask"])


@pytest.mark.parametrize("n", [10, 15])
def test_bump_i_is_one_at_i_over_n_plus_four_and_ends_at_zero(n):
    peaks = torch.arange(1, n + 1, dtype=torch.float64) / (n + 4)
    assert torch.allclose(hicks_henne_bumps(peaks, n).diagonal(), torch.ones(n).double())
    ends = hicks_henne_bumps(torch.tensor([0.0, 1.0], dtype=torch.float64), n)
    assert ends.abs().max() < 1e-40


def test_ten_bumps_have_the_amplitudes_of_the_paper():
    i = torch.arange(1, 11, dtype=torch.float64)
    for name in AMPLITUDES:
        shape = perturbed(rae2822(), torch.ones(1, 20, dtype=torch.float64), name)
        torch.testing.assert_close(shape.lower[0], (i + 1) * 1e-3)
        torch.testing.assert_close(shape.upper[0], (11 - i) * 1e-3)


def test_coefficients_of_one_half_are_the_unperturbed_airfoil():
    x = torch.linspace(0, 1, 50, dtype=torch.float64)
    shape = perturbed(rae2822(), torch.full((1, 20), 0.5, dtype=torch.float64))
    for ours, base in zip(shape.surfaces(x), rae2822().surfaces(x), strict=True):
        assert torch.equal(ours, base)


def test_naca0012_is_closed_and_twelve_percent_thick():
    x = torch.linspace(0, 1, 10001, dtype=torch.float64)
    lower, upper = Naca4().surfaces(x)
    assert torch.equal(lower, -upper)
    assert (upper - lower).max().item() == pytest.approx(0.12, abs=1e-4)
    assert abs(upper[0, 0]) + abs(upper[0, -1]) < 1e-15


def test_naca2412_has_its_camber_where_its_name_says():
    x = torch.linspace(0, 1, 1001, dtype=torch.float64)
    lower, upper = Naca4(0.12, 0.02, 0.4).surfaces(x)
    camber = (0.5 * (lower + upper))[0]
    assert camber.max().item() == pytest.approx(0.02, abs=1e-12)
    assert x[camber.argmax()].item() == pytest.approx(0.4, abs=1e-12)


def test_crossing_surfaces_are_found():
    deep = torch.zeros(2, 4, dtype=torch.float64)
    deep[1, 1] = 0.2  # the lower surface bulges through the upper one
    shape = HicksHenne(rae2822(), deep, torch.zeros_like(deep))
    assert crossing(shape).tolist() == [False, True]


def test_a_table_of_another_chord_or_order_is_refused():
    points = torch.tensor(rae2822().points, dtype=torch.float64)
    for wrong in (100 * points, 0.5 * points, points + 0.1, points - 0.1):
        with pytest.raises(ValueError, match="move and scale the points"):
            Tabulated(tuple((x, y) for x, y in wrong.tolist()))
    with pytest.raises(ValueError, match="Selig"):
        Tabulated(rae2822().points[::-1])


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="Selig"):
        Tabulated(((0.0, 0.0), (0.5, 0.1), (1.0, 0.0), (0.5, -0.1)))
    with pytest.raises(ValueError, match=r"give \(batch, 2n\)"):
        perturbed(rae2822(), torch.rand(3, 5))
    for position in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"camber_position is {position}; use"):
            Naca4(camber_position=position)
