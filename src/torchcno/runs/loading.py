"""The data of a run, by its configuration: pairs of fields or trajectories, the user's or made."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from torchcno.data.dataset import load as load_made
from torchcno.data.dataset import load_trajectories
from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields
from torchcno.data.trajectories import EQUAL_STEPS, Trajectories
from torchcno.evaluation.resolution import on_grid
from torchcno.runs.config import RunConfig
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData, OwnSet
from torchcno.runs.rollout import EvolutionOperator
from torchcno.sizes import available_memory


def load_sets(config: RunConfig, splits: Sequence[str], **making: Any) -> dict[str, OwnSet]:
    """The fields or trajectories of `splits` and of `train`.

    Training pairs that take more than half of the memory stay on the disk.
    `making` says how those that are not there are made: `device` and `progress`.
    """
    problem, samples = config.problem, config.train.samples
    sets: dict[str, OwnSet] = {split: load_split(config, split, **making) for split in splits}
    if isinstance(problem, OwnData) and not config.times:
        fields, free = problem.open("train", samples), available_memory()
        if isinstance(fields, StoredFields) and free is not None and 2 * fields.nbytes > free / 2:
            return {**sets, "train": fields}
    return {**sets, "train": load_split(config, "train", samples, **making)}


def load_split(
    config: RunConfig,
    split: str,
    samples: int | None = None,
    resolution: int | None = None,
    **making: Any,
) -> Fields | Trajectories:
    """What a run learns from or is judged by: pairs of fields, or trajectories where it has times.

    The user's, or those that the problem makes.
    """
    if config.times:
        return load_evolution(config, split, samples, resolution, **making)
    problem, resolution = config.problem, resolution or config.resolution
    if isinstance(problem, OwnData):
        return problem.load(split, samples, resolution)
    making |= {"samples": samples, "resolution": resolution, "folder": config.data}
    return load_made(problem, split, **making)


def load_evolution(
    config: RunConfig,
    split: str,
    samples: int | None = None,
    resolution: int | None = None,
    times: Sequence[float] = (),
    **making: Any,
) -> Trajectories:
    """The trajectories of a split: the user's, or those that the problem makes, at `times`."""
    problem, resolution = config.problem, resolution or config.resolution
    if not isinstance(problem, OwnData):
        making |= {"samples": samples, "resolution": resolution, "folder": config.data}
        return load_trajectories(problem, split, times or config.times, **making)
    found = problem.open(split, samples)
    assert isinstance(found, Trajectories)
    return found if resolution == problem.resolution else resample_states(found, resolution)


def load_predicted(
    config: RunConfig,
    operator: TrainedOperator,
    split: str,
    samples: int | None,
    device: torch.device,
    resolution: int | None = None,
) -> Fields:
    """Fields whose outputs `operator.predict` gives from their inputs.

    Of an operator that goes on in time these are states one step apart.
    """
    found = load_split(config, split, samples, resolution, device=device)
    if isinstance(found, Fields):
        return found
    assert isinstance(operator, EvolutionOperator)
    return pair_steps(found, operator.propagator.longest)


def resample_states(trajectories: Trajectories, resolution: int) -> Trajectories:
    """The same functions on `resolution` points along the last axis."""
    there = on_grid(as_states(trajectories), resolution)
    states = there.inputs.unflatten(0, trajectories.states.shape[:2])
    return replace(trajectories, states=states, grid=there.grid)


def as_states(trajectories: Trajectories) -> Fields:
    """Every state as input and as output: what scaling and range are taken of."""
    states = trajectories.states.flatten(0, 1)
    return Fields(states, states, trajectories.grid)


def pair_steps(trajectories: Trajectories, lead: float) -> Fields:
    """One pair of states that are `lead` apart from each trajectory, at one start after another."""
    pairs = trajectories.pairs()
    fits = (trajectories.lead_times(pairs) - lead).abs() <= EQUAL_STEPS * lead
    numbers = torch.arange(len(trajectories))
    if not fits.any():
        raise ValueError(
            f"no two times are {lead:g} apart, as in training; give trajectories that have such."
        )
    chosen = pairs[fits][numbers % int(fits.sum())]
    before, after = (trajectories.states[numbers, chosen[:, side]] for side in (0, 1))
    return Fields(before, after, trajectories.grid)
