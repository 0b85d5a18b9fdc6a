import pytest
import torch
from torch import nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import lay_channels_last


@pytest.mark.parametrize("channels", [1, 3])
def test_fields_take_the_layout_of_the_weights(channels):
    u = torch.randn(2, channels, 8, 8)
    first, last = nn.Conv2d(channels, 5, 3), nn.Conv2d(channels, 5, 3)
    last.load_state_dict(first.state_dict())
    lay_channels_last(last)
    v = last(u)
    assert v.is_contiguous(memory_format=torch.channels_last)
    assert not v.is_contiguous()
    torch.testing.assert_close(v, first(u))
    lay_channels_last(last, last=False)
    assert last(u).is_contiguous()


def test_a_network_is_built_as_it_is_fastest_and_learns_the_same():
    model = CNO(CNOConfig(size=(16, 16), levels=1, width=4, neck_blocks=1, skip_blocks=0))
    again = CNO(model.config)
    again.load_state_dict(model.state_dict())
    lay_channels_last(again, last=False)
    weights = [model.lift.convolution1.weight, model.encoder[0].convolution.weight]
    assert all(weight.stride(1) == 1 for weight in weights)
    u = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(model(u), again(u), rtol=1e-4, atol=1e-5)
