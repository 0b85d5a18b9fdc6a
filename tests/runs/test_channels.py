"""A channel is learnt as well beside another one, whatever the units of both."""

from dataclasses import replace

import pytest
import torch

from torchcno import MODELS, PRESETS, Fields, Grid, train_on
from torchcno.evaluation.errors import channel_errors, published_error, summary

GRID = Grid((16, 16), "periodic")
RECIPE = replace(PRESETS["best"], epochs=40, batch_size=16, learning_rate=8e-3, loss="channel-l1")


@pytest.fixture(scope="module")
def flow():
    """A velocity around 0 and a pressure around 1e5, of one random field."""
    torch.manual_seed(0)
    k = torch.fft.fftfreq(16, 1 / 16)
    k2 = k[:, None] ** 2 + k**2
    hats = torch.fft.fft2(torch.randn(96, 1, 16, 16)) / (1 + k2)
    a, u, p = (torch.fft.ifft2(hats * torch.exp(-t * k2)).real for t in (0.0, 0.05, 0.1))
    return Fields(a, torch.cat([u + u * u, 1e5 * (1 + 0.02 * p)], dim=1), GRID)


def errors(fields, folder, **how):
    """The error of each output channel, relative to it, in percent."""
    train, val = fields.split(80, 16)
    torch.manual_seed(0)
    config = MODELS["fno"].Config(
        out_channels=fields.channels[1], size=GRID.shape, layers=2, width=8, modes=6, pad=0
    )
    operator = train_on(MODELS["fno"](config), train, val, folder, recipe=RECIPE, **how)
    found = channel_errors(operator.predict(val.inputs), val, operator.normalization)
    return [published_error(summary(one)) for one in found]


@pytest.mark.filterwarnings("ignore:output channel 1 is")  # 8e4 times as large as channel 0
def test_channels_of_units_1_and_1e5_are_learnt_as_well_as_alone(flow, tmp_path):
    together = errors(flow, tmp_path / "both")
    for c, error in enumerate(together):
        alone = Fields(flow.inputs, flow.outputs[:, [c]], GRID)
        assert error < 1.2 * errors(alone, tmp_path / str(c))[0]
