"""What the pictures of a page have in common."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from torchcno.paper.published import COMPARED, MODEL_TITLES
from torchcno.runs.pictures.drawing import COLOURS, INK, MODEL_COLOURS, strokes, tidy


def test_every_model_has_a_colour_of_its_own():
    assert MODEL_COLOURS.keys() == {MODEL_TITLES[model] for model in COMPARED}
    every = [*MODEL_COLOURS.values(), *COLOURS]
    assert len(set(every)) == len(every)


def luminance(colour: str) -> float:
    """That of the guidelines for accessible pages (WCAG 2, relative luminance)."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("page", ["#ffffff", "#000000"])
def test_words_can_be_read_on_light_pages_and_on_dark_ones(page):
    low, high = sorted(luminance(colour) + 0.05 for colour in (INK, page))
    assert high / low >= 4.5


def test_a_model_has_its_colour_whatever_stands_beside_it():
    alone, beside = strokes(["CNO"]), strokes(["FNO", "mean", "CNO, best", "small CNO", "CNO"])
    assert alone["CNO"] == beside["CNO"]
    ours = [beside[name] for name in ("CNO", "CNO, best", "small CNO")]
    assert {stroke["color"] for stroke in ours} == {MODEL_COLOURS["CNO"]}
    assert len({stroke["linestyle"] for stroke in ours}) == 3


def test_many_runs_without_a_title_can_be_told_apart():
    names = [f"run {i}" for i in range(12)]
    assert len({tuple(stroke.values()) for stroke in strokes(names).values()}) == len(names)


@pytest.mark.parametrize(
    ("low", "high"), [(0.83, 1.27), (0.09, 0.4), (2.8, 4.8), (6e5, 8e6), (1e-8, 1.0), (0.99, 1.01)]
)
def test_a_logarithmic_axis_has_three_labels_or_more(low, high):
    figure = Figure()
    axes = figure.subplots()
    axes.loglog([low, high], [low, high])
    tidy(axes)
    figure.draw_without_rendering()
    for axis in (axes.xaxis, axes.yaxis):
        first, last = sorted(axis.get_view_interval())
        ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        labels = {label.get_text() for tick, label in ticks if first <= tick <= last}
        assert len(labels - {""}) >= 3
