import pytest
import torch
from torch import nn

from torchcno.operators.fused.layout import laid_out


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_have_channels_last_where_the_network_says_so(channels):
    class Plane(nn.Module):
        CHANNELS_LAST = True

        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(channels, 5, 3)
            self.line = nn.Conv1d(channels, 5, 3)

    u = torch.randn(2, channels, 8, 8)
    first, last = Plane(), laid_out(Plane())
    last.load_state_dict(first.state_dict())
    v = last.convolution(u)
    assert v.is_contiguous(memory_format=torch.channels_last)
    assert not v.is_contiguous()
    torch.testing.assert_close(v, first.convolution(u))
    assert laid_out(nn.Conv2d(3, 5, 3)).weight.is_contiguous()
