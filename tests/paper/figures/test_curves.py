"""Fields that are compared have the same colours, and axes show what was measured."""

import numpy as np
import pytest
import torch

from torchcno.paper.figures.samples import draw_examples, draw_failures
from torchcno.runs.evidence import Examples
from torchcno.runs.measurements import Spectra
from torchcno.runs.pictures.efficiency import Size, draw_efficiency
from torchcno.runs.pictures.spectra import draw_spectra


def predicted(factor: float) -> Examples:
    """A sample, and a prediction that is so many times its truth."""
    u, v = torch.rand(2, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Examples(u, v, factor * v)


def test_above_a_field_of_errors_stands_how_large_it_is():
    models = {"CNO": predicted(1.01), "FNO": predicted(-1.0), "UNet": predicted(1.5)}
    figure = draw_examples({"in": models}, {"in": {"CNO": 0.01, "FNO": 2.0}})
    drawn = [axes for axes in figure.axes if axes.get_title().startswith("|error|")]
    titles = [axes.get_title() for axes in drawn]
    assert titles == ["|error|: 1.00 %", "|error|: 200.00 %", "|error|"]
    for axes, one in zip(drawn, models.values(), strict=True):
        error = (one.prediction - one.output)[0, 0].abs()
        assert axes.images[0].get_clim() == pytest.approx((0, float(error.max())))


def test_failures_have_the_colours_of_the_truth():
    figure = draw_failures({"DON": predicted(7.0), "FFNN": predicted(-1.0)})
    _, truth, *predictions = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(predictions) == 2
    for image in predictions:
        assert image.get_clim() == truth.get_clim()
        assert image.get_cmap().name == truth.get_cmap().name


def least_energy_shown(smallest: float) -> float:
    """Where the axis of energies ends below a truth that has those from 1 to `smallest`."""
    energy = {
        "truth": np.array([0.0, 1.0, 0.1, smallest]),
        "prediction": np.array([0.0, 1.0, 0.1, 1e-5]),
    }
    amplitude = dict.fromkeys(energy, np.ones((3, 3)))
    edges, errors = np.array([(1, 2), (2, 4)]), np.array([0.1, 0.2])
    drawn = draw_spectra({"CNO": Spectra(energy, amplitude, np.arange(1.0, 4.0), edges, errors)})
    radial = next(axes for axes in drawn.axes if axes.get_ylabel() == "energy")
    return radial.get_ylim()[0]


def test_rounding_of_the_truth_does_not_squeeze_the_energies():
    assert least_energy_shown(1e-24) == pytest.approx(1e-12)
    assert 1e-8 < least_energy_shown(1e-6) < 1e-6


def test_figure_3_shows_the_best_the_small_one_and_the_times_of_one_device():
    sizes = [Size(10**6 * (i + 1), 0.1 * (i + 1), 5.0 - i, "GPU") for i in range(3)]
    small, elsewhere = Size(800_000, 0.2, 4.5, "GPU", small=True), Size(10**7, 9.0, 1.0, "CPU")
    by_size, by_time = draw_efficiency({"CNO": [*sizes, small, elsewhere], "FNO": sizes}).axes
    points = {line.get_label(): line.get_xydata().tolist() for line in by_size.lines}
    assert points["CNO, the best"] == [[10**7, 1.0]]
    assert points["CNO, the small one"] == [[800_000, 4.5]]
    assert points["FNO, the best"] == [[3 * 10**6, 3.0]]
    assert by_time.get_xlabel() == "seconds an epoch, GPU"
    assert max(line.get_xdata().max() for line in by_time.lines) < 1.0


def test_a_band_without_truth_is_not_drawn():
    energy = {"truth": np.array([0.0, 1.0, 0.1, 0.0]), "prediction": np.array([0.0, 0.9, 0.1, 0.1])}
    amplitude = dict.fromkeys(energy, np.ones((3, 3)))
    edges, errors = np.array([(1, 2), (2, 4), (4, 8)]), np.array([1.5, 0.2, 3e5])
    drawn = draw_spectra({"FNO": Spectra(energy, amplitude, np.arange(1.0, 4.0), edges, errors)})
    bands = next(axes for axes in drawn.axes if "band" in axes.get_ylabel())
    assert bands.lines[0].get_ydata().tolist() == [1.5, 0.2]
