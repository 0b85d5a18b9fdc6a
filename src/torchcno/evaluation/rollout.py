"""How far a rollout can be trusted: errors, correlation, spectra and invariants against time."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.trajectories import Trajectories
from torchcno.evaluation.linear import PENALTIES, linear_map
from torchcno.evaluation.spectra import radial_spectrum
from torchcno.metrics import relative_l1, relative_l2

States = Float[Tensor, "sample time channel *space"]
Invariants = Callable[[Tensor], Mapping[str, Tensor]]  # of (…, channel, *space), each (…)
CORRELATED = 0.9  # the correlation with the truth above which a rollout is taken to follow it
PAIRS = 1024  # that a linear map is fitted to
TUNED = 32  # trajectories by which its penalty is chosen


def vrmse(prediction: Tensor, truth: Tensor) -> Float[Tensor, " batch"]:
    """√(⟨(p − v)²⟩ / ⟨(v − ⟨v⟩)²⟩), the mean over channels: 1 is no better than the mean value."""
    p, v = prediction.flatten(2), truth.flatten(2)
    variance = v.var(2, correction=0)
    return ((p - v).square().mean(2) / variance.clamp(min=1e-14)).sqrt().mean(1)


def correlation(prediction: Tensor, truth: Tensor) -> Float[Tensor, " batch"]:
    """⟨p', v'⟩ / (‖p'‖ ‖v'‖) with p' = p − ⟨p⟩ of each channel, over channels and space."""
    p, v = (u.flatten(2) - u.flatten(2).mean(2, keepdim=True) for u in (prediction, truth))
    products = (p * v).flatten(1).sum(1)
    norms = p.flatten(1).norm(dim=1) * v.flatten(1).norm(dim=1)
    return torch.where(norms > 0, products / norms.clamp(min=1e-300), products.new_ones(()))


ROLLOUT_METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relative_l1": relative_l1,
    "relative_l2": relative_l2,
    "vrmse": vrmse,
    "correlation": correlation,
}


@dataclass(frozen=True)
class RolloutErrors:
    """One predictor's rollouts beside the truth: medians over samples, a number per time."""

    name: str
    times: tuple[float, ...]
    metrics: Mapping[str, tuple[float, ...]]  # by name of `ROLLOUT_METRICS`
    # The time until the correlation falls below 0.9, the median over samples; a sample that never
    # does counts as the last time.
    correlated_until: float
    lasting: float  # the share of samples whose correlation never does
    spectra: tuple[tuple[float, ...], ...]  # energy by time and shell of wavenumbers
    invariants: Mapping[str, tuple[float, ...]]  # the mean over samples
    seconds: float | None = None  # that the rollouts of all samples took

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return asdict(self)


def measure_rollout(
    name: str,
    prediction: States,
    truth: Trajectories,
    invariants: Invariants | None = None,
    seconds: float | None = None,
) -> RolloutErrors:
    """The errors of physical predictions of all times of `truth`, its first states among them."""
    if prediction.shape != truth.states.shape:
        raise ValueError(
            f"rollouts of shape {tuple(prediction.shape)} cannot be compared with trajectories of "
            f"{tuple(truth.states.shape)}; roll out from their first states to their times."
        )
    p, v = prediction.double().cpu(), truth.states.double().cpu()
    pairs = [(p[:, j], v[:, j]) for j in range(p.shape[1])]
    found = {
        metric: torch.stack([measure(*pair) for pair in pairs], dim=1)
        for metric, measure in ROLLOUT_METRICS.items()
    }
    until = correlated_times(found["correlation"], truth.times)
    layout = truth.grid.layout
    numbers = invariants(p) if invariants is not None else {}
    return RolloutErrors(
        name=name,
        times=tuple(truth.times.tolist()),
        metrics={key: tuple(values.median(0).values.tolist()) for key, values in found.items()},
        correlated_until=float(until.median()),
        lasting=float((found["correlation"] >= CORRELATED).all(1).double().mean()),
        spectra=tuple(tuple(radial_spectrum(state, layout).tolist()) for state, _ in pairs),
        invariants={key: tuple(value.mean(0).tolist()) for key, value in numbers.items()},
        seconds=seconds,
    )


def correlated_times(
    values: Float[Tensor, "sample time"], times: Float[Tensor, " time"]
) -> Float[Tensor, " sample"]:
    """When the correlation first falls below 0.9, by a line between two times; else the last."""
    found = []
    for row in values.tolist():
        j = next((j for j, value in enumerate(row) if not value >= CORRELATED), None)
        if j is None or j == 0:
            found.append(float(times[-1] if j is None else times[0]))
            continue
        before, after = row[j - 1], row[j] if math.isfinite(row[j]) else -1.0
        part = (before - CORRELATED) / (before - after)
        found.append(float(times[j - 1] + part * (times[j] - times[j - 1])))
    return torch.tensor(found, dtype=torch.float64)


def persist(truth: Trajectories) -> States:
    """The first state, at all times."""
    return truth.at(0)[:, None].expand_as(truth.states)


def roll_out_linearly(train: Trajectories, val: Trajectories, truth: Trajectories) -> States:
    """A linear map over one step, fitted to training pairs and applied again and again.

    Its penalty is the one with the least error of rollouts on `val`. All have one equal step.
    """
    step = train.step
    if max(abs(step - one.step) for one in (val, truth)) > 1e-6 * step:
        raise ValueError("the trajectories differ in their steps; give the same to all.")
    pairs = train.pairs(1)
    there = len(train) * len(pairs)
    few_pairs = min(PAIRS, there)
    spread = torch.arange(few_pairs) * there // few_pairs
    samples, starts = spread // len(pairs), pairs[spread % len(pairs)]
    before, after = (train.states[samples, starts[:, side]] for side in (0, 1))
    predict = linear_map(Fields(before, after, train.grid))

    def roll_out(start: Tensor, count: int, penalty: float) -> Tensor:
        states = [start]
        for _ in range(count - 1):
            states.append(predict(states[-1], penalty))
        return torch.stack(states, dim=1)

    few = val[:TUNED]

    def error(penalty: float) -> float:
        made = roll_out(few.at(0), len(few.times), penalty)
        found = float((made - few.states).abs().mean())
        return found if math.isfinite(found) else math.inf

    best = min(PENALTIES, key=error)
    return roll_out(truth.at(0), len(truth.times), best)


def compare_rollouts(
    rollouts: Mapping[str, States],
    truth: Trajectories,
    invariants: Invariants | None = None,
    seconds: Mapping[str, float] = {},
) -> list[RolloutErrors]:
    """The errors of several predictors, and the truth's own spectra and invariants, first."""
    everyone = {"truth": truth.states, **rollouts}
    return [
        measure_rollout(name, states, truth, invariants, seconds.get(name))
        for name, states in everyone.items()
    ]


def error_at(errors: RolloutErrors, time: float) -> float:
    """The relative L1 error at the time that is nearest to `time`."""
    pairs = zip(errors.times, errors.metrics["relative_l1"], strict=True)
    return min(pairs, key=lambda pair: abs(pair[0] - time))[1]
