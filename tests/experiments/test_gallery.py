"""The pictures show the fields of the data files."""

import numpy as np
import pytest

from torchcno.data.samples import Samples
from torchcno.experiments.gallery import color_scale, draw_problem
from torchcno.problems.poisson import Poisson


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
