"""Batch norm by programs is PyTorch's: fields, gradients and statistics."""

import copy

import pytest
import torch
from torch import Tensor, nn

from torchcno.operators.fused.batch_norm import batch_statistics, normalise

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)


def check_statistics(x: Tensor) -> None:
    channels = x.shape[1]
    running = [torch.full((channels,), value, device=x.device) for value in (2.0, 3.0)]
    true = torch.batch_norm_update_stats(x.double(), *(r.double() for r in running), 0.3)
    expected = [
        *true,
        0.7 * 2 + 0.3 * true[0],
        0.7 * 3 + 0.3 * x.double().var((0, 2, 3)),
    ]
    for found, exact in zip([*batch_statistics(x, *running, 0.3), *running], expected, strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)


@interpreted
@pytest.mark.parametrize(
    ("shape", "mean"), [((3, 4, 8, 8), 0.0), ((2, 70, 5, 7), 1.0), ((40, 17, 20, 20), 1000.0)]
)
def test_statistics_are_those_of_all_points(shape, mean):
    """Of one tile and of several, of one block of channels and of two, with points left over."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + mean
    check_statistics(x.contiguous(memory_format=torch.channels_last))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(32, 32, 64, 64), (32, 256, 8, 8), (8, 48, 33, 31)])
def test_statistics_on_the_gpu(shape, dtype):
    x = (torch.randn(shape, device="cuda") + 3).to(dtype)
    check_statistics(x.contiguous(memory_format=torch.channels_last))


def trained(channels: int) -> nn.BatchNorm2d:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(channels, momentum=0.3)
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(tensor)
    return norm


def fields(shape: tuple[int, ...], mean: float, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """x and dy, with channels last."""
    generator = torch.Generator().manual_seed(1)
    both = (torch.randn(shape, generator=generator) + c for c in (mean, 0.1))
    x, dy = (t.to(device).contiguous(memory_format=torch.channels_last) for t in both)
    return x, dy


def results(way, norm: nn.BatchNorm2d, x: Tensor, dy: Tensor) -> list[Tensor]:
    """What comes of x in training, and of x with a field beside it and with statistics held."""
    x, plus = x.detach().requires_grad_(), dy.detach().to(x).requires_grad_()
    norm.train()
    y = way(x, norm, None)
    found = [y, *torch.autograd.grad(y, [x, *norm.parameters()], dy.to(y)), *norm.buffers()]
    for training in (True, False):
        norm.train(training)
        y = way(x, norm, plus)
        found += [y, *torch.autograd.grad(y, [x, plus, *norm.parameters()], dy.to(y))]
    return found


def by_pytorch(x: Tensor, norm: nn.BatchNorm2d, plus: Tensor | None) -> Tensor:
    return norm(x) if plus is None else norm(x) + plus


def check(shape: tuple[int, ...], mean: float, device: str, dtype: torch.dtype, far: float) -> None:
    x, dy = fields(shape, mean, device)
    x, norm = x.to(dtype), trained(shape[1]).to(device)
    exact = copy.deepcopy(norm).double()
    expected = results(by_pytorch, exact, x.double(), dy.to(dtype).double())
    found = results(normalise, norm, x, dy.to(dtype))
    assert found[0].dtype == found[1].dtype == dtype
    for ours, theirs in zip(found, expected, strict=True):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        distance = (ours - theirs).norm() / theirs.norm()
        assert float(distance) < far


@interpreted
@pytest.mark.parametrize(
    ("shape", "mean"), [((3, 4, 8, 8), 0.0), ((2, 140, 5, 7), 1.0), ((40, 17, 12, 12), 10.0)]
)
def test_fields_gradients_and_statistics(shape, mean):
    check(shape, mean, "cpu", torch.float32, 2e-5)


@interpreted
def test_fields_in_half_precision_have_gradients_of_sums_in_full():
    check((4, 20, 6, 6), 0.5, "cpu", torch.float16, 2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "far"), [(torch.float32, 2e-5), (torch.float16, 2e-3)])
@pytest.mark.parametrize("shape", [(32, 16, 64, 64), (32, 256, 8, 8), (8, 48, 33, 31)])
def test_on_the_gpu(shape, dtype, far):
    check(shape, 0.5, "cuda", dtype, far)


@interpreted
def test_the_gradient_of_y_is_left_as_it_is():
    """It may be the gradient of another field, too: of what goes past the norm."""
    x, dy = fields((2, 8, 6, 6), 0.0)
    before = dy.clone()
    results(normalise, trained(8), x, dy)
    assert torch.equal(dy, before)


@interpreted
def test_the_gradient_can_be_differentiated():
    x, dy = fields((2, 4, 6, 6), 0.0)
    found = []
    for way in (normalise, lambda x, norm: norm(x)):
        norm, v = trained(4).double(), x.double().requires_grad_()
        (dx,) = torch.autograd.grad((way(v, norm) * dy).square().sum(), v, create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum(), [v, norm.weight]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
