"""Runs that learn an evolution in time: trajectories in, an `EvolutionOperator` out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchcno.data.dataset import load_trajectories
from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.data.trajectories import EQUAL_STEPS, Trajectories
from torchcno.evaluation.resolution import on_grid
from torchcno.operators.conditioning import conditioning_of
from torchcno.runs.config import RunConfig
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData, load_split
from torchcno.runs.rollout import EvolutionOperator, Horizon
from torchcno.runs.trust import Trust, measure_trust
from torchcno.training import Recipe
from torchcno.training.pairs import refuse_zeros
from torchcno.training.propagator import TIME
from torchcno.training.windows import (
    Rollouts,
    Windows,
    describe_propagator,
    parameter_names,
)


def check_trajectories(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The sets that are given, if all of them are trajectories of one kind."""
    given = {which: one for which, one in sets.items() if one is not None}
    train = given["train"]
    for which, one in given.items():
        if not isinstance(one, Trajectories):
            raise ValueError(
                f"`train` is Trajectories, and `{which}` is a {type(one).__name__}; give "
                "Trajectories for both."
            )
        if parameter_names(one) != parameter_names(train):
            raise ValueError(
                f"the trajectories of `train` have the parameters {parameter_names(train)}, those "
                f"of `{which}` {parameter_names(one)}; give the same."
            )
    return given


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
        return load_trajectories(
            problem,
            split,
            times or config.times,
            samples=samples,
            resolution=resolution,
            folder=config.data,
            **making,
        )
    found = problem.open(split, samples)
    assert isinstance(found, Trajectories)
    return found if resolution == problem.resolution else resample_states(found, resolution)


def resample_states(trajectories: Trajectories, resolution: int) -> Trajectories:
    """The same functions on `resolution` points along the last axis."""
    there = on_grid(as_states(trajectories), resolution)
    states = there.inputs.unflatten(0, trajectories.states.shape[:2])
    return replace(trajectories, states=states, grid=there.grid)


def as_states(trajectories: Trajectories) -> Fields:
    """Every state as input and as output: what scaling and range are taken of."""
    states = trajectories.states.flatten(0, 1)
    return Fields(states, states, trajectories.grid)


def make_evolution_operator(
    base: TrainedOperator, train: Trajectories, recipe: Recipe
) -> EvolutionOperator:
    """`base`, an operator with the scaling of all states, as one that goes on in time."""
    propagator = describe_propagator(
        train, recipe.lead_times, recipe.unroll, recipe.residual, conditioning_of(base.network)
    )
    return EvolutionOperator(
        base.network,
        base.normalization,
        base.grid,
        base.model,
        base.problem,
        base.error_scaling,
        base.symmetry,
        base.range,
        propagator=propagator,
    )


def scale_states(trajectories: Trajectories, normalization: Normalization) -> Trajectories:
    """The trajectories as networks see them."""
    states = trajectories.states.flatten(0, 1)
    scaled = normalization.normalize_inputs(states).float()
    return replace(trajectories, states=scaled.unflatten(0, trajectories.states.shape[:2]))


@dataclass(frozen=True)
class EvolutionTask:
    """What is to be learnt, and how: as `Task`, of trajectories."""

    operator: EvolutionOperator  # to be trained
    trajectories: Mapping[str, Trajectories]  # by split, in physical values
    config: RunConfig
    loss: Callable[[Tensor, Tensor], Tensor] | None = None  # the user's; None: the recipe's
    mask: None = None  # where outputs count: everywhere

    def load(self, split: str) -> Fields:
        """The first states and the last, which the network is evaluated on."""
        return self.trajectories[split].as_fields()

    @property
    def known(self) -> Fields:
        """The training set as pairs of first and last states."""
        return self.load("train")

    def supply(self) -> Windows:
        """The training set as the network sees it."""
        recipe = self.config.train
        return Windows.of(
            scale_states(self.trajectories["train"], self.operator.normalization),
            self.operator.propagator,
            recipe.unroll,
            recipe.unroll_gradients,
            recipe.noise,
            recipe.time_weights,
        )

    def judged(self) -> Rollouts:
        """What the network is judged by while it learns."""
        scaled = scale_states(self.trajectories["val"], self.operator.normalization)
        return Rollouts.of(scaled, self.operator.propagator)

    @property
    def evaluated(self) -> Horizon:
        """The operator whose errors a result has: from the first time to the last."""
        train = self.trajectories["train"]
        first, *_, last = train.times.tolist()
        return Horizon(self.operator, first, last, train.parameters)

    def predict(self, split: str) -> Tensor:
        """The last states of a split, from the first."""
        given = self.trajectories[split]
        first, *_, last = given.times.tolist()
        return Horizon(self.operator, first, last, given.parameters).apply_to(given.at(0))

    def measure_trust(self) -> Trust | None:
        """How far to trust one step, from one pair of each trajectory, at various times."""
        if self.operator.propagator.conditions not in ((), (TIME,)):
            return None  # bands that hold for all parameters are not known
        lead = self.operator.propagator.longest
        known, new = (pair_steps(self.trajectories[split], lead) for split in ("train", "val"))
        return measure_trust(self.operator, known, new)

    def check(self) -> None:
        """Refuse, before anything is written, what no training would take."""
        wanted, there = self.config.train.samples, len(self.trajectories["train"])
        if wanted is not None and wanted > there:
            raise ValueError(f"samples is {wanted}, and there are {there}; use at most those.")
        refuse_zeros(self.judged(), "validation")


def load_pairs(
    config: RunConfig,
    split: str,
    samples: int | None,
    device: torch.device,
    resolution: int | None = None,
) -> Fields:
    """The inputs and outputs of a split, for a run without steps in time."""
    return load_split(
        config.problem,
        split,
        folder=config.data,
        resolution=resolution or config.resolution,
        samples=samples,
        device=device,
    )


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
    if isinstance(operator, EvolutionOperator):
        found = load_evolution(config, split, samples, resolution, device=device)
        return pair_steps(found, operator.propagator.longest)
    return load_pairs(config, split, samples, device, resolution)


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
