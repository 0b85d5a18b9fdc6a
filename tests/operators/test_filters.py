from dataclasses import asdict

import pytest
import torch
from scipy.signal import firwin

from torchcno.operators.filters import Ideal, Nearest, WindowedSinc, filter_from, fir_taps


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize(
    "filter", [WindowedSinc(), WindowedSinc(8), WindowedSinc(6, 0.6), WindowedSinc(6, 0.5, 2.1)]
)
def test_taps_are_the_standard_kaiser_design(filter, factor):
    _, down = fir_taps(factor, filter, "zero")
    half_width = filter.half_width - 1 / filter.cutoff
    expected = firwin(
        filter.taps * factor, 1 / filter.cutoff, width=2 * half_width, fs=factor, scale=True
    )
    torch.testing.assert_close(down, torch.from_numpy(expected), rtol=0, atol=1e-14)


@pytest.mark.parametrize("filter", [WindowedSinc(taps=8, half_width=1.0), Ideal(), Nearest()])
def test_a_filter_survives_its_dictionary(filter):
    assert filter_from(asdict(filter)) == filter
    assert filter_from(filter.kind) == type(filter)()


def test_bad_filters_say_what_to_do():
    with pytest.raises(ValueError, match=r"more than 1/cutoff = 0\.5"):
        WindowedSinc(half_width=0.5, cutoff=2.0)
    with pytest.raises(ValueError, match="use 2 or more"):
        WindowedSinc(taps=1)
    with pytest.raises(ValueError, match="choose from ideal, nearest, windowed-sinc"):
        filter_from({"kind": "idle"})
