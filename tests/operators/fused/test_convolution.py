"""Gradients of few channels by windows are those of the convolution."""

import pytest
import torch
import torch.nn.functional as F

from torchcno.operators.fused import convolution


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize(
    ("by_windows", "channels"),
    [(convolution._few_in, (5, 1)), (convolution._few_in, (5, 2)), (convolution._few_out, (1, 6))],
)
def test_a_kernel_of_few_channels_has_the_gradient_of_the_convolution(
    by_windows, channels, k, margin
):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*channels, k, k, generator=generator).requires_grad_()
    x = torch.randn(3, channels[1], 8, 7, generator=generator)
    y = F.conv2d(x, weight, padding=margin)
    dy = torch.randn(y.shape, generator=generator)
    (expected,) = torch.autograd.grad(y, weight, dy)
    for fields in ((dy, x), (t.contiguous(memory_format=torch.channels_last) for t in (dy, x))):
        torch.testing.assert_close(by_windows(*fields, weight, margin), expected)
