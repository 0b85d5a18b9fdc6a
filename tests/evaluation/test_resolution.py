"""Error against resolution."""

import pytest
import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.evaluation.resolution import ResolutionCurve, at_resolutions, on_grid
from torchcno.grids import Grid, unit_positions
from torchcno.spectral import modes, resample

SPACES = [("periodic", "periodic"), ("inclusive", "odd"), ("cell-centred", "even")]


def functions(n, layout, extension, points):
    """Three random functions of the space of n² points, with a channel, on points² points."""
    basis = modes(unit_positions(points, layout), n, layout, extension)
    generator = torch.Generator().manual_seed(0)
    c = torch.randn(3, 1, basis.shape[1], basis.shape[1], dtype=torch.float64, generator=generator)
    return basis @ c @ basis.T


def fields(n, layout, extension, points):
    u = functions(n, layout, extension, points)
    return Fields(u, 2 * u, Grid((points, points), layout))


@pytest.mark.parametrize(("layout", "extension"), SPACES)
@pytest.mark.parametrize("n", [12, 17, 24])
def test_data_of_a_coarser_grid_are_the_same_functions(layout, extension, n):
    fine, coarse = (fields(12, layout, extension, points) for points in (24, n))
    found = on_grid(fine, n)
    torch.testing.assert_close(found.inputs, coarse.inputs)
    torch.testing.assert_close(found.outputs, coarse.outputs)
    assert found.grid == coarse.grid


@pytest.mark.parametrize(("layout", "extension"), SPACES)
def test_an_operator_on_band_limited_functions_has_the_same_error_on_every_grid(layout, extension):
    """u ↦ 3u for the truth 2u: one half, at any resolution."""
    found = at_resolutions(
        lambda u: 3 * u,
        fields(10, layout, extension, 32),
        (10, 13, 20, 32),
        Normalization.identity(),
    )
    for at in found:
        errors = at.errors["relative_l1"]["physical"]
        torch.testing.assert_close(errors, torch.full_like(errors, 0.5))


def test_a_change_of_representation_keeps_the_prediction_a_coarse_grid_can_hold():
    def through_twelve(u):
        v = resample(u, (12, 12), "periodic").square()
        return resample(v, tuple(u.shape[2:]), "periodic")

    fine, coarse = at_resolutions(
        through_twelve,
        fields(12, "periodic", "periodic", 24),
        (24, 12),
        Normalization.identity(),
    )
    torch.testing.assert_close(
        resample(fine.prediction, (12, 12), "periodic"),
        resample(resample(coarse.prediction, (24, 24), "periodic"), (12, 12), "periodic"),
    )


def test_refused_grids_are_told_and_left_out():
    def only_even(u):
        if u.shape[-1] % 2:
            raise ValueError(f"{u.shape[-1]} points are odd.")
        return u

    told = {}
    data, identity = fields(8, "periodic", "periodic", 16), Normalization.identity()
    found = at_resolutions(only_even, data, (8, 11, 16), identity, refused=told.__setitem__)
    assert [at.fields.grid.shape[-1] for at in found] == [8, 16]
    assert told == {11: "11 points are odd."}
    with pytest.raises(ValueError, match="odd"):
        list(at_resolutions(only_even, data, (11,), identity))


def test_data_are_not_made_finer():
    with pytest.raises(ValueError, match="do not determine 32; make them on 32 or more"):
        on_grid(fields(8, "periodic", "periodic", 16), 32)


def test_an_oblong_grid_keeps_its_proportion():
    u = torch.rand(2, 1, 16, 32)
    assert on_grid(Fields(u, u, Grid((16, 32), "periodic")), 16).grid.shape == (8, 16)


def test_change_is_relative_to_training():
    curve = ResolutionCurve("cno", 64, {32: 2.5, 64: 2.0, 128: 1.9}, {16: "too small"})
    assert curve.relative == {32: 1.25, 64: 1.0, 128: 0.95}
    assert curve.largest_change == pytest.approx(0.25)
    elsewhere = ResolutionCurve("cno", 48, {32: 2.5}, {})
    assert elsewhere.relative == {}
    assert elsewhere.largest_change is None
