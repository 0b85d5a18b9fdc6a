"""Rollouts of trained evolutions: exact where the network is, and clear where they are not."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchcno
import torchcno.runs.watching
from torchcno import Fields, Recipe, Trajectories
from torchcno.data.normalization import Normalization
from torchcno.grids import Grid
from torchcno.runs.ranges import OutOfRange, TrainingRange
from torchcno.runs.rollout import EvolutionOperator, plan_rollout
from torchcno.training import Hardware
from torchcno.training.propagator import Propagator

GRID = Grid((16,), "periodic")
ONE_STEP = Propagator("one-step", 0.1, 0.1, residual=False)
ANY_LEAD = Propagator("all-to-all", 0.1, 0.4, residual=False, conditions=("time",))


class Advection(nn.Module):
    """The exact solution of u_t + u_x = ν u_xx after the lead time that it is told, or `step`."""

    def __init__(self, step: float = 0.1, longest: float = 0.4) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.step, self.longest = step, longest

    def forward(self, u: Tensor, conditions: Tensor | None = None) -> Tensor:
        lead = self.step if conditions is None else self.longest * conditions[:, 0, None, None]
        return self.scale * exact(u, lead)


def exact(u: Tensor, time: Tensor | float) -> Tensor:
    k = 2 * math.pi * torch.fft.rfftfreq(16, 1 / 16, dtype=torch.float64)
    return torch.fft.irfft(torch.fft.rfft(u) * torch.exp(-(1j * k + 0.01 * k**2) * time), 16)


def states(n: int = 3, channels: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(n, channels, 5, generator=generator, dtype=torch.complex128)
    return torch.fft.irfft(torch.nn.functional.pad(low, (0, 4)), 16) * 16


def operator_of(propagator: Propagator, **more) -> EvolutionOperator:
    scaling = Normalization(-1.5, 2.5, -1.5, 2.5)
    return EvolutionOperator(
        Advection(), Normalization(0.0, 2.0, 0.0, 2.0), GRID, "exact", "advection", scaling,
        propagator=propagator, **more,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["auto", "steps", "direct"])
@pytest.mark.parametrize("propagator", [ONE_STEP, ANY_LEAD], ids=["one-step", "lead times"])
def test_a_rollout_of_the_exact_operator_is_the_exact_solution(propagator, way):
    u0 = states()
    times = [0.5, 0.6] if way == "direct" else [0.5, 0.6, 0.7, 0.9, 1.3]
    found = operator_of(propagator).rollout(u0, times, way=way, batch_size=2)
    assert torch.equal(found[:, 0], u0)
    for j, time in enumerate(times):
        expected = exact(u0, time - 0.5)
        assert (found[:, j] - expected).abs().max() < 1e-13 * u0.abs().max() * (j + 1) * 4


def test_a_stream_yields_the_rollout():
    u0, times = states(), [0.0, 0.1, 0.2, 0.4]
    operator = operator_of(ANY_LEAD)
    whole = operator.rollout(u0, times)
    for j, (time, state) in enumerate(operator.rollout_steps(u0, times)):
        assert time == times[j]
        assert torch.equal(state, whole[:, j])


def test_lead_time_zero_is_the_identity():
    operator = operator_of(replace(ANY_LEAD, residual=True))
    u = states()
    assert torch.allclose(operator(u, 0.0), u, rtol=0, atol=1e-15 * float(u.abs().max()))


def test_jumps_are_as_few_as_lead_times_allow():
    times = [0.0, 0.1, 0.3, 0.4, 0.5, 1.2]
    bases = [jump.base for jump in plan_rollout(ANY_LEAD, times)]
    assert bases == [0, 0, 0, 1, 4]
    assert len(plan_rollout(ANY_LEAD, times)[-1].leads) == 2  # 0.7 in two of 0.35
    for way in ("auto", "steps"):
        for j, jump in enumerate(plan_rollout(ANY_LEAD, times, way), start=1):
            assert times[jump.base] + sum(jump.leads) == pytest.approx(times[j])


@pytest.mark.parametrize(
    ("times", "way", "words"),
    [
        ([0.0, 0.2, 0.1], "auto", "do not increase"),
        ([0.0], "auto", "two or more"),
        ([0.0, math.nan], "auto", "finite"),
        ([0.0, 0.1, 0.25], "auto", "no multiple"),
        ([0.0, 0.2], "direct", "use way 'steps'"),
        ([0.0, 0.1], "sideways", "unknown way"),
    ],
)
def test_bad_times_are_refused_with_a_remedy(times, way, words):
    with pytest.raises(ValueError, match=words):
        operator_of(ONE_STEP).rollout(states(), times, way=way)


def test_lead_times_beyond_training_are_warned_of():
    with pytest.warns(OutOfRange, match="lead time 0.9"):
        operator_of(ANY_LEAD).rollout(states(), [0.0, 0.9], way="direct")
    with pytest.warns(OutOfRange, match="lead time 0.01"):
        operator_of(ANY_LEAD).rollout(states(), [0.0, 0.01])


def test_a_rollout_that_leaves_the_range_says_when():
    u0 = states()
    operator = operator_of(ONE_STEP, range=TrainingRange.of([u0], (16,)))
    operator.rollout(u0, [0.0, 0.1, 0.2])  # which decays: no warning
    with torch.no_grad():
        operator.network.scale.fill_(2.0)
    with pytest.warns(OutOfRange, match=r"t = 0\.[1-4]") as told:
        operator.rollout(u0, [0.1 * i for i in range(6)])
    assert len(told) == 1
    with torch.no_grad():
        operator.network.scale.fill_(1e200)
    operator.range = None
    with pytest.raises(ValueError, match=r"NaN or infinite values at t = 0\.2"):
        operator.rollout(u0, [0.0, 0.1, 0.2, 0.3])


def test_bad_states_are_refused():
    operator = operator_of(ONE_STEP)
    with pytest.raises(ValueError, match="give them so"):
        operator.rollout(torch.zeros(2, 1, 4, 4), [0.0, 0.1])
    with pytest.raises(ValueError, match="NaN"):
        operator.rollout(torch.full((2, 1, 16), math.nan), [0.0, 0.1])


def test_parameters_reach_the_network():
    class Decay(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, u: Tensor, conditions: Tensor) -> Tensor:
            lead, rate = 0.4 * conditions[:, 0], 1 + 2 * conditions[:, 1]
            return self.scale * u * torch.exp(-lead * rate)[:, None, None]

    how = replace(ANY_LEAD, conditions=("time", "nu"), parameters=("nu",), low=(1.0,), high=(3.0,))
    operator = EvolutionOperator(
        Decay(), Normalization.identity(), GRID, "decay", "decay", propagator=how
    )
    u0, nu = states(), torch.tensor([[1.0], [2.0], [3.0]])
    found = operator.rollout(u0, [0.0, 0.4, 0.8], parameters=nu, batch_size=2)
    assert torch.allclose(found[:, 2], u0 * torch.exp(-0.8 * nu[..., None]))
    with pytest.raises(ValueError, match="nu"):
        operator.rollout(u0, [0.0, 0.4])
    with pytest.raises(ValueError, match="2 parameters are given"):
        operator.rollout(u0, [0.0, 0.4], parameters=torch.ones(3, 2))


def moving(n: int, times: int = 6) -> Trajectories:
    t = 0.1 * torch.arange(times, dtype=torch.float64)
    generator = torch.Generator().manual_seed(n)
    low = torch.randn(n, 1, 4, generator=generator, dtype=torch.complex128)
    u0 = torch.fft.irfft(torch.nn.functional.pad(low, (0, 5)), 16)
    u0 = 16 * (u0 - u0.mean(-1, keepdim=True))
    return Trajectories(torch.stack([exact(u0, float(s)) for s in t], 1), t, GRID)


RECIPE = Recipe(epochs=3, batch_size=8, learning_rate=3e-3, schedule="cosine")
NETWORK = {"levels": 1, "width": 4, "skip_blocks": 1, "neck_blocks": 1, "lift_width": 4}
CPU = Hardware(accelerator="cpu")


@pytest.mark.filterwarnings("ignore::torchcno.OutOfRange")  # three epochs learn little
@pytest.mark.parametrize("lead_times", ["one-step", "all-to-all", "direct"])
def test_a_run_on_trajectories_is_a_run(lead_times, tmp_path):
    data = moving(20)
    train, val, test = data.split(12, 4, 4)
    recipe = replace(RECIPE, lead_times=lead_times, batch_size=4)
    folder = tmp_path / "run"
    operator = torchcno.train(
        "cno", train, val, folder, test=test, recipe=recipe, hardware=CPU,
        watch=torchcno.runs.watching.NO_ONE, **NETWORK,
    )  # fmt: skip
    assert isinstance(operator, EvolutionOperator)
    assert operator.propagator.knows_time == (lead_times == "all-to-all")
    loaded = torchcno.load(folder)
    times = [0.0, 0.5] if lead_times == "direct" else [0.0, 0.2, 0.3, 0.5]
    u0 = test.at(0)
    assert torch.equal(operator.rollout(u0, times), loaded.rollout(u0, times))
    (evaluation,) = torchcno.evaluate_run(folder)
    assert torch.allclose(evaluation.prediction, loaded.rollout(u0, times)[:, -1], atol=1e-5)
    result = torchcno.RunFolder(folder).result()
    for metric, spaces in evaluation.summary.items():
        assert result["errors"]["test"][metric] == pytest.approx(spaces, rel=1e-4)


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path):
    train, val = moving(12), moving(4)
    recipe = replace(RECIPE, unroll=2, noise=0.01, averaging_half_life=1.0)
    weights = []
    for name, stop in (("whole", None), ("parts", 2)):
        seen = []

        def tell(epoch, seen=seen, stop=stop):
            seen.append(epoch)
            if len(seen) == stop:
                raise KeyboardInterrupt

        how = {"recipe": replace(recipe, checkpoint_every=0), "hardware": CPU, **NETWORK}
        watch = torchcno.runs.watching.Watch(epoch=tell)
        if stop:
            with pytest.raises(KeyboardInterrupt):
                torchcno.train("cno", train, val, tmp_path / name, watch=watch, **how)
            torchcno.resume_run(tmp_path / name)
        else:
            torchcno.train("cno", train, val, tmp_path / name, watch=watch, **how)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_what_does_not_fit_trajectories_is_refused(tmp_path):
    train, val = moving(12), moving(4)
    fields = train.as_fields()

    def refused(words, a, b, mask=None, **recipe):
        with pytest.raises(ValueError, match=words):
            torchcno.train(
                "cno", a, b, tmp_path / "run", recipe=replace(RECIPE, **recipe), hardware=CPU,
                mask=mask, watch=torchcno.runs.watching.NO_ONE, **NETWORK,
            )  # fmt: skip

    refused("is for trajectories", fields, fields, unroll=2)
    refused("give Trajectories", train, fields)
    refused("smaller unroll", train, val, unroll=9)
    refused("at most", train, val, samples=13)
    refused("pairs of fields", train, val, mask=lambda u: u > 0)
    assert not list(tmp_path.iterdir())


def test_folders_of_pairs_load_as_before(tmp_path):
    data = moving(12).as_fields()
    torchcno.train(
        "cno", data, Fields(*moving(4).as_fields(), GRID), tmp_path / "run", recipe=RECIPE,
        hardware=CPU, watch=torchcno.runs.watching.NO_ONE, **NETWORK,
    )  # fmt: skip
    assert type(torchcno.load(tmp_path / "run")) is torchcno.TrainedOperator
    assert "propagator" not in Path(tmp_path / "run" / "model.json").read_text()
