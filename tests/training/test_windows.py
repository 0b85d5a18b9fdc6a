"""Training on trajectories: windows, unrolled gradients, and runs that go on."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from torchcno.data.trajectories import Trajectories
from torchcno.grids import Grid
from torchcno.training import Hardware, Interrupted, Recipe, fit, loop
from torchcno.training.epochs import TrainingRun, take_rows
from torchcno.training.losses import LOSSES
from torchcno.training.propagator import Propagator, Unrolled, Window
from torchcno.training.windows import (
    LEAD_TIMES,
    Rollouts,
    Windows,
    describe_propagator,
    window_times,
)

STEP = Propagator("one-step", 0.1, 0.1)


class Told(nn.Module):
    """A network that is told the lead time: a convolution, scaled by what it is told."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(channels, channels, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm1d(channels)
        self.gain = nn.Linear(1, channels)

    def forward(self, u: Tensor, conditions: Tensor) -> Tensor:
        return self.norm(torch.tanh(self.conv(u))) * self.gain(conditions)[..., None]


def decaying(n: int = 6, times: int = 5, points: int = 8, channels: int = 1) -> Trajectories:
    generator = torch.Generator().manual_seed(n)
    start = torch.randn(n, 1, channels, points, generator=generator, dtype=torch.float64)
    t = torch.linspace(0, 0.4, times, dtype=torch.float64)
    return Trajectories(start * torch.exp(-t)[:, None, None], t, Grid((points,), "periodic"))


def windows_of(recipe: Recipe, data: Trajectories, conditions: tuple[str, ...]) -> Windows:
    how = describe_propagator(data, recipe.lead_times, recipe.unroll, recipe.residual, conditions)
    return Windows.of(
        data, how, recipe.unroll, recipe.unroll_gradients, recipe.noise, recipe.time_weights
    )


@pytest.mark.parametrize("n", [2, 5, 11])
def test_windows_cover_each_pair_once(n):
    pairs = [tuple(row) for row in window_times(n, "all-to-all", 1).tolist()]
    assert sorted(pairs) == [(i, j) for i in range(n) for j in range(i + 1, n)]
    assert window_times(n, "one-step", 1).tolist() == [[i, i + 1] for i in range(n - 1)]
    assert window_times(n, "direct", 1).tolist() == [[0, n - 1]]


@pytest.mark.parametrize("lead_times", ["one-step", "all-to-all"])
def test_steps_of_a_window_are_equally_long(lead_times):
    rows = window_times(9, lead_times, 3)
    steps = rows.diff(dim=1)
    assert (steps == steps[:, :1]).all()
    assert len(rows.unique(dim=0)) == len(rows)


def test_a_batch_holds_the_states_of_its_windows():
    data = decaying()
    windows = windows_of(Recipe(lead_times="all-to-all", unroll=2), data, ("time",))
    batch = torch.tensor([0, 7, len(windows) - 1])
    window, targets = windows.gather(batch, take_rows)
    flat = data.states.flatten(0, 1).float()
    rows = windows.steps.rows[batch]
    assert torch.equal(window.start, flat[rows[:, 0]])
    assert torch.equal(targets.unflatten(0, (3, 2)), flat[rows[:, 1:]])
    times = data.times[rows % 5]
    longest = windows.propagator.longest
    assert torch.allclose(window.parts.double() * longest, times.diff(dim=1), atol=1e-6)
    assert torch.equal(window.conditions[..., 0], window.parts)


def test_lead_time_zero_is_the_identity():
    u = torch.randn(3, 1, 8)
    how = Propagator("all-to-all", 0.1, 0.4, conditions=("time",))
    none = torch.zeros(3)
    assert torch.equal(how.advance(Told(), u, none, how.conditions_for(none, None)), u)


def unrolled_loss(network: nn.Module, gradients: str, steps: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(4, 1, 8, generator=generator, dtype=torch.float64)
    targets = torch.randn(4 * steps, 1, 8, generator=generator, dtype=torch.float64)
    parts = torch.rand(4, steps, generator=generator, dtype=torch.float64)
    window = Window(start, parts, parts[..., None], targets, None)
    how = Propagator("all-to-all", 0.1, 0.4, conditions=("time",))
    return (Unrolled(network, how, gradients, ())(window) - targets).square().mean()


def test_unrolled_gradients_equal_finite_differences():
    network = Told().double()
    network.norm.eval()
    unrolled_loss(network, "all").backward()
    for weight in network.parameters():
        direction = torch.randn_like(weight)
        found = (weight.grad * direction).sum()
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight += sign * 1e-5 * direction
                values.append(unrolled_loss(network, "all"))
                weight -= sign * 1e-5 * direction
        assert torch.isclose(found, (values[0] - values[1]) / 2e-5, rtol=1e-6, atol=1e-10)


def test_push_forward_has_the_gradients_of_single_steps():
    network = Told().double()
    network.norm.eval()
    unrolled_loss(network, "last").backward()
    found = [weight.grad.clone() for weight in network.parameters()]
    # The same start; each step begins with numbers that the ones before it made.
    generator = torch.Generator().manual_seed(2)
    u = torch.randn(4, 1, 8, generator=generator, dtype=torch.float64)
    targets = torch.randn(4, 3, 1, 8, generator=generator, dtype=torch.float64)
    parts = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    network.zero_grad()
    for k in range(3):
        v = u + parts[:, k, None, None] * network(u, parts[:, k, None])
        ((v - targets[:, k]).square().mean() / 3).backward()
        u = torch.from_numpy(v.detach().numpy())
    for weight, gradient in zip(network.parameters(), found, strict=True):
        assert torch.allclose(weight.grad, gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ["relative-l1", "relative-l2"])
def test_a_weight_multiplies_the_error_that_a_loss_sees(loss):
    u, v = torch.rand(2, 1, 8) + 0.1, torch.rand(2, 1, 8) + 0.1
    part = torch.ones(2, 1)
    how = Propagator("one-step", 0.1, 0.1, residual=False)
    taught = Unrolled(nn.Identity(), how, "all", ())
    plain = LOSSES[loss](taught(Window(u, part, torch.empty(2, 1, 0), v, None)), v)
    weights = torch.full((2,), 3.0)
    weighted = LOSSES[loss](taught(Window(u, part, torch.empty(2, 1, 0), v, weights)), v)
    assert torch.isclose(weighted, 3 * plain, rtol=1e-5)


@pytest.mark.parametrize("name", ["late", "early"])
def test_weights_over_time_are_one_on_average(name):
    windows = windows_of(Recipe(unroll=3, time_weights=name), decaying(), ())
    assert windows.weights.shape == (len(windows), 3)
    assert torch.isclose(windows.weights.mean(), torch.tensor(1.0))
    late = windows.weights[0].diff() > 0
    assert late.all() if name == "late" else (~late).all()


def test_noise_has_the_deviation_that_was_asked_for():
    data = decaying(channels=2)
    data = replace(data, states=data.states * torch.tensor([1.0, 10.0])[:, None])
    windows = windows_of(Recipe(noise=0.1), data, ())
    channels = data.states.transpose(0, 2).flatten(1)
    expected = 0.1 * channels.std(1, correction=0)
    assert torch.allclose(torch.tensor(windows.noise, dtype=torch.float64), expected)
    blurred = windows.teach(nn.Identity())._blur(torch.zeros(200, 2, 64))
    assert torch.allclose(blurred.transpose(0, 1).flatten(1).std(1).double(), expected, rtol=0.05)


def test_a_network_that_is_not_told_the_time_is_refused_unequal_steps():
    data = decaying().select_times([0, 1, 3, 4])
    with pytest.raises(ValueError, match="conditioning"):
        describe_propagator(data, "one-step", 1, True, ())
    assert describe_propagator(data, "one-step", 1, True, ("time",)).longest == pytest.approx(0.2)
    with pytest.raises(ValueError, match="not told"):
        describe_propagator(decaying(), "all-to-all", 1, True, ())
    with pytest.raises(ValueError, match="smaller unroll"):
        window_times(3, "one-step", 5)


@pytest.mark.parametrize("lead_times", list(LEAD_TIMES))
def test_the_validation_error_of_the_exact_map_is_zero(lead_times):
    data = decaying(times=5)

    class Exact(nn.Module):
        def forward(self, u: Tensor, conditions: Tensor) -> Tensor:
            return u * torch.exp(-0.4 * conditions[:, :, None])

    how = describe_propagator(data, lead_times, 1, False, ("time",))
    how = replace(how, longest=0.4)
    rollouts = Rollouts.of(data, how)
    assert rollouts.error_of(Exact(), 4) < 1e-6


RECIPES = {
    "one-step": Recipe(epochs=3, batch_size=4, noise=0.05, averaging_half_life=1.0),
    "unrolled": Recipe(epochs=3, batch_size=4, unroll=3, time_weights="late"),
    "push-forward": Recipe(
        epochs=3, batch_size=4, unroll=2, unroll_gradients="last", frozen_statistics=0.5
    ),
    "all-to-all": Recipe(
        epochs=3, batch_size=4, lead_times="all-to-all", noise=0.1, augmentation="translations"
    ),
    "direct": Recipe(epochs=3, batch_size=2, lead_times="direct", averaging_half_life=1.0),
}


@pytest.mark.parametrize("name", RECIPES)
def test_interrupted_training_resumes_to_the_last_bit(name, tmp_path, monkeypatch):
    recipe = replace(RECIPES[name], checkpoint_every=1e9)
    train = windows_of(recipe, decaying(6), ("time",))
    val = Rollouts.of(decaying(3), train.propagator)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fit(Told(), train, val, recipe, whole)
    calls = []

    def stop_early(*_: object) -> bool:
        calls.append(None)
        return len(calls) == 5

    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "due", property(lambda run: False))
        real = loop.stop_requests

        class Stopping:
            def __enter__(self):
                self.inner = real()
                self.inner.__enter__()
                return stop_early

            def __exit__(self, *error):
                return self.inner.__exit__(*error)

        patched.setattr(loop, "stop_requests", Stopping)
        with pytest.raises(Interrupted):
            fit(Told(), train, val, recipe, parts)
    fit(Told(), train, val, recipe, parts, resume=True)
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["unrolled", "push-forward", "all-to-all", "direct"])
def test_captured_steps_follow_the_eager_ones(name, tmp_path):
    losses = {}
    for fast in ("off", "auto"):
        recipe = replace(RECIPES[name], noise=0.0, precision="32", fast=fast)
        train = windows_of(recipe, decaying(6), ("time",))
        val = Rollouts.of(decaying(3), train.propagator)
        hardware = Hardware(accelerator="cuda")
        seen = []
        fit(Told(), train, val, recipe, tmp_path / fast, hardware=hardware, on_epoch=seen.append)
        losses[fast] = [(row.train_loss, row.validation_error) for row in seen]
    for a, b in zip(losses["off"], losses["auto"], strict=True):
        assert a == pytest.approx(b, rel=1e-3)


@pytest.mark.gpu
def test_noise_is_new_in_every_captured_step(tmp_path):
    recipe = Recipe(epochs=1, batch_size=4, noise=0.5, learning_rate=1e-12, weight_decay=0.0)
    data = decaying(1, times=17)  # 16 windows of one trajectory, four steps
    train = windows_of(recipe, data, ("time",))
    rows = []
    for seed in (0, 1):
        fit(Told(), train, Rollouts.of(data, train.propagator), recipe, tmp_path / str(seed),
            seed=seed, hardware=Hardware(accelerator="cuda"), on_epoch=rows.append)  # fmt: skip
    assert rows[0].train_loss != rows[1].train_loss


def test_another_way_through_time_is_another_run(tmp_path):
    recipe = Recipe(epochs=1, batch_size=4)
    train = windows_of(recipe, decaying(6), ("time",))
    val = Rollouts.of(decaying(3), train.propagator)
    fit(Told(), train, val, recipe, tmp_path)
    for change in ({"unroll": 2}, {"noise": 0.1}, {"residual": False}, {"time_weights": "late"}):
        with pytest.raises(ValueError, match=next(iter(change))):
            fit(Told(), train, val, replace(recipe, epochs=2, **change), tmp_path, resume=True)


def test_training_finds_the_exact_one_step_map(tmp_path):
    data = decaying(40)
    recipe = Recipe(epochs=60, batch_size=16, learning_rate=0.05, schedule="cosine", residual=False)
    train = windows_of(recipe, data, ())
    network = nn.Conv1d(1, 1, 1)
    result = fit(network, train, Rollouts.of(decaying(5), train.propagator), recipe, tmp_path)
    assert result.best_validation_error < 2e-3
    assert float(network.weight.detach()) == pytest.approx(math.exp(-0.1), abs=2e-3)
