import pytest
import torch

from torchcno.grids import Grid, unit_positions


@pytest.mark.parametrize("layout", ["periodic", "inclusive", "cell-centred"])
def test_spacing_is_the_distance_of_neighbours(layout):
    grid = Grid((5, 8), layout, ((-1.0, 1.0), (0.0, 3.0)))
    for i, h in enumerate(grid.spacing):
        torch.testing.assert_close(
            grid.axis(i).diff(), torch.full((grid.shape[i] - 1,), h).double()
        )


def test_where_the_samples_lie():
    assert unit_positions(4, "periodic").tolist() == [0, 0.25, 0.5, 0.75]
    assert unit_positions(5, "inclusive").tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert unit_positions(2, "cell-centred").tolist() == [0.25, 0.75]


def test_mesh_goes_with_tensor_axes():
    y, x = Grid((2, 3), "cell-centred", ((0.0, 4.0), (0.0, 6.0))).mesh()
    assert y[:, 0].tolist() == [1, 3]
    assert x[0].tolist() == [1, 3, 5]


@pytest.mark.usefixtures("as_outside_tests")
def test_bad_grids_say_what_to_do():
    with pytest.raises(ValueError, match="choose from periodic, inclusive, cell-centred"):
        Grid((4, 4), "staggered")
    with pytest.raises(ValueError, match="use 2 or more points"):
        Grid((4, 1), "inclusive")
    with pytest.raises(ValueError, match="a < b"):
        Grid((4,), "periodic", ((1.0, 1.0),))
    with pytest.raises(ValueError, match="one per axis"):
        Grid((4, 4), ("periodic",) * 3)
    with pytest.raises(ValueError, match="unknown layout 'staggered'"):
        Grid((4, 4), ("periodic", "staggered"))


def test_an_axis_has_its_own_layout():
    channel = Grid((5, 4), ("inclusive", "periodic"))
    assert channel.axis(0).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert channel.axis(1).tolist() == [0, 0.25, 0.5, 0.75]
    assert channel.spacing == (0.25, 0.25)
    assert Grid((5, 4), ("periodic", "periodic")) == Grid((5, 4), "periodic")
