"""A captured step is the eager step, which is the optimiser's definition."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW

from torchcno.arithmetic import LOSS_FACTORS
from torchcno.models.cno import CNO, CNOConfig
from torchcno.training.losses import relative_l1_loss
from torchcno.training.optimizers import make_optimizer
from torchcno.training.pairs import MixedPrecision
from torchcno.training.step import Step, eager_step, graphed_step

CPU = torch.device("cpu")
RATES = [1e-2, 3e-3, 1e-2, 1e-3, 5e-3]


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.Conv2d(4, 1, 3, padding=1)
    )


def batch(n: int, seed: int, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, 1, size, size, generator=generator) for _ in range(2))


def test_eager_step_is_adamw_by_hand():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    inputs = torch.randn(4, 3, dtype=torch.float64)
    targets = torch.randn(4, 2, dtype=torch.float64)
    rate, decay, beta1, beta2, eps = 0.1, 0.01, 0.9, 0.999, 1e-8
    step = eager_step(model, AdamW(model.parameters(), lr=rate, weight_decay=decay), F.mse_loss)

    weights = [w.detach().clone() for w in model.parameters()]
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for t in (1, 2):
        weight, bias = weights
        residual = inputs @ weight.T + bias - targets
        slope = 2 * residual / residual.numel()
        gradients = [slope.T @ inputs, slope.sum(0)]
        for w, g, m, v in zip(weights, gradients, first, second, strict=True):
            m.mul_(beta1).add_((1 - beta1) * g)
            v.mul_(beta2).add_((1 - beta2) * g * g)
            w.mul_(1 - rate * decay)
            w.sub_(rate * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps))
        loss = step(inputs, targets)
        assert not loss.requires_grad
        torch.testing.assert_close(loss, residual.square().mean(), rtol=1e-12, atol=0)
    for ours, theirs in zip(weights, model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_power_of_two_on_the_loss_changes_no_bit_in_float32(optimizer):
    states = []
    for factor in (1.0, 2.0**10):
        model = network()
        moves = make_optimizer(optimizer, model, 1e-2, 1e-6, CPU)
        step = eager_step(model, moves, F.mse_loss, factor)
        losses = [step(*batch(4, seed)) for seed in range(5)]
        states.append([*losses, *model.state_dict().values()])
    assert all(map(torch.equal, *states))


def test_the_factor_of_the_loss_gives_gradients_in_float16_their_digits():
    inputs, targets = (t.sigmoid() for t in batch(8, seed=0, size=16))
    fewer = targets.numel() / 2**17  # than in training, where gradients are so much smaller

    def gradients(dtype: torch.dtype | None, factor: float) -> list[Tensor]:
        torch.manual_seed(0)
        config = CNOConfig(size=(16, 16), levels=1, width=8, neck_blocks=2, activation="gelu")
        model = CNO(config)
        trained, optimizer = MixedPrecision(model, dtype), SGD(model.parameters())
        eager_step(trained, optimizer, relative_l1_loss, factor)(inputs, targets)
        return [weight.grad for weight in model.parameters() if weight.ndim == 4]

    def error(factor: float) -> float:
        pairs = zip(gradients(torch.float16, fewer * factor), gradients(None, 1.0), strict=True)
        return max(float((a - b).norm() / b.norm()) for a, b in pairs)

    assert error(LOSS_FACTORS["fp16-mixed"]) < 1e-2 < error(1.0)


def test_an_optimiser_that_reads_from_the_host_cannot_be_captured():
    model = network()
    with pytest.raises(ValueError, match="capturable=True"):
        graphed_step(model, AdamW(model.parameters(), lr=1e-3), F.mse_loss)


def on_the_gpu(model: nn.Module) -> tuple[nn.Module, AdamW]:
    model = copy.deepcopy(model).cuda().train()
    rate = torch.tensor(RATES[0], device="cuda")
    return model, AdamW(model.parameters(), lr=rate, capturable=True, fused=True)


def train(make, loss_fn=F.mse_loss, model: nn.Module | None = None, counted: bool = False):
    """Five steps with a changing rate on batches of two sizes: losses, and the state at the end.

    `counted`: batches have a third part, where targets count.
    """
    model, optimizer = on_the_gpu(model or network())
    step = make(model, optimizer, loss_fn)
    losses = []
    for number, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"].fill_(rate)
        fields = [t.cuda() for t in batch(4 if number % 2 else 6, seed=number)]
        losses.append(step(*fields, *([fields[1] > 0] if counted else [])))
    moments = [v for state in optimizer.state.values() for v in state.values()]
    return torch.stack(losses), [*model.state_dict().values(), *moments]


def assert_same(a, b):
    for ours, theirs in zip([a[0], *a[1]], [b[0], *b[1]], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.fixture
def exact_arithmetic():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_arithmetic")
def test_graphed_is_eager_over_rates_and_batch_sizes():
    assert_same(train(graphed_step), train(eager_step))


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_arithmetic")
def test_graphed_is_eager_where_only_some_targets_count():
    graphed = train(graphed_step, counted=True)
    assert_same(graphed, train(eager_step, counted=True))
    assert not torch.equal(graphed[0], train(eager_step)[0])


def operator(boundary: str) -> nn.Module:
    """A CNO with branches of several layers, channels last."""
    torch.manual_seed(0)
    config = CNOConfig(
        size=(32, 32), levels=2, width=16, neck_blocks=2, skip_blocks=2, boundary=boundary
    )
    return CNO(config)


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_arithmetic")
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_branches_and_gradients_beside_each_other_are_those_in_order(boundary):
    """Batches change with every step: whoever reads too early reads another batch's numbers."""
    model = operator(boundary).cuda().train()
    rate = torch.zeros((), device="cuda")  # weights stay where they are
    optimizer = AdamW(model.parameters(), lr=rate, capturable=True, fused=True)
    batches = [tuple(t.cuda() for t in batch(16, seed, size=32)) for seed in range(4)]

    def gradients(step: Step, number: int) -> list[Tensor]:
        step(*batches[number])
        return [weight.grad.clone() for weight in model.parameters()]

    eager = eager_step(model, optimizer, F.mse_loss)
    in_order = [gradients(eager, number) for number in range(4)]
    graphed = graphed_step(model, optimizer, F.mse_loss)
    noise = 1e-6 * max(float(gradient.norm()) for gradient in in_order[0])  # where it is zero
    for number in 50 * [0, 1, 2, 3]:
        for ours, theirs in zip(gradients(graphed, number), in_order[number], strict=True):
            atol = noise + 1e-4 * float(theirs.norm())
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=atol)


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_arithmetic")
def test_graphed_draws_the_random_numbers_that_eager_draws():
    model = nn.Sequential(network(), nn.Dropout(0.5))
    results = []
    for make in (graphed_step, eager_step):
        torch.manual_seed(7)
        results.append(train(make, model=model))
    assert_same(*results)


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_arithmetic")
def test_a_step_that_cannot_be_captured_runs_eagerly():
    def waits_for_the_device(prediction: Tensor, target: Tensor) -> Tensor:
        loss = F.mse_loss(prediction, target)
        return loss * (1.0 if loss.item() > 0 else 0.0)

    model = nn.Sequential(network(), nn.Dropout(0.5))  # which draws random numbers afterwards
    torch.manual_seed(7)
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        graphed = train(graphed_step, waits_for_the_device, model)
    torch.manual_seed(7)
    assert_same(graphed, train(eager_step, model=model))
