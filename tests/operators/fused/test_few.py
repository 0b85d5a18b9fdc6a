"""Convolutions of few channels by programs are those of the definition, and so are adjoints."""

from itertools import product

import pytest
import torch

from torchcno.arithmetic import arithmetic
from torchcno.operators import aside, lay_channels_last
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused import convolution, few

CHANNELS = [(1, 20), (2, 33), (20, 1), (130, 2), (1, 1)]  # in, out
PAIRS = list(product(("zero", "periodic"), repeat=2))
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def kernel_of(channels, k, boundary, device="cpu"):
    torch.manual_seed(0)
    K = Convolution(*channels, k, 2, boundary).to(device)
    lay_channels_last(K)
    return K


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("boundaries", PAIRS)
@pytest.mark.parametrize(("channels", "k"), [*((c, 3) for c in CHANNELS), ((3, 1), 5), ((1, 3), 5)])
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)
def test_a_program_has_the_convolution_and_its_adjoint(channels, k, boundaries, layout):
    K = kernel_of(channels, k, boundaries)
    x = torch.randn(2, channels[0], 6, 7).contiguous(memory_format=layout).requires_grad_()
    expected = K(x)
    dy = torch.randn(expected.shape).contiguous(memory_format=layout)
    (dx,) = torch.autograd.grad(expected, x, dy)
    with torch.no_grad(), arithmetic("32"):
        y = few.launch(x, K.weight, K.bias, boundaries, torch.float32, False)
        found = few.launch(dy, K.weight, None, boundaries, torch.float32, True)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(found, dx)
    for made in (y, found):
        assert made.is_contiguous(memory_format=torch.channels_last)
    library = few.by_library(x, K.weight, K.bias, boundaries, torch.float32, False)
    torch.testing.assert_close(library, expected)
    library = few.by_library(dy, K.weight, None, boundaries, torch.float32, True)
    torch.testing.assert_close(library, dx)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("boundaries", PAIRS)
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)
def test_a_step_has_the_gradients_of_the_definition(channels, boundaries, monkeypatch):
    K = kernel_of(channels, 3, boundaries)
    x = torch.randn(2, channels[0], 6, 7, requires_grad=True)
    expected = K(x)
    dy = torch.randn(expected.shape)
    theirs = torch.autograd.grad(expected, (x, K.weight, K.bias), dy)
    monkeypatch.setattr(few, "has_program", lambda *given: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    field = x.detach().clone().requires_grad_()
    with aside(K):
        y = convolution.convolve(field, K)
        torch.testing.assert_close(y, expected)
        y.backward(dy)
    for found, true in zip((field.grad, K.weight.grad, K.bias.grad), theirs, strict=True):
        torch.testing.assert_close(found, true)


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [(1, 64), (64, 1), (2, 64), (160, 2)])
@pytest.mark.parametrize("boundary", ["zero", "periodic", "even"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_on_the_gpu_few_channels_have_the_gradients_of_the_definition(channels, boundary, dtype):
    K = kernel_of(channels, 3, boundary, "cuda").double()
    x = torch.randn(4, channels[0], 12, 20, device="cuda")
    exact = K(there := x.double().requires_grad_())
    dy = torch.randn_like(exact)
    expected = torch.autograd.grad(exact, (there, K.weight, K.bias), dy)
    K.float()
    lay_channels_last(K)
    assert few.has_program(x, K.weight, K.boundaries) == (boundary != "even")
    field = x.to(dtype).requires_grad_()
    half = torch.autocast("cuda", dtype, enabled=dtype != torch.float32)
    with arithmetic("32"), aside(K):
        with half:
            y = convolution.convolve(field, K)
        y.backward(dy.to(y.dtype))
    assert y.dtype == dtype
    for found, true in zip(
        (y, field.grad, K.weight.grad, K.bias.grad), (exact.detach(), *expected), strict=True
    ):
        error = float((found.detach().double() - true).norm() / true.norm())
        assert error < (1e-5 if dtype == torch.float32 else 2e-3)
