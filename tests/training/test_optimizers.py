"""What a recipe's optimiser does is its definition, however many kernels it takes."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.optim import AdamW

from torchcno.training import adamw_kernels
from torchcno.training.adamw import BETAS, EPSILON, FusedAdamW
from torchcno.training.optimizers import OPTIMIZERS, make_optimizer, take_scaled
from torchcno.training.tables import BLOCK, make_table


def weights() -> list[Tensor]:
    generator = Generator().manual_seed(0)
    shapes = {(5,): torch.complex64, (3, 4): torch.float32, (6,): torch.float64}
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
        for shape, dtype in shapes.items()
    ]


def test_adamw_of_real_and_complex_weights_is_torch_s_one_by_one():
    ours, theirs = weights(), weights()
    fast = FusedAdamW(ours, lr=1e-2, weight_decay=1e-2)
    plain = AdamW(theirs, lr=1e-2, weight_decay=1e-2, foreach=False)
    for step in range(5):
        for some in (ours, theirs):
            generator = Generator().manual_seed(step)
            for weight in some:
                weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        fast.step()
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_one_program_is_torch_s_adamw():
    generator = Generator().manual_seed(0)
    shapes = [(3, 5, 3, 3), (1,), (70, 90), (BLOCK,)]
    theirs = [torch.randn(shape, generator=generator).double() for shape in shapes]
    ours = [w.float() for w in theirs]
    plain = AdamW([w.requires_grad_() for w in theirs], lr=1e-2, weight_decay=1e-2, foreach=False)
    averages, squares, gradients = ([torch.zeros_like(w) for w in ours] for _ in range(3))
    steps, rate = [torch.zeros(()) for _ in ours], torch.tensor(1e-2)
    table = make_table(ours, gradients, averages, squares, steps)
    for _ in range(5):
        for gradient, weight, step in zip(gradients, theirs, steps, strict=True):
            weight.grad = torch.randn(weight.shape, generator=generator).double()
            gradient.copy_(2.0**10 * weight.grad)
            step.add_(1)
        adamw_kernels.move(table, rate, 1e-2, BETAS, EPSILON, 2.0**10)
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("factor", [1.0, 2.0**10])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_adamw_on_the_gpu_is_that_on_the_cpu(layout, factor):
    def train(device: str) -> list[Tensor]:
        kernel = (
            torch.linspace(-1, 1, 64 * 32 * 9).view(64, 32, 3, 3).contiguous(memory_format=layout)
        )
        network = nn.ParameterList([*weights(), kernel]).to(device)
        optimizer = make_optimizer("adamw", network, 1e-2, 1e-2, torch.device(device))
        assert take_scaled(optimizer, factor)
        for step in range(4):
            for i, w in enumerate(network):
                generator = Generator().manual_seed(100 * step + i)
                gradient = torch.randn(w.shape, generator=generator, dtype=w.dtype)
                w.grad = torch.empty_like(w).copy_(factor * gradient)  # as autograd lays it
            optimizer.step()
        return [w.detach().cpu() for w in network]

    for here, there in zip(train("cuda"), train("cpu"), strict=True):
        torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_recipe_s_rate_and_decay_are_its_optimiser_s(name):
    optimizer = make_optimizer(name, nn.Conv2d(2, 3, 3), 0.02, 0.3, torch.device("cpu"))
    for group in optimizer.param_groups:
        assert (group["lr"], group["weight_decay"]) == (0.02, 0.3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_a_scaled_loss_are_divided_as_they_are_read(name):
    def train(factor: float) -> list[Tensor]:
        network = nn.ParameterList([w for w in weights() if w.dtype != torch.float64])
        optimizer = make_optimizer(name, network, 1e-2, 1e-2, torch.device("cpu"))
        assert take_scaled(optimizer, factor)
        for step in range(3):
            for i, w in enumerate(network):
                generator = Generator().manual_seed(100 * step + i)
                w.grad = factor * torch.randn(w.shape, generator=generator, dtype=w.dtype)
            optimizer.step()
        return [w.detach() for w in network]

    for divided, plain in zip(train(2.0**10), train(1.0), strict=True):
        torch.testing.assert_close(divided, plain, rtol=1e-6, atol=1e-7)


def test_another_optimiser_leaves_the_division_to_the_step():
    assert not take_scaled(torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1), 2.0)
