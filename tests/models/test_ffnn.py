import pytest
import torch
from torch import nn

from torchcno.models.ffnn import FFNN, FFNNConfig


def build(layers: int) -> FFNN:
    torch.manual_seed(0)
    return FFNN(
        FFNNConfig(in_channels=2, out_channels=3, size=(4, 6), layers=layers, width=5)
    ).eval()


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 10])
def test_has_its_number_of_hidden_layers(layers: int) -> None:
    """L of d neurons: one that reads the points, L − 1 among themselves."""
    linear = [module for module in build(layers).modules() if isinstance(module, nn.Linear)]
    assert [layer.out_features for layer in linear].count(5) == layers


def test_shortcuts_span_two_layers() -> None:
    """With each block's last norm at zero the blocks are activations, which only scale z < 0."""
    model = build(layers=7)
    for block in model.blocks:
        nn.init.zeros_(block.body[-1].weight)
    z = torch.randn(3, 5)
    expected = torch.where(z > 0, z, 0.01**3 * z)
    torch.testing.assert_close(model.blocks(z), expected)


def test_points_are_read_in_the_order_they_are_written() -> None:
    """Output channel, y and x of the last layer's neurons, row by row."""
    model = build(layers=2)
    nn.init.zeros_(model.output.weight)
    model.output.bias.data = torch.arange(3 * 4 * 6.0)
    v = model(torch.randn(2, 2, 4, 6))
    c, y, x = torch.meshgrid(torch.arange(3), torch.arange(4), torch.arange(6), indexing="ij")
    torch.testing.assert_close(v[1], (24.0 * c + 6.0 * y + x))


def test_says_which_size_it_needs() -> None:
    message = r"size \(8, 12\), but the model accepts only \(4, 6\); .* size=\(8, 12\)"
    with pytest.raises(ValueError, match=message):
        build(layers=2)(torch.zeros(1, 2, 8, 12))


def test_layers_begin_with_the_variance_that_keeps_a_signal():
    """Var w = 4 / (fan in + fan out): with σ halving it, a square layer keeps the mean square."""
    torch.manual_seed(0)
    for layer in FFNN(FFNNConfig(size=(16, 16), layers=4, width=256)).modules():
        if isinstance(layer, torch.nn.Linear):
            expected = 4 / sum(layer.weight.shape)
            assert layer.weight.var().item() == pytest.approx(expected, rel=0.05)
            assert not layer.bias.any()


def test_a_norm_behind_the_last_activation_sees_what_is_activated():
    """In training its outputs have mean zero, which outputs of σ have not."""
    torch.manual_seed(0)
    config = FFNNConfig(size=(4, 4), layers=2, width=5, norm_behind=True)
    last = FFNN(config).train().last
    assert last(torch.randn(64, 5)).mean(0).abs().max() < 1e-5
    assert last[0][1](last[0][0](torch.randn(64, 5))).mean() > 0.1
