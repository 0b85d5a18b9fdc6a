"""Pictures of predictions and spectra show the fields, in one, two and three dimensions."""

import numpy as np
import pytest
import torch

from torchcno import Fields, Grid
from torchcno.data.normalization import Normalization
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.resolution import Evaluation
from torchcno.runs.measurements import spectra_of
from torchcno.runs.pictures.drawing import png
from torchcno.runs.pictures.fields import draw_predictions
from torchcno.runs.pictures.spectra import draw_spectra

SHAPES = [(16,), (8, 12), (6, 8, 10)]


def evaluation(shape, mask=None):
    torch.manual_seed(0)
    u, v, p = torch.randn(3, 4, 2, *shape)
    layout = ("inclusive", "periodic", "periodic")[: len(shape)]
    fields = Fields(u, v, Grid(shape, layout), mask, output_names=("v", "w"))
    errors = sample_errors(p, fields, Normalization.identity())
    return Evaluation(fields, p, errors, "test")


@pytest.mark.parametrize("shape", SHAPES)
def test_predictions_stand_beside_the_truth(shape):
    one = evaluation(shape)
    figure = draw_predictions(one, samples=2)
    axes = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in axes[:5]] == [
        "input 0",
        "input 1",
        "v",
        "v, predicted",
        "error",
    ]
    truth, predicted = one.fields.outputs[0, 0], one.prediction[0, 0]
    for ax, field in zip(axes[2:5], (truth, predicted, (predicted - truth).abs()), strict=True):
        shown = ax.lines[0].get_ydata() if len(shape) == 1 else ax.images[0].get_array()
        expected = field[len(field) // 2] if len(shape) == 3 else field
        assert np.array_equal(shown, expected)
    assert png(figure).startswith(b"\x89PNG")


def test_what_does_not_count_is_blank():
    mask = torch.rand(8, 12) < 0.7
    figure = draw_predictions(evaluation((8, 12), mask), samples=1)
    shown = figure.axes[2].images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(np.ma.masked_invalid(shown)), ~mask.numpy())


@pytest.mark.parametrize("shape", SHAPES)
def test_spectra_are_drawn_in_any_dimension(shape):
    figure = draw_spectra({"a": spectra_of(evaluation(shape))})
    assert png(figure).startswith(b"\x89PNG")
