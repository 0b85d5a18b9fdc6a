"""What single layers fold back, against what their spectra say."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchcno.evaluation.layers import folded_energy, layer_aliasing
from torchcno.grids import unit_positions
from torchcno.models.galerkin_transformer import GalerkinTransformer, GalerkinTransformerConfig
from torchcno.operators.activation import Activation
from torchcno.operators.filters import Ideal, WindowedSinc
from torchcno.spectral import resample


def energy_beyond(sigma, x, fine=128):
    """The share of energy of σ(x) beyond the band of x, from a much finer grid."""
    n = x.shape[-1]
    y = sigma(resample(x, (fine,), "periodic"))
    y_hat = torch.fft.rfft(y, norm="forward").abs().square()
    y_hat[..., 1:] *= 2
    return float(y_hat[..., (n + 1) // 2 :].sum() / y_hat.sum())


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_a_wave_that_folds_has_the_energy_of_the_wave():
    """cos² of k = 5 on 16 points: 1/4 in the mean, 1/8 in the wave 10 that folds to 6."""
    x = torch.cos(2 * math.pi * 5 * unit_positions(16, "periodic"))[None, None]
    assert folded_energy(torch.square, x) == pytest.approx(1 / 3)
    y = torch.cos(2 * math.pi * 3 * unit_positions(16, "periodic"))[None, None]
    assert folded_energy(torch.square, y) < 1e-14


@pytest.mark.parametrize("sigma", [F.gelu, torch.tanh, torch.square])
@pytest.mark.parametrize("n", [15, 17])
def test_folded_energy_is_the_energy_beyond_the_band(sigma, n):
    """Nothing but translations on the own grid, and yet what an eight times finer one sees."""
    x = noise(2, 3, n)
    assert folded_energy(sigma, x) == pytest.approx(energy_beyond(sigma, x), rel=1e-3)


def test_pooling_and_striding_fold_by_the_step_of_the_coarser_grid():
    x = torch.cos(2 * math.pi * 6 * unit_positions(16, "periodic"))[None, None]
    # Every second sample of the wave 6 is a wave of 8 points: all of it was folded.
    assert folded_energy(lambda v: v[..., ::2], x) == pytest.approx(1)
    # Averages of two neighbours damp it and fold it all the same.
    assert folded_energy(lambda v: F.avg_pool1d(v, 2), x) == pytest.approx(1)
    low = torch.cos(2 * math.pi * 3 * unit_positions(16, "periodic"))[None, None]
    assert folded_energy(lambda v: v[..., ::2], low) < 1e-14


def test_repeating_samples_leaves_images():
    """Nearest upsampling of wave 3 on 8 points: its image, wave 5, is left with sin²(3π/16)."""
    x = torch.cos(2 * math.pi * 3 * unit_positions(8, "periodic"))[None, None]
    image = math.sin(math.pi * 3 / 16) ** 2
    assert folded_energy(lambda v: v.repeat_interleave(2, -1), x) == pytest.approx(image)


@pytest.mark.parametrize(("size_in", "size_out"), [(16, 16), (16, 8), (8, 16)])
def test_filters_keep_out_what_sigma_puts_beyond_the_band(size_in, size_out):
    def layer(filter, sigma, upsampling):
        sizes = ((size_in,) * 2, (size_out,) * 2)
        return Activation(1, *sizes, sigma, filter, "periodic", upsampling).double()

    # Half of the band, as windowed filters are for: they blur what is next to its edge.
    x = resample(noise(1, 1, size_in // 2, size_in // 2), (size_in, size_in), "periodic")
    with torch.no_grad():
        exact = folded_energy(layer(Ideal(), "polynomial", 2), x)
        twice, four_times = (folded_energy(layer(Ideal(), "leaky_relu", n), x) for n in (2, 4))
        windowed = folded_energy(layer(WindowedSinc(), "leaky_relu", 2), x)
        naked = folded_energy(lambda v: F.leaky_relu(resample(v, (size_out,) * 2, "periodic")), x)
    assert exact < 1e-14
    assert four_times < twice < naked
    assert windowed < naked


def test_away_from_the_edges_a_taper_changes_little():
    x = noise(4, 2, 64)
    periodic, tapered = (folded_energy(F.gelu, x, periodic=kind) for kind in (True, False))
    assert tapered == pytest.approx(periodic, rel=0.5)
    assert folded_energy(torch.square, noise(4, 2, 64), periodic=False) > 1e-3
    smooth = torch.sin(2 * math.pi * 3 * unit_positions(64, "inclusive"))[None, None]
    assert folded_energy(torch.square, smooth, periodic=False) < 1e-6


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(2, 2, 1)

    def forward(self, x):
        return F.max_pool1d(torch.tanh(self.mix(x)), 2)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Conv1d(1, 2, 3, padding=1)
        self.inner = Inner()
        self.sigma = nn.ReLU(inplace=True)
        self.norm = nn.BatchNorm1d(2).eval()

    def forward(self, x):
        y = self.inner(self.lift(x))
        y = self.sigma(y - y.mean())
        return F.interpolate(self.sigma(self.norm(y) - y.mean()), scale_factor=2)


def test_layers_are_found_where_they_run_and_linear_ones_left_out():
    torch.manual_seed(0)
    model, x = Outer().double(), noise(1, 1, 16)
    with torch.no_grad():
        before = model(x)
        layers = layer_aliasing(model, x)
        torch.testing.assert_close(model(x), before)
    assert [(layer.name, layer.kind) for layer in layers] == [
        ("inner.tanh", "tanh"),
        ("inner.max_pool1d", "max_pool1d"),
        ("sigma", "ReLU"),
        ("sigma (2)", "ReLU"),
        ("interpolate", "interpolate"),
    ]
    assert [(layer.size_in, layer.size_out) for layer in layers[:3]] == [
        ((16,), (16,)),
        ((16,), (8,)),
        ((8,), (8,)),
    ]
    assert all(layer.folded > 1e-6 for layer in layers if layer.kind != "ReLU")


def test_features_of_an_attention_s_heads_are_no_fields():
    """(batch, head, point, feature) has as many axes as a field, and nothing to translate."""
    torch.manual_seed(0)
    config = GalerkinTransformerConfig(blocks=1, heads=2, width=12, decoder_width=4, modes=3)
    model = GalerkinTransformer(config).eval()
    with torch.no_grad():
        layers = layer_aliasing(model, noise(1, 1, 16, 16).float())
    assert layers
    assert {size for layer in layers for size in (layer.size_in, layer.size_out)} <= {
        (n, n) for n in (16, 12, 8)
    }
