"""The lines and bars of the figures are the numbers that were measured."""

import numpy as np
import pytest
import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.evaluation.aliasing import Audit, Rung, Translation
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.layers import LayerAliasing
from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.evaluation.spectra import radial_spectrum
from torchcno.grids import Grid, Layout
from torchcno.runs.evaluate import Evaluation, RunErrors
from torchcno.runs.pictures.drawing import MODEL_COLOURS
from torchcno.runs.pictures.equivalence import (
    draw_audits,
    draw_resolutions,
    draw_run_spectra,
)


def predicted(name: str, truth: torch.Tensor, factor: float, layout: Layout) -> RunErrors:
    """A run whose prediction is the truth times a factor."""
    fields = Fields(truth, truth, Grid(tuple(truth.shape[2:]), layout))
    errors = sample_errors(factor * truth, fields, Normalization.identity())
    evaluation = Evaluation(fields, factor * truth, errors, "test")
    return RunErrors(name, truth.shape[-1], [evaluation], {})


def test_errors_against_resolution():
    curves = [
        ResolutionCurve("cno", 64, {128: 2.1, 32: 2.2, 64: 2.0}, {}),
        ResolutionCurve("unet", 64, {64: 3.0, 128: 9.0}, {32: "too small"}),
    ]
    figure = draw_resolutions(curves)
    absolute, relative = figure.axes
    cno, unet = absolute.lines[:2]
    assert cno.get_xydata().tolist() == [[32, 2.2], [64, 2.0], [128, 2.1]]
    assert unet.get_xydata().tolist() == [[64, 3.0], [128, 9.0]]
    assert relative.lines[1].get_ydata().tolist() == [1, 3]
    assert {text.get_text() for text in absolute.get_legend().get_texts()} == {"cno", "unet"}


def test_models_side_by_side_with_what_could_not_be_measured():
    layers = tuple(
        LayerAliasing(f"sigma.{i}", "ReLU", (8, 8), (8 - 4 * i, 8 - 4 * i), share)
        for i, share in enumerate((1e-2, 1e-3))
    )
    rungs = (Rung((4, 4), failure="too small"), Rung((8, 8), 0.2, 0.1))
    audits = [
        Audit("unet", "periodic", (16, 16), rungs, (Translation(0.5, 0.3),), layers),
        Audit("ffnn", "inclusive", (8, 8), (), (), ()),
    ]
    ladder, translations, unet, ffnn = draw_audits(audits).axes
    assert [line.get_xydata().tolist() for line in ladder.lines] == [[[8, 0.1]]]
    assert [line.get_xydata().tolist() for line in translations.lines] == [[[0.5, 0.3]]]
    assert [bar.get_height() for bar in unet.patches] == pytest.approx([1e-2, 1e-3])
    assert [bool(bar.get_hatch()) for bar in unet.patches] == [False, True]
    assert not ffnn.patches


def test_presets_of_a_model_differ_in_their_lines_alone():
    names = ("FNO", "CNO, best", "CNO", "a run")
    curves = [ResolutionCurve(name, 64, {32: 2.0, 64: 1.0}, {}) for name in names]
    audits = [Audit(name, "periodic", (8, 8), (Rung((4, 4), 0.2, 0.1),), (), ()) for name in names]
    for figure in (draw_resolutions(curves), draw_audits(audits)):
        lines = {line.get_label(): line for line in figure.axes[0].lines}
        assert lines["CNO"].get_color() == lines["CNO, best"].get_color() == MODEL_COLOURS["CNO"]
        assert lines["CNO"].get_linestyle() != lines["CNO, best"].get_linestyle()
        assert lines["FNO"].get_color() == MODEL_COLOURS["FNO"]
        assert lines["a run"].get_color() not in MODEL_COLOURS.values()


@pytest.mark.parametrize("layout", ["periodic", "inclusive", "cell-centred"])
def test_spectra_of_truth_and_predictions(layout):
    truth = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    runs = [predicted(name, truth, factor, layout) for name, factor in (("twin", 1), ("half", 0.5))]
    figure = draw_run_spectra(runs, "test")
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert np.array_equal(images[0], images[1])
    np.testing.assert_allclose(images[2], images[0] - np.log10(2), atol=1e-6)
    radial = next(axes for axes in figure.axes if axes.get_ylabel() == "energy")
    expected = radial_spectrum(truth, layout)
    np.testing.assert_allclose(
        radial.lines[0].get_ydata(), expected[expected > 0][-len(radial.lines[0].get_ydata()) :]
    )
    bands = next(axes for axes in figure.axes if "band" in axes.get_ylabel())
    np.testing.assert_allclose(bands.lines[1].get_ydata(), 0.5, atol=1e-6)


def test_long_names_leave_room_for_the_panels():
    """Runs of the same name are called by their paths."""
    names = [f"{'a/long/path/to/' * 12}{run}" for run in ("first", "second", "third")]
    truth = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    rungs, translations = (Rung((8, 8), 0.2, 0.1),), (Translation(0.5, 0.3),)
    audits = [Audit(n, "periodic", (16, 16), rungs, translations, layers) for n in names]
    for figure in (
        draw_run_spectra([predicted(name, truth, 0.5, "periodic") for name in names], "test"),
        draw_audits(audits),
        draw_resolutions([ResolutionCurve(n, 64, {64: 2.0, 128: 2.1}, {}) for n in names]),
    ):
        figure.draw_without_rendering()  # warns, and fails, where nothing is left of a panel
        assert all(axes.get_position().width > 0.1 for axes in figure.axes if axes.get_xlabel())
