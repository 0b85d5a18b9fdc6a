"""Gradients of few channels by windows are those of the convolution."""

import pytest
import torch
import torch.nn.functional as F

from torchcno.arithmetic import arithmetic
from torchcno.operators.fused import convolution


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("channels", [(5, 1), (5, 2), (1, 6), (2, 3), (1, 1)])
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)
def test_a_kernel_of_few_channels_has_the_gradient_of_the_convolution(channels, k, margin):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*channels, k, k, generator=generator).requires_grad_()
    x = torch.randn(3, channels[1], 8, 7, generator=generator)
    y = F.conv2d(x, weight, padding=margin)
    dy = torch.randn(y.shape, generator=generator)
    (expected,) = torch.autograd.grad(y, weight, dy)
    for fields in ((dy, x), (t.contiguous(memory_format=torch.channels_last) for t in (dy, x))):
        torch.testing.assert_close(convolution.by_windows(*fields, weight, margin), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("channels", "margin"), [((64, 1), 1), ((160, 2), 0), ((1, 64), 0)])
def test_gradients_of_few_channels_on_the_gpu(channels, margin, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    how = {"generator": generator, "device": "cuda"}
    weight = torch.randn(*channels, 3, 3, **how)
    x = torch.randn(8, channels[1], 34, 34, **how).to(dtype)
    dy = torch.randn(8, channels[0], 32 + 2 * margin, 32 + 2 * margin, **how).to(dtype)
    dy = dy.contiguous(memory_format=torch.channels_last)
    exact = convolution.by_library(dy.double(), x.double(), weight.double(), margin)
    with arithmetic("32"):
        found = convolution.weight_gradient(dy, x, weight, margin)
    assert float((found - exact).norm() / exact.norm()) < 1e-5  # products of halves are exact
