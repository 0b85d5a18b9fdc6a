"""The fused step is batch norm followed by the activation: outputs, gradients, statistics."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators.activation import Activation
from torchcno.operators.filters import WindowedSinc
from torchcno.operators.fused import block, choice
from torchcno.operators.fused.normalised import normalise_and_activate

CHANNELS = 4
EXACT, ROUNDED = 1e-5, 2e-3  # errors of float32, and of factors of 11 bits

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs Triton's interpreter, which needs to be alone"
)


@pytest.fixture(autouse=True)
def arithmetic_is_restored():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@dataclass
class Layer:
    """Batch norm and an activation after training for a while, with random parameters."""

    norm: nn.BatchNorm2d
    activation: Activation

    @classmethod
    def random(cls, n_in: int = 8, n_out: int = 8, sigma: str = "gelu") -> "Layer":
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(CHANNELS, momentum=0.3)
        size_in, size_out = (n_in, n_in), (n_out, n_out)
        activation = Activation(CHANNELS, size_in, size_out, sigma, WindowedSinc(), "zero", 2)
        for parameter in (norm.weight, norm.bias, norm.running_mean, activation.bias):
            nn.init.normal_(parameter)
        nn.init.uniform_(norm.running_var, 0.5, 2)
        norm.num_batches_tracked.fill_(5)
        return cls(norm, activation)

    def doubled(self) -> "Layer":
        return Layer(copy.deepcopy(self.norm).double(), copy.deepcopy(self.activation).double())

    def train(self, mode: bool) -> "Layer":
        self.norm.train(mode), self.activation.train(mode)
        return self

    @property
    def state(self) -> list[Tensor]:
        return list(self.norm.buffers())

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.norm.parameters(), self.activation.bias]


def field(n: int, mean: float = 0.0, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, CHANNELS, n, n, generator=generator) + mean


def in_parts(x: Tensor, layer: Layer) -> Tensor:
    return layer.activation.by_matrices(layer.norm(x))


def in_one(x: Tensor, layer: Layer) -> Tensor:
    return normalise_and_activate(x, layer.norm, layer.activation)


def results(way, x: Tensor, layer: Layer) -> list[Tensor]:
    """Y, dx, dγ, dβ, db for some cotangent, and the statistics after two batches."""
    way(0.5 * x + 1, layer)
    x = x.detach().requires_grad_()
    y = way(x, layer)
    generator = torch.Generator().manual_seed(2)
    dy = torch.randn(y.shape, generator=generator).to(y)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters], dy), *layer.state]


def distance(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def check(x: Tensor, layer: Layer, tolerance: float = EXACT) -> None:
    torch.backends.cuda.matmul.allow_tf32 = tolerance > EXACT
    truth = results(in_parts, x.double(), layer.doubled())
    for result, true in zip(results(in_one, x, layer), truth, strict=True):
        assert distance(result, true) < tolerance


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("n_in", "n_out"), [(8, 8), (8, 16), (16, 8)])
@pytest.mark.parametrize("training", [True, False])
def test_fused_is_batch_norm_and_then_the_activation(training, n_in, n_out, layout):
    x = field(n_in).contiguous(memory_format=layout)
    check(x, Layer.random(n_in, n_out).train(training))


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_sums_over_more_samples_than_are_read_at_once(layout):
    check(field(8, batch=40).contiguous(memory_format=layout), Layer.random().train(True))


@interpreted
@pytest.mark.parametrize("training", [True, False])
def test_rounded_products(training):
    check(field(16), Layer.random(16, 16).train(training), ROUNDED)


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_fields_stored_in_float16(training, layout):
    x, layer = field(16).contiguous(memory_format=layout).half(), Layer.random(16, 16)
    check(x, layer.train(training), ROUNDED)
    y = in_one(x.requires_grad_(), layer)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == torch.float16
    assert {t.dtype for t in (*layer.state, *(p.grad for p in layer.parameters))} == {
        torch.float32,
        torch.int64,
    }


@interpreted
def test_the_arithmetic_may_change_before_the_gradient(monkeypatch):
    monkeypatch.setattr(choice, "LARGEST_EXACT", {2: 8})  # as planes of 64² are on a chip
    x, layer, cotangent = field(16), Layer.random(16, 16), field(16, batch=3)
    truth = layer.doubled()

    def gradients(way, x: Tensor, layer: Layer) -> tuple[Tensor, ...]:
        torch.backends.cuda.matmul.allow_tf32 = True
        x = x.requires_grad_()
        y = way(x, layer)
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.autograd.grad(y, [x, *layer.parameters], cotangent.to(x.dtype))

    expected = gradients(in_parts, x.double(), truth)
    for result, true in zip(gradients(in_one, x, layer), expected, strict=True):
        assert distance(result, true) < EXACT


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_no_digits_are_lost_under_a_large_mean(layout):
    torch.backends.cuda.matmul.allow_tf32 = False
    x, layer = field(8, mean=1000.0).contiguous(memory_format=layout), Layer.random()
    truth = results(in_parts, x.double(), layer.doubled())
    parts = results(in_parts, x, Layer.random())
    for result, other, true in zip(results(in_one, x, layer), parts, truth, strict=True):
        assert distance(result, true) < 3 * distance(other, true) + 1e-6


@interpreted
def test_the_gradient_can_be_differentiated():
    def second(way, x: Tensor, layer: Layer) -> list[Tensor]:
        x = x.detach().requires_grad_()
        (dx,) = torch.autograd.grad(way(x, layer).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(dx.square().sum(), [x, *layer.parameters]))

    x, layer = field(8), Layer.random()
    truth = second(in_parts, x.double(), layer.doubled())
    for result, true in zip(second(in_one, x, layer), truth, strict=True):
        assert distance(result, true) < 1e-4


def network(**fields) -> CNO:
    torch.manual_seed(0)
    config = CNOConfig(size=(32, 32), levels=2, width=8, neck_blocks=1, skip_blocks=1, **fields)
    return CNO(config).cuda()


def gradients(model: CNO, u: Tensor) -> list[Tensor]:
    v = model(u)
    return [v.detach(), *torch.autograd.grad(v.square().mean(), list(model.parameters()))]


def assert_alike(found: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        size = float(theirs.abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * size)


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(3)).cuda()


@pytest.fixture
def exact():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def count_fused(monkeypatch, allowed: bool) -> list[bool]:
    """The decisions from now on; where not `allowed`, all are against it."""
    decide, decisions = block.why_not_fused, []

    def counted(x, norm, activation, modulation=None) -> str | None:
        reason = decide(x, norm, activation, modulation) if allowed else "not allowed"
        if isinstance(norm, nn.BatchNorm2d) and isinstance(activation, Activation):
            decisions.append(reason is None)
        return reason

    monkeypatch.setattr(block, "why_not_fused", counted)
    return decisions


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_network_fused_and_in_parts_on_the_gpu(layout, training, batch, monkeypatch):
    # Without a kink: where the argument of σ is zero but for rounding, slopes would differ.
    model = network(activation="gelu").to(memory_format=layout).train(training)
    parts = copy.deepcopy(model)
    with monkeypatch.context() as patch:
        decisions = count_fused(patch, allowed=False)
        truth = [*gradients(parts, batch), *parts.buffers()]
    with monkeypatch.context() as patch:
        taken = count_fused(patch, allowed=True)
        result = [*gradients(model, batch), *model.buffers()]
    assert decisions
    assert taken
    assert all(taken)
    assert_alike(result, truth)


@pytest.mark.gpu
def test_captured_is_eager_on_the_gpu(batch):
    model = network().to(memory_format=torch.channels_last).train()
    expected = gradients(copy.deepcopy(model), batch)
    inputs = torch.zeros_like(batch)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gradients(model, inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients(model, inputs)
    inputs.copy_(batch)
    for _ in range(3):
        graph.replay()
    assert_alike(captured, expected)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {int(norm.num_batches_tracked) for norm in norms} == {1 + 3}


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)])
def test_in_half_precision_on_the_gpu(dtype, bound, batch, monkeypatch):
    model = network(activation="gelu").train()
    parts = copy.deepcopy(model)
    with torch.autocast("cuda", dtype), monkeypatch.context() as patch:
        decisions = count_fused(patch, allowed=True)
        result = gradients(model, batch)[0]
        assert all(decisions)
        count_fused(patch, allowed=False)
        truth = gradients(parts, batch)[0]
    assert distance(result, truth.double()) < bound


@pytest.mark.gpu
def test_what_is_not_plain_batch_norm_stays_in_parts_on_the_gpu():
    x = field(8).cuda()

    def is_fused(norm: nn.Module) -> bool:
        activation = Layer.random().activation
        return block.why_not_fused(x, norm.cuda(), activation.cuda()) is None

    assert is_fused(nn.BatchNorm2d(CHANNELS))
    assert not is_fused(nn.BatchNorm2d(CHANNELS, momentum=None))
    assert not is_fused(nn.BatchNorm2d(CHANNELS, affine=False))
    assert not is_fused(nn.BatchNorm2d(CHANNELS, track_running_stats=False))
    assert not is_fused(nn.SyncBatchNorm(CHANNELS))
