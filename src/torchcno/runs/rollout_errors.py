"""A trained evolution rolled out beside the truth, and beside predictors that know less or more."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from torchcno.arithmetic import arithmetic
from torchcno.data.samples import Samples
from torchcno.data.trajectories import Trajectories
from torchcno.evaluation.rollout import (
    RolloutErrors,
    compare_rollouts,
    persist,
    roll_out_linearly,
)
from torchcno.evaluation.timing import wait
from torchcno.problems.evolution import Evolution
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.loading import load_split
from torchcno.runs.own import present_splits
from torchcno.runs.rollout import EvolutionOperator
from torchcno.spectral import resample
from torchcno.training.hardware import pick_device

NETWORK, PERSISTENCE, LINEAR = "network", "persistence", "linear map"
# Shares of the solver's points or steps that are tried, from the cheapest on.
SHARES = (1 / 16, 1 / 12, 1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3)
SAMPLES = 32  # that a rollout is evaluated on, at most, unless said


@dataclass(frozen=True)
class RolloutReport:
    """Rollouts of a run's operator and of others, with their errors."""

    name: str
    split: str
    truth: Trajectories
    rollouts: dict[str, Tensor]  # by predictor: (sample, time, channel, *space)
    errors: Sequence[RolloutErrors]  # the truth's own first, then those of the predictors
    trained_until: float  # the last time of the training data

    def as_dict(self) -> dict[str, Any]:
        """All numbers, for a JSON file."""
        return {
            "run": self.name,
            "split": self.split,
            "samples": len(self.truth),
            "trained_until": self.trained_until,
            "errors": [one.as_dict() for one in self.errors],
        }


def evaluate_rollout(
    folder: str | Path,
    until: float | None = None,
    split: str | None = None,
    samples: int | None = None,
    device: str = "auto",
    data: str | Path | None = None,
    network: nn.Module | None = None,
    way: str = "auto",
) -> RolloutReport:
    """Roll out the operator of a run from the first states of a split, to the time `until`.

    Without `until`: over the times of the data. Beyond them only a problem with a solver knows the
    truth. Beside the network: persistence, a linear map over one step (where the steps in time are
    equal), and the problem's solver, coarsened until it takes no longer than the network.
    """
    run, where = RunFolder(folder), pick_device(device)
    config = run.config_here(data)
    operator = run.operator(where, network)
    if not isinstance(operator, EvolutionOperator):
        raise ValueError(
            f"{folder} maps inputs to outputs, and knows no time; train on trajectories to roll "
            "out: cno train PROBLEM MODEL --times 0:1:0.1, or --data FILE --time NAME."
        )
    if split is None:
        (split,) = present_splits(config.problem, ("test",))
    times = extend_times(config, until)
    count = choose_samples(config, split, samples)
    truth = load_split(config, split, count, times=times, device=where)
    assert isinstance(truth, Trajectories)  # as of every run that has such an operator
    truth = truth.select_times(_known(operator, truth.times.tolist(), until))
    with arithmetic(config.train.precision):
        rollouts, seconds = {}, {}
        rollouts[NETWORK], seconds[NETWORK] = timed(
            lambda: operator.rollout(
                truth.at(0), truth.times, parameters=truth.parameters, way=way
            ),
            where,
        )
    rollouts[PERSISTENCE] = persist(truth)
    known: dict[str, Any] = {s: load_split(config, s, device=where) for s in ("train", "val")}
    if all(one.is_uniform for one in (truth, *known.values())) and _same_steps(truth, known):
        rollouts[LINEAR] = roll_out_linearly(known["train"], known["val"], truth)
    if isinstance(config.problem, Evolution):
        name, states, spent = solve_at_cost(
            config.problem, split, truth, config.resolution, where, seconds[NETWORK]
        )
        rollouts[name], seconds[name] = states, spent
    invariants = config.problem.invariants
    errors = compare_rollouts(rollouts, truth, invariants, seconds)
    last = float(known["train"].times[-1])
    return RolloutReport(run.path.resolve().name, split, truth, rollouts, errors, last)


def extend_times(config: RunConfig, until: float | None) -> tuple[float, ...]:
    """The times of the training data, and on by their last step to `until`."""
    times = config.times
    if until is None or until <= times[-1] * (1 + 1e-9):
        return times
    if not isinstance(config.problem, Evolution):
        raise ValueError(
            f"the data end at t = {times[-1]:g}, and nobody knows the truth at {until:g}; use "
            f"--until {times[-1]:g} or less."
        )
    step = times[-1] - times[-2]
    more = int((until - times[-1]) / step + 1e-6)
    return (*times, *(times[-1] + step * (i + 1) for i in range(more)))


def choose_samples(config: RunConfig, split: str, samples: int | None) -> int:
    """How many trajectories of a split are rolled out."""
    there = config.problem.samples[split]
    if samples is not None and not samples >= 1:
        raise ValueError(f"samples is {samples}; use 1 or more.")
    return min(SAMPLES, there) if samples is None else samples


def _known(operator: EvolutionOperator, times: list[float], until: float | None) -> list[int]:
    """The numbers of the times that the network reaches, up to `until`."""
    end = times[-1] if until is None else until * (1 + 1e-9)
    within = [j for j, t in enumerate(times) if t <= end]
    if operator.propagator.knows_time:
        return within
    step, first = operator.propagator.longest, times[0]
    steps = [(times[j] - first) / step for j in within]
    reached = [j for j, n in zip(within, steps, strict=True) if abs(n - round(n)) < 1e-3]
    if len(reached) < 2:
        raise ValueError(
            f"the network makes steps of {step:g}, and no time of the data up to {end:g} is so far "
            f"from the first; use --until {first + step:g} or more."
        )
    return reached


def _same_steps(truth: Trajectories, known: dict[str, Trajectories]) -> bool:
    return all(abs(one.step - truth.step) <= 1e-6 * truth.step for one in known.values())


def timed(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float]:
    """What `work` gives, and the seconds of its second run: the first chooses algorithms."""
    for _ in range(2):
        wait(device)
        start = time.perf_counter()
        made = work()
        wait(device)
    return made, time.perf_counter() - start


def solve_at_cost(
    problem: Evolution,
    split: str,
    truth: Trajectories,
    resolution: int,
    device: torch.device,
    seconds: float,
) -> tuple[str, Tensor, float]:
    """The best of the coarsened solvers that take no longer than `seconds`, or else the cheapest.

    Its name, its states on the grid of `truth`, and its time for all samples.
    """
    samples = Samples.of(problem, split, resolution, 0, len(truth), tuple(truth.times.tolist()))
    found: tuple[str, Tensor, float] | None = None
    for share in SHARES:
        try:
            made = solve_coarsely(samples, share, truth, device)
        except ValueError:  # so few points do not hold the initial data
            continue
        if found is not None and made[2] > seconds:
            break
        found = made
    if found is None:
        raise ValueError(f"{problem.name} has no coarser solver that holds its initial data.")
    return found


def solve_coarsely(
    samples: Samples, share: float, truth: Trajectories, device: torch.device
) -> tuple[str, Tensor, float]:
    """The samples by the solver with `share` of its points or steps, timed."""
    coarse = samples.split_problem.coarsened(share)
    assert isinstance(coarse, Evolution)
    shape = samples.grid.shape
    # A solver that stays as it is gets a coarser grid.
    points = tuple(max(4, round(share * n)) for n in shape)
    grid = coarse.solver_grid(points if coarse is samples.split_problem else shape)
    seeds = [samples.sample_seed(i) for i in range(samples.count)]
    generators = [Generator().manual_seed(seed) for seed in seeds]
    batches = coarse.draw_batches(generators, grid, device)
    states, spent = timed(
        lambda: torch.cat([coarse.trajectory(batch, samples.times) for batch in batches]), device
    )
    seen = coarse.observe(states.flatten(0, 1))
    there = resample(seen, shape, samples.problem.layout).unflatten(0, states.shape[:2])
    name = f"solver, {' × '.join(map(str, grid.shape))} points"
    return name, there.to("cpu", truth.states.dtype), spent
