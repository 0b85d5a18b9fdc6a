"""Figures of the method and the data show what the paper says of them."""

import numpy as np
import pytest
from scipy.signal import firwin

from torchcno.operators.filters import WindowedSinc
from torchcno.paper.figures.depictions import (
    RATE,
    draw_cuts,
    draw_figure_22,
    frequency_response,
    taps_of,
)
from torchcno.paper.published import HALF_WIDTHS


@pytest.mark.parametrize("half_width", HALF_WIDTHS)
def test_the_filters_are_the_designs_of_figure_4(half_width):
    cutoff = RATE / 2.0001
    width = 2 * (half_width * RATE - cutoff)
    expected = firwin(12, cutoff, width=width, fs=2 * RATE)
    np.testing.assert_allclose(taps_of(WindowedSinc(half_width=half_width)), expected, atol=1e-12)


def test_the_response_is_that_of_the_taps():
    h = taps_of(WindowedSinc())
    w, response = frequency_response(h)
    assert (w[0], w[-1]) == (0, RATE)
    assert response[0] == pytest.approx(1)
    at = np.searchsorted(w, RATE / 2)  # w_c, where the response of a windowed sinc is half
    assert response[at] == pytest.approx(0.5, abs=0.01)


def test_the_cuts_are_moved_by_the_wind():
    *_, cut = draw_cuts().axes
    before, after = (line.get_xydata() for line in cut.lines)
    middles = [(x * u).sum() / u.sum() for x, u in (before.T, after.T)]
    assert middles[1] - middles[0] == pytest.approx(0.2, abs=4e-3)  # half a step of the grid


def test_the_mesh_has_the_published_nodes():
    wide, _ = draw_figure_22().axes
    lines = wide.collections[0].get_segments()
    lengths = [len(line) for line in lines]
    assert lengths == [243] * 43 + [43] * 243
    assert (wide.get_xlabel(), wide.get_ylabel()) == ("x", "y")
