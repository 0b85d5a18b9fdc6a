"""Copies of weights, and convolutions whose adjoint is a convolution."""

import pytest
import torch
import torch.nn.functional as F

from torchcno.arithmetic import arithmetic
from torchcno.operators import aside, lay_channels_last
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused import convolution, weights


def kernels(*shapes, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(shape, generator=generator) for shape in shapes)
    return [w.to(device).contiguous(memory_format=torch.channels_last) for w in drawn]


def turn(weight):
    return weight.transpose(0, 1).flip(2, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)
def test_one_program_copies_and_turns_all_weights(dtype):
    some = kernels((40, 33, 3, 3), (8, 8, 1, 1), (5, 70, 5, 5))
    table, copies = weights.make_table(some, dtype)
    for w in some:
        w.mul_(1.5)  # after the table is made
    weights._launch(table, dtype)
    for w in some:
        assert torch.equal(copies.turned[id(w)], turn(w).to(dtype))
        assert copies.turned[id(w)].is_contiguous(memory_format=torch.channels_last)
        if dtype != torch.float32:
            assert torch.equal(copies.straight[id(w)], w.to(dtype))


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize(
    "boundary", ["zero", "periodic", ("zero", "periodic"), ("periodic", "zero")]
)
def test_the_adjoint_is_the_convolution_with_the_kernel_turned_round(boundary, k):
    torch.manual_seed(0)
    K = Convolution(2, 3, k, 2, boundary).double()
    x = torch.randn(2, 2, 6, 7, dtype=torch.float64, requires_grad=True)
    y = K(x)
    dy = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, x, dy)
    extended, _ = K.extended(x.detach())
    again = convolution._Turning.apply(x, extended, K.weight, K.bias, turn(K.weight), K)
    torch.testing.assert_close(again, y)
    torch.testing.assert_close(torch.autograd.grad(again, x, dy)[0], expected)


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", ["zero", "periodic", "even"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_on_the_gpu_a_step_has_the_gradients_of_the_definition(boundary, dtype):
    torch.manual_seed(0)
    K = Convolution(16, 24, 3, 2, boundary).to("cuda", torch.float64)
    x = torch.randn(4, 16, 12, 20, device="cuda").contiguous(memory_format=torch.channels_last)
    exact = K(there := x.double().requires_grad_())
    dy = torch.randn_like(exact)
    expected = torch.autograd.grad(exact, (there, K.weight), dy)
    K.float()
    lay_channels_last(K)
    half = torch.autocast("cuda", dtype, enabled=dtype != torch.float32)
    for _ in range(2):  # the second time in the places of the first
        field = x.to(dtype, copy=True).requires_grad_()
        K.weight.grad = None
        with arithmetic("32"), aside(K):
            with half:
                y = convolution.convolve(field, K)
            y.backward(dy.to(y.dtype))
        for found, true in zip((field.grad, K.weight.grad), expected, strict=True):
            error = float((found.double() - true).norm() / true.norm())
            assert error < (1e-5 if dtype == torch.float32 else 2e-3)


def test_turning_twice_is_the_kernel():
    (w,) = kernels((4, 6, 3, 3))
    assert torch.equal(turn(turn(w)), w)
    x = torch.randn(1, 6, 8, 8)
    y = F.conv2d(x, w, padding=1)
    dy = torch.randn_like(y)
    assert float((y * dy).sum()) == pytest.approx(
        float((x * F.conv2d(dy, turn(w), padding=1)).sum()), rel=1e-4
    )
