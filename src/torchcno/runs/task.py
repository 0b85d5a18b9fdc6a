"""What is to be learnt, and how: from pairs of fields, or from trajectories."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.data.places import outputs_know_places
from torchcno.data.statistics import OddData, fields_statistics, find_oddities
from torchcno.data.stored import StoredFields, in_memory
from torchcno.data.trajectories import Trajectories
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.resolution import Evaluation
from torchcno.metrics import Mask
from torchcno.models.ensemble import Ensemble
from torchcno.operators.conditioning import conditioning_of
from torchcno.runs.checks import refuse_moved_zero
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.loading import pair_steps
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData, OwnSet
from torchcno.runs.physics import ScaledEquation
from torchcno.runs.presets import model_class
from torchcno.runs.ranges import TrainingRange
from torchcno.runs.rollout import EvolutionOperator, Horizon
from torchcno.runs.trust import Trust, measure_trust
from torchcno.training import Pairs, load_into, load_tensors
from torchcno.training.pairs import refuse_zeros
from torchcno.training.propagator import TIME
from torchcno.training.streaming import StreamedPairs, window_of
from torchcno.training.windows import Rollouts, Windows, describe_propagator

Loss = Callable[[Tensor, Tensor], Tensor]  # of (prediction, target) of a batch
RANGE_BLOCK = 64  # samples whose range is taken at a time
PLACED = 128  # samples that tell whether outputs depend on the place


@dataclass(frozen=True)
class Task(ABC):
    """What is to be learnt, and how."""

    operator: TrainedOperator  # to be trained: network, scaling, grid and names
    sets: Mapping[str, Any]  # "train", "val", and what is to be evaluated, in physical values
    config: RunConfig
    mask: Mask | None = None  # of physical inputs: where outputs count; None: everywhere
    loss: Loss | None = None  # the user's; None: the recipe's

    @abstractmethod
    def load(self, split: str) -> Fields:
        """The inputs of a split, in memory, and the outputs that the network is evaluated on."""

    @property
    @abstractmethod
    def known(self) -> Fields | StoredFields:
        """The training set as pairs of inputs and outputs."""

    @abstractmethod
    def supply(self) -> Pairs | StreamedPairs | Windows:
        """The training set as the network sees it."""

    @abstractmethod
    def judged(self) -> Pairs | Rollouts:
        """What the network is judged by while it learns."""

    @abstractmethod
    def mapping(self, split: str) -> TrainedOperator:
        """The operator from the inputs of a split to its outputs: a result has its errors."""

    @abstractmethod
    def measure_trust(self) -> Trust | None:
        """How far to trust the operator's predictions; None where that cannot be known."""

    def evaluate(self, split: str) -> Evaluation:
        """Predictions of a split, physical, and their errors."""
        fields = self.load(split)
        prediction = self.mapping(split).apply_to(fields.inputs)
        errors = sample_errors(prediction, fields, self.operator.error_scaling, self.mask)
        return Evaluation(fields, prediction, errors, split)

    def check(self) -> None:
        """Refuse, before anything is written, what no training would take."""
        wanted, there = self.config.train.samples, len(self.sets["train"])
        if wanted is not None and wanted > there:
            raise ValueError(f"samples is {wanted}, and there are {there}; use at most those.")
        refuse_zeros(self.judged(), "validation")


@dataclass(frozen=True)
class PairsTask(Task):
    """To learn outputs from inputs."""

    sets: Mapping[str, Fields | StoredFields]  # of which "train" may stay on a disk

    def load(self, split: str) -> Fields:
        """The fields of a split, in memory."""
        return in_memory(self.sets[split])

    @property
    def known(self) -> Fields | StoredFields:
        """The training set, where it lies."""
        return self.sets["train"]

    def supply(self) -> Pairs | StreamedPairs:
        """The training set as the network sees it, in memory or from the disk."""
        fields, problem = self.known, self.config.problem
        if not isinstance(fields, Fields):
            return StreamedPairs(
                fields,
                lambda stored, numbers: self.scale(stored.read(numbers)),
                window_of(fields, self.config.train.window),
            )
        pairs = self.scale(fields)
        if not self.config.train.physics or isinstance(problem, OwnData):
            return pairs
        return replace(pairs, equation=ScaledEquation(problem, self.operator.normalization))

    def scale(self, fields: Fields) -> Pairs:
        """Fields as the network sees them."""
        scaling = self.operator.normalization
        # Scaled first and rounded then: of 101325 ± 1 Pa in float64, float32 alone keeps little.
        inputs = scaling.normalize_inputs(fields.inputs).float()
        targets = scaling.normalize_outputs(fields.outputs).float()
        counts = fields.counts(self.mask)
        if counts is None:
            return Pairs(inputs, targets)
        fill = 1.0 if fields.mask is None else 0.0  # as in `sample_errors`
        return Pairs(inputs, targets, counts.expand_as(targets), fill=fill)

    def judged(self) -> Pairs:
        """The validation set, scaled."""
        return self.scale(self.load("val"))

    def mapping(self, split: str) -> TrainedOperator:
        """The operator itself."""
        return self.operator

    def measure_trust(self) -> Trust:
        """How far to trust the operator's predictions."""
        return measure_trust(self.operator, self.known, self.load("val"), self.mask)


@dataclass(frozen=True)
class EvolutionTask(Task):
    """To learn an evolution in time. It is evaluated from the first states to the last."""

    operator: EvolutionOperator
    sets: Mapping[str, Trajectories]

    def load(self, split: str) -> Fields:
        """The first states and the last."""
        return self.sets[split].as_fields()

    @property
    def known(self) -> Fields:
        """The first states of the training set and the last."""
        return self.load("train")

    def supply(self) -> Windows:
        """The training set as the network sees it: windows of scaled trajectories."""
        recipe = self.config.train
        return Windows.of(
            self.scale("train"),
            self.operator.propagator,
            recipe.unroll,
            recipe.unroll_gradients,
            recipe.noise,
            recipe.time_weights,
        )

    def scale(self, split: str) -> Trajectories:
        """The trajectories of a split as the network sees them."""
        given = self.sets[split]
        scaled = self.operator.normalization.normalize_inputs(given.states.flatten(0, 1)).float()
        return replace(given, states=scaled.unflatten(0, given.states.shape[:2]))

    def judged(self) -> Rollouts:
        """Rollouts from the first validation states."""
        return Rollouts.of(self.scale("val"), self.operator.propagator)

    def mapping(self, split: str) -> Horizon:
        """The operator from the first time to the last."""
        return Horizon.of(self.operator, self.sets[split])

    def measure_trust(self) -> Trust | None:
        """How far to trust one step, from one pair of each trajectory, at various times."""
        if self.operator.propagator.conditions not in ((), (TIME,)):
            return None  # bands that hold for all parameters are not known
        lead = self.operator.propagator.longest
        known, new = (pair_steps(self.sets[split], lead) for split in ("train", "val"))
        return measure_trust(self.operator, known, new)


def make_task(
    operator: TrainedOperator,
    sets: Mapping[str, Any],
    config: RunConfig,
    mask: Mask | None = None,
    loss: Loss | None = None,
) -> Task:
    """What is to be learnt from fields, or from trajectories, whose outputs count everywhere."""
    if isinstance(operator, EvolutionOperator):
        return EvolutionTask(operator, sets, config, loss=loss)
    return PairsTask(operator, sets, config, mask, loss)


def build_network(config: RunConfig, folder: RunFolder) -> nn.Module:
    """The network before its training: by the seed, or with the weights that it came with."""
    if config.own_loss is not None:
        raise ValueError(
            f"the run was trained with the loss {config.own_loss}, which only Python can give "
            "again: torchcno.train(..., loss=..., resume=True)."
        )
    if config.members > 1:
        return Ensemble(build_network(alone, folder) for alone in config.alone)
    torch.manual_seed(config.seed)  # the initial weights
    network: nn.Module = model_class(config.model)(config.architecture)
    if folder.start_file.exists():
        load_into(network, load_tensors(folder.start_file)[0], folder.start_file)
    elif config.start is not None:
        start = RunFolder(config.start)
        load_into(network, load_tensors(start.existing(start.weights))[0], start.weights)
    return network


def find_place(config: RunConfig, fields: Fields | StoredFields) -> list[str]:
    """A sentence where outputs depend on the place and the network cannot tell where it is."""
    network = config.architecture
    told = getattr(network, "boundary", None) != "periodic"
    told = told or getattr(network, "fourier_features", 0) > 0
    if told or not outputs_know_places(fields[:PLACED]):
        return []
    return [
        "outputs differ from place to place, and inputs do not: a force or a coefficient stays in "
        "its place. A periodic network cannot tell where it is. Use fourier_features 1 (on the "
        "command line --model.fourier_features 1), or give the force as one more input channel."
    ]


def make_operator(
    config: RunConfig,
    train: OwnSet,
    network: nn.Module,
    normalization: Normalization | str | None = None,
) -> TrainedOperator:
    """`network` between the scaling that is given, or the recipe's, or its start's, or the rule's.

    A benchmark is scaled as published and own data by `auto`, unless the recipe says otherwise.
    Benchmarks' errors are always of fields as they are scaled by the published protocol. Of
    trajectories, scaling and range are those of all states.
    """
    problem, recipe = config.problem, config.train
    fields = train.every_state() if isinstance(train, Trajectories) else train
    published, statistics = None, fields_statistics(fields)
    if isinstance(problem, OwnData):
        for oddity in (*find_oddities(*statistics), *find_place(config, fields)):
            warnings.warn(oddity, OddData, stacklevel=3)
    else:
        name = "unit" if problem.normalized else "none"
        published = Normalization.of_statistics(*statistics, name)
    chosen = normalization or recipe.normalization
    if chosen is None and config.start is not None:
        chosen = load(config.start, network=copy.deepcopy(network)).normalization
    scaling = chosen or published or "auto"
    if not isinstance(scaling, Normalization):
        scaling = Normalization.of_statistics(*statistics, scaling)
    refuse_moved_zero(recipe, scaling)
    inputs, grid = (block.inputs for block in fields.blocks(RANGE_BLOCK)), fields.grid
    seen = TrainingRange.of(inputs, grid.shape)
    parts = (network, scaling, grid, config.model, problem.label, published, recipe.group, seen)
    if not isinstance(train, Trajectories):
        return TrainedOperator(*parts)
    propagator = describe_propagator(
        train, recipe.lead_times, recipe.unroll, recipe.residual, conditioning_of(network)
    )
    return EvolutionOperator(*parts, propagator=propagator)
