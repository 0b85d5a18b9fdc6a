"""What `bench` measures: a training step, a prediction and a solution, each ready to be called."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from torchcno.arithmetic import FIELDS, LOSS_FACTORS, Precision
from torchcno.evaluation.timing import wait
from torchcno.operators import lay_channels_last
from torchcno.operators.activation import Activation
from torchcno.operators.sigma import SIGMAS
from torchcno.problems.problem import Problem
from torchcno.runs.presets import build_model
from torchcno.training.losses import LOSSES
from torchcno.training.optimizers import make_optimizer
from torchcno.training.pairs import MixedPrecision
from torchcno.training.recipe import Recipe
from torchcno.training.step import eager_step, graphed, graphed_step

Work = Callable[[], object]
Compute = Callable[[Activation, Tensor], Tensor]  # Σ x of an activation, or nearly


class Replaced(nn.Module):
    """An activation that is computed in another way."""

    def __init__(self, activation: Activation, compute: Compute) -> None:
        super().__init__()
        self.activation, self.compute = activation, compute

    def forward(self, x: Float[Tensor, "batch channel *space"]) -> Tensor:
        """Σ x, or nearly."""
        return self.compute(self.activation, x)


def bicubic(own: Activation, x: Float[Tensor, "batch channel y x"]) -> Tensor:
    """Near Σ x: between bicubic interpolations, as implementations without own filters have it.

    σ on twice the points of the input, taken to those of the output, with torch's antialiasing.
    """
    fine = tuple(2 * n for n in own.size_in)
    x = F.interpolate(x + own.bias.view(-1, 1, 1), fine, mode="bicubic", antialias=True)
    x = SIGMAS[own.sigma](x)
    return F.interpolate(x, own.size_out, mode="bicubic", antialias=True)


@dataclass(frozen=True)
class Way:
    """A network, and how it runs."""

    model: str = "cno"
    activation: Compute | None = None  # in place of each; None: as it is
    channels_first: bool = False  # in memory, also where training has them last
    precision: Precision = "tf32"
    captured: bool = True  # in a CUDA graph, where there is CUDA
    preset: str = "paper"  # whose network it is
    optimizer: str = "adamw"
    recompute: bool = False  # fields again for gradients, as `Recipe.recompute` says
    # Fields of the configuration that are not the paper's.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """What a call works on: so many samples of size² points, or of other dimensions."""

    samples: int
    size: int
    device: torch.device
    dims: int = 2

    @property
    def shape(self) -> tuple[int, ...]:
        """Points per axis."""
        return (self.size,) * self.dims

    @property
    def points(self) -> int:
        """Of one sample."""
        return math.prod(self.shape)

    def noise(self, network: nn.Module) -> Tensor:
        """Values that `network` takes."""
        channels: int = network.config.in_channels  # type: ignore[union-attr, assignment]
        return torch.rand(self.samples, channels, *self.shape, device=self.device)


def training_step(way: Way, problem: Problem, batch: Batch) -> Work:
    """Forward, backward and optimiser of the network for `problem`, as `fit` runs them."""
    recipe = Recipe(precision=way.precision, optimizer=way.optimizer)
    network = _network(way, problem, batch).train()
    optimizer = make_optimizer(
        recipe.optimizer, network, recipe.learning_rate, recipe.weight_decay, batch.device
    )
    make = graphed_step if _is_captured(way, batch) else eager_step
    trained = MixedPrecision(network, FIELDS.get(way.precision), way.recompute)
    factor = LOSS_FACTORS.get(way.precision, 1.0)
    step = make(trained, optimizer, LOSSES[recipe.loss], factor)
    inputs, targets = batch.noise(network), batch.noise(network)
    return lambda: step(inputs, targets)


def prediction(way: Way, problem: Problem, batch: Batch) -> Work:
    """A forward pass of the network for `problem`; of one sample, to its end."""
    network = _network(way, problem, batch).eval()
    inputs = batch.noise(network)
    predict: Work = torch.inference_mode()(lambda: network(inputs))
    if _is_captured(way, batch):
        predict = graphed(predict)  # it reads its inputs from where they are now
    return _finished(predict, batch.device) if batch.samples == 1 else predict


def solution(problem: Problem, batch: Batch) -> Work:
    """What makes the data of `problem`: solutions for states, on the solver's own grid."""
    generator = Generator().manual_seed(0)
    few = problem.sample_inputs(problem.grid(batch.size), min(batch.samples, 8), generator)
    states = few[torch.arange(batch.samples) % len(few)].to(batch.device)
    return _finished(lambda: problem.solve(states), batch.device)


def _network(way: Way, problem: Problem, batch: Batch) -> nn.Module:
    fields = {"size": batch.shape, **way.fields}
    network = build_model(way.model, problem, way.preset, **fields)
    if way.activation is not None:
        _replace_activations(network, way.activation)
    if way.channels_first:
        lay_channels_last(network, last=False)
    return network.to(batch.device)


def _replace_activations(network: nn.Module, compute: Compute) -> None:
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Activation):
                setattr(module, name, Replaced(child, compute))


def _is_captured(way: Way, batch: Batch) -> bool:
    return way.captured and batch.device.type == "cuda"


def _finished(work: Work, device: torch.device) -> Work:
    """`work` to its end: the next call does not begin while the device is still at this one."""

    def to_its_end() -> None:
        work()
        wait(device)

    return to_its_end
