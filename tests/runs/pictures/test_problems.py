"""The pictures show the fields of the data files."""

import numpy as np
import pytest

from torchcno.data.samples import Samples
from torchcno.problems.airfoil import Airfoil, MeshConfig, SteadyConfig, c_mesh, rae2822
from torchcno.problems.poisson import Poisson
from torchcno.runs.pictures.problems import color_scale, draw_problem


def test_the_images_are_the_samples_in_and_out_of_distribution():
    problem = Poisson()
    figure = draw_problem(problem, samples=2, resolution=32, seed=3)
    drawn = [image.get_array() for ax in figure.axes for image in ax.images]
    expected = [
        field
        for split in ("test", "ood")
        for fields in Samples(problem, split, 32, seed=3).make(range(2))
        for field in fields[:, 0].numpy()
    ]
    assert all(np.array_equal(a, b) for a, b in zip(drawn, expected, strict=True))


def test_the_constants_that_change_are_named():
    figure = draw_problem(Poisson(), samples=1, resolution=32)
    headings = [part.get_suptitle() for part in figure.subfigs]
    assert headings == ["In distribution", "Out of distribution (K = 20)"]
    assert "−Δu = f" in figure.get_suptitle()


def test_the_mesh_of_the_airfoils_is_drawn_whole_and_from_near():
    hasty = SteadyConfig(
        start_cycles=1, cycles=2, check_every=1, residual_fall=1e9, lift_tolerance=1e9
    )
    problem = Airfoil(mesh=MeshConfig(around=48, wake=8, outward=12), steady=hasty)
    *_, below = draw_problem(problem, samples=1, resolution=32).subfigs
    x, y = c_mesh(rae2822(), problem.mesh).nodes[0].numpy()
    drawn = np.concatenate(below.axes[0].collections[0].get_segments())
    expected = np.stack([x, y], axis=-1)
    expected = np.concatenate([expected.reshape(-1, 2), np.swapaxes(expected, 0, 1).reshape(-1, 2)])
    assert np.array_equal(drawn, expected)

    def seen(axes):
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        return ((left <= x) & (x <= right) & (low <= y) & (y <= high)).mean()

    shares = [seen(axes) for axes in below.axes]
    assert shares[0] == 1
    assert all(0 < share < 0.8 for share in shares[1:])


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        ([-1.0, 3.0], (-3.0, 3.0, "RdBu_r")),  # zero is white
        ([0.0, 3.0], (0.0, 3.0, "viridis")),
        ([-0.125, 4.0], (-0.125, 4.0, "viridis")),  # an undershoot is no second sign
        ([np.nan, 1.0, 2.0], (1.0, 2.0, "viridis")),  # what a mask hides does not count
    ],
)
def test_colours(fields, scale):
    assert color_scale(np.array(fields, dtype=np.float32)) == scale
