"""A block is its three parts, by whichever way it is computed."""

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from torchcno.operators import Activation, Block, Convolution, WindowedSinc
from torchcno.operators.block import compose
from torchcno.operators.fused import streams


def by_parts(v: Tensor, K: nn.Module, norm: nn.Module, Σ: nn.Module | None = None) -> Tensor:
    return (Σ or nn.Identity())(norm(K(v)))


def block(boundary: str = "zero") -> Block:
    torch.manual_seed(0)
    activation = Activation(3, (8, 8), (16, 16), "leaky_relu", WindowedSinc(), boundary, 2)
    norm = nn.BatchNorm2d(3)
    for vector in (norm.running_mean, norm.weight.data, norm.bias.data, activation.bias.data):
        vector.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return Block(Convolution(2, 3, 3, 2, boundary), norm, activation)


def field() -> Tensor:
    return torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_a_block_is_its_three_parts(boundary, training):
    whole = block(boundary).double().train(training)
    parts = copy.deepcopy(whole)
    results = []
    for layer, way in ((whole, whole), (parts, lambda v: by_parts(v, *parts.children()))):
        v = field().double().requires_grad_()
        y = way(v)
        gradients = torch.autograd.grad(y.square().sum(), (v, *layer.parameters()))
        results.append([y.detach(), *gradients, *layer.buffers()])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("beside", [False, True])
def test_a_norm_that_keeps_its_statistics_makes_no_pass_in_training(beside, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    whole = block().double().train()
    whole.norm.eval()
    parts, results = copy.deepcopy(whole), []
    before = copy.deepcopy(list(whole.buffers()))
    for layer, way in ((parts, lambda v: by_parts(v, *parts.children())), (whole, whole)):
        with streams.aside(layer) if beside else nullcontext():
            y = way(field().double())
            y.square().sum().backward()
        results.append([y, *(parameter.grad for parameter in layer.parameters())])
        monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda *_: pytest.fail("a pass"))
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    assert all(map(torch.equal, before, whole.buffers()))


@pytest.mark.parametrize("norm", ["of the batch", "held", "none"])
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_on_a_cpu_what_comes_before_an_activation_adds_its_bias(boundary, norm, monkeypatch):
    whole = block(boundary)
    if norm == "none":
        whole.norm = nn.Identity()
    whole.norm.train(norm == "of the batch")
    parts, results = copy.deepcopy(whole), []
    for layer, way in ((parts, lambda v: by_parts(v, *parts.children())), (whole, whole)):
        v = field().requires_grad_()
        y = way(v)
        gradients = torch.autograd.grad(y.square().sum(), (v, *layer.parameters()))
        results.append([y.detach(), *gradients, *layer.buffers()])
        monkeypatch.setattr(Activation, "forward", lambda *_: pytest.fail("a pass with a bias"))
    largest = max(theirs.double().norm() for theirs in results[0])
    for theirs, ours in zip(*results, strict=True):  # of a bias before a batch norm: rounding
        assert (ours - theirs).double().norm() < 1e-5 * max(theirs.double().norm(), 0.1 * largest)


def test_whoever_has_a_hook_in_a_part_sees_it_at_work():
    layer, seen = block(), []
    expected = layer.eval()(field())
    for part in layer.children():
        part.register_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    torch.testing.assert_close(layer(field()), expected)
    assert seen == ["Convolution", "BatchNorm2d", "Activation"]
    assert "hook" in layer.why_not_fused(field())


def test_a_block_can_be_mapped_over():
    layer, v = block().eval(), torch.randn(5, 4, 2, 8, 8)
    mapped = torch.func.vmap(layer)(v)
    torch.testing.assert_close(mapped, torch.stack([layer(one) for one in v]))


def test_a_block_that_is_not_fused_says_why():
    assert "CUDA" in block().why_not_fused(field())


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_a_batch_norm_that_comes_next_takes_the_bias_and_remembers_it(boundary, momentum):
    torch.manual_seed(0)
    convolution = Convolution(2, 3, 3, 2, boundary).double()
    x = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    results, remembered = [], []
    for way in (by_parts, compose):
        norm = nn.BatchNorm2d(3, momentum=momentum).double()
        for _ in range(3):
            y = way(x, convolution, norm)
        gradients = torch.autograd.grad(y.pow(3).sum(), convolution.parameters())
        results.append([y, *gradients, norm.running_mean, norm.running_var])
        remembered.append(compose(x, convolution, norm.eval()))  # evaluation has the bias
    for full, short in zip(*results, strict=True):
        torch.testing.assert_close(short, full, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(*remembered)
    if momentum < 1:
        assert torch.equal(results[1][2], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("boundary", ["zero", "odd"])
def test_what_a_step_leaves_for_its_end_is_what_it_would_have_done(boundary, centred, dims):
    torch.manual_seed(0)
    layers = nn.ModuleList(
        [
            Convolution(2, 3, 3, dims, boundary),
            (nn.BatchNorm1d, nn.BatchNorm2d)[dims - 1](3) if centred else nn.Identity(),
            Convolution(3, 1, 3, dims, boundary),
        ]
    ).double()
    kernel, norm, after = layers
    x = torch.randn(4, 2, *[8] * dims, dtype=torch.float64)
    start = copy.deepcopy(layers.state_dict())

    def results(times: int = 1) -> list[torch.Tensor | None]:
        layers.load_state_dict(start)
        layers.zero_grad(set_to_none=True)
        for _ in range(times):
            compose(compose(x, kernel, norm).tanh(), after).pow(2).sum().backward()
        gradients = [parameter.grad for parameter in layers.parameters()]
        return [*gradients, *(buffer.clone() for buffer in layers.buffers())]

    def results_at_the_end(times: int = 1) -> list[torch.Tensor | None]:
        beside = streams.Aside((), list(layers.parameters()))
        token = streams._ASIDE.set(beside)
        first = results(times)
        assert first[0] is None
        streams._ASIDE.reset(token)
        beside.close()
        gradients = [parameter.grad for parameter in layers.parameters()]
        return [*gradients, *(buffer.clone() for buffer in layers.buffers())]

    # Gradients are added to those that are there. A batch norm sees one batch in a step.
    for times in (1,) if centred else (1, 2):
        for ours, theirs in zip(results_at_the_end(times), results(times), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    kernel.weight.requires_grad_(False)
    assert results_at_the_end()[0] is None


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("channels_in", "channels_out"), [(1, 8), (3, 1), (8, 2), (16, 16)])
def test_channels_filled_up_with_zeros_change_nothing(channels_in, channels_out, last, half):
    torch.manual_seed(0)
    convolution = Convolution(channels_in, channels_out, 3, 2).cuda()
    if last:
        weight = convolution.weight.data
        convolution.weight.data = weight.clone(memory_format=torch.channels_last)
    x = torch.randn(4, channels_in, 16, 16, device="cuda", requires_grad=True)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, convolution.weight, convolution.bias, padding=1)

    results = []
    for convolve in (partial(compose, K=convolution), plain):
        with torch.autocast("cuda", torch.float16, enabled=half):
            y = convolve(x)
        gradients = torch.autograd.grad(y.float().pow(2).sum(), (x, *convolution.parameters()))
        results.append((y.detach(), *gradients))
    for ours, theirs in zip(*results, strict=True):
        atol = (1e-2 if half else 2e-3) * float(theirs.norm())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
