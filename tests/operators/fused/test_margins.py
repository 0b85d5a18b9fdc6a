"""Margins by a program are those of the definition, and folding them is the adjoint."""

import copy
from itertools import product

import pytest
import torch

from torchcno.arithmetic import arithmetic
from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import aside, lay_channels_last
from torchcno.operators.boundary import BOUNDARIES, extend
from torchcno.operators.fused import margins

PAIRS = list(product(BOUNDARIES, BOUNDARIES))


def by_definition(x, margin, boundaries):
    for axis, boundary in zip((-2, -1), boundaries, strict=True):
        x = extend(x, margin, boundary, axis)
    return x


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("boundaries", PAIRS)
@pytest.mark.parametrize("margin", [1, 2])
def test_a_program_extends_and_folds_as_the_definition_does(margin, boundaries, memory_format):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 4, 6, generator=generator).contiguous(memory_format=memory_format)
    x.requires_grad_()
    expected = by_definition(x, margin, boundaries)
    assert torch.equal(margins.launch("extend", x.detach(), margin, boundaries), expected)
    dy = torch.randn(expected.shape, generator=generator).contiguous(memory_format=memory_format)
    (dx,) = torch.autograd.grad(expected, x, dy)
    folded = margins.launch("fold", dy, margin, boundaries)
    torch.testing.assert_close(folded, dx)
    assert folded.is_contiguous(memory_format=memory_format)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("boundaries", [("periodic", "periodic"), ("periodic", "zero")])
def test_margins_on_the_gpu(boundaries, memory_format, dtype):
    x = torch.randn(4, 8, 16, 24, device="cuda", dtype=dtype)
    x = x.contiguous(memory_format=memory_format).requires_grad_()
    assert margins.is_supported(x)
    ours, theirs = margins.extend_plane(x, 1, boundaries), by_definition(x, 1, boundaries)
    assert torch.equal(ours, theirs)
    dy = torch.randn_like(ours)
    (a,), (b,) = (torch.autograd.grad(y, x, dy) for y in (ours, theirs))
    # The definition adds up in float16, the program rounds once.
    torch.testing.assert_close(a, b, rtol=0, atol=4e-3 if dtype is torch.float16 else 1e-6)


@pytest.mark.gpu
def test_a_step_of_a_periodic_network_has_the_gradients_of_the_definition():
    torch.manual_seed(0)
    config = CNOConfig(
        size=(32, 32), boundary="periodic", levels=2, width=16, neck_blocks=2, skip_blocks=1
    )
    model = CNO(config).cuda().train()
    exact, x = copy.deepcopy(model).double(), torch.randn(8, 1, 32, 32, device="cuda")
    lay_channels_last(model)
    with arithmetic("32"), aside(model):
        model(x).square().mean().backward()
    exact(x.double()).square().mean().backward()
    scale = max(float(parameter.grad.norm()) for parameter in exact.parameters())
    for (name, found), true in zip(model.named_parameters(), exact.parameters(), strict=True):
        error = float((found.grad.double() - true.grad).norm())
        assert error < 1e-4 * max(float(true.grad.norm()), 1e-2 * scale), name
