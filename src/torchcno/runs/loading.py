"""The data of a run, by its configuration: pairs of fields or trajectories, the user's or made."""

from collections.abc import Sequence
from typing import Any

import torch

from torchcno.data.dataset import load as load_made
from torchcno.data.dataset import load_trajectories
from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields
from torchcno.data.trajectories import EQUAL_STEPS, Trajectories
from torchcno.runs.config import RunConfig
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData, OwnSet
from torchcno.runs.rollout import EvolutionOperator
from torchcno.sizes import available_memory


def load_training(config: RunConfig, **making: Any) -> OwnSet:
    """The training set: pairs that take more than half of the memory stay on the disk."""
    problem, samples = config.problem, config.train.samples
    if not isinstance(problem, OwnData):
        return load_split(config, "train", samples, **making)
    found, free = problem.open("train", samples), available_memory()
    if isinstance(found, StoredFields) and (free is None or 2 * found.nbytes <= free / 2):
        return found.load()
    return found


def load_split(
    config: RunConfig,
    split: str,
    samples: int | None = None,
    resolution: int | None = None,
    times: Sequence[float] = (),
    **making: Any,
) -> Fields | Trajectories:
    """What a run learns from or is judged by: pairs of fields, or trajectories where it has times.

    The user's, or those that the problem makes: at `times`, or at those of the run.
    `making` says how what is not there is made: `device` and `progress`.
    """
    problem, resolution = config.problem, resolution or config.resolution
    if isinstance(problem, OwnData):
        return problem.load(split, samples, resolution)
    making |= {"samples": samples, "resolution": resolution, "folder": config.data}
    if config.times:
        return load_trajectories(problem, split, times or config.times, **making)
    return load_made(problem, split, **making)


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
