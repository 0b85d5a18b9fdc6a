"""What a network learns from, and the network as it is judged there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from torchcno.metrics import filled, relative_l1
from torchcno.operators import recomputing
from torchcno.training.physics import Equation, Informed
from torchcno.training.windows import Rollouts


class OfSamples:
    """What a step reads where a sample is one row of every tensor."""

    inputs: Tensor
    tensors: Any  # inputs, targets, and where they count

    @property
    def channels(self) -> int:
        """Of inputs or targets, of whichever there are more."""
        inputs, targets, *_ = self.tensors
        return max(inputs.shape[1], targets.shape[1])

    def gather(
        self, batch: Int[Tensor, " batch"], take: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, ...]:
        """What a step reads of the samples `batch`, taken from each tensor by `take`."""
        return tuple(take(tensor, batch) for tensor in self.tensors)

    def teach(self, network: nn.Module) -> nn.Module:
        """What a step trains: the network itself."""
        return network

    def examples(self, count: int) -> tuple[Tensor, ...]:
        """What the network is called with, in the first `count` samples."""
        return (self.inputs[:count],)


@dataclass(frozen=True)
class Pairs(OfSamples):
    """Inputs and targets as the network sees them: normalised, `(sample, channel, *space)`."""

    inputs: Tensor
    targets: Tensor
    counts: Tensor | None = None  # where targets count, in their shape; None: everywhere
    fill: float = field(
        default=1.0, kw_only=True
    )  # what errors take for outputs and targets elsewhere
    # What outputs leave of an equation, for a loss that has its share of that; None: not known.
    equation: Equation | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"{len(self.inputs)} inputs have {len(self.targets)} targets; "
                "give one target an input."
            )
        if not len(self.inputs):
            raise ValueError("there are no samples; give at least one pair of fields.")
        for name, fields in (("inputs", self.inputs), ("targets", self.targets)):
            bad = (~fields.isfinite()).flatten(1).any(1).nonzero().flatten()
            if len(bad):
                raise ValueError(
                    f"the {name} are not finite in {len(bad)} of {len(fields)} samples, first in "
                    f"sample {int(bad[0])}; generate the data again, or leave those samples out."
                )

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int | None) -> "Pairs":
        """The first `count` samples alone; None: all of them."""
        return self._changed(lambda tensor: tensor[:count])

    def draw(self, generator: Generator, steps: int, size: int) -> Int[Tensor, "step sample"]:
        """The samples of the batches of a new epoch."""
        order = torch.randperm(len(self), generator=generator)
        return order[: steps * size].view(steps, size)

    def load(self, step: int) -> None:
        """Have what a step reads in memory: all is, always."""

    def to(self, device: torch.device) -> "Pairs":
        """The same pairs on `device`."""
        return self._changed(lambda tensor: tensor.to(device))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Pairs":
        return Pairs(*map(change, self.tensors), fill=self.fill, equation=self.equation)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What there is, a row a sample: inputs, targets and where they count."""
        both = (self.inputs, self.targets)
        return both if self.counts is None else (*both, self.counts)

    def teach(self, network: nn.Module) -> nn.Module:
        """What a step trains: the network, and the equation behind it where there is one."""
        return network if self.equation is None else Informed(network, self.equation)

    def error_of(self, network: nn.Module, batch_size: int) -> Float[Tensor, ""]:
        """The validation error."""
        return validation_error(network, self, batch_size)


class MixedPrecision(nn.Module):
    """A model as training sees it: with fields of type `dtype`.

    Weights, statistics and sums stay in float32. None: fields do, too. With `recompute`, the parts
    of the model compute their fields again for gradients.
    """

    def __init__(
        self, model: nn.Module, dtype: torch.dtype | None = None, recompute: bool = False
    ) -> None:
        super().__init__()
        self.model, self.dtype, self.recompute = model, dtype, recompute

    def forward(self, inputs: Tensor, *conditions: Tensor) -> Tensor:
        """The outputs in float32."""
        half = torch.autocast(inputs.device.type, self.dtype, enabled=self.dtype is not None)
        with half, recomputing(self.recompute):
            outputs: Tensor = self.model(inputs, *conditions)
        return outputs.float()


def validation_error(network: nn.Module, pairs: Pairs, batch_size: int) -> Float[Tensor, ""]:
    """The mean over samples of the relative L1 error on normalised fields, in evaluation mode."""
    network.eval()
    errors = []
    with torch.no_grad():
        for batch in zip(*(t.split(batch_size) for t in pairs.tensors), strict=True):
            u, v, counts = (*batch, None)[:3]
            both = (filled(fields, counts, value=pairs.fill) for fields in (network(u), v))
            errors.append(relative_l1(*both))
    return torch.cat(errors).double().mean()


def refuse_zeros(pairs: Pairs | Rollouts, which: str) -> None:
    """Refuse targets that are zero everywhere: no error is relative to them."""
    targets = filled(pairs.targets, pairs.counts, value=pairs.fill)
    zero = (~targets.flatten(1).any(1)).nonzero().flatten()
    if len(zero):
        raise ValueError(
            f"the targets are zero everywhere in {len(zero)} of {len(pairs)} {which} samples, "
            f"first in sample {int(zero[0])}, and no error is relative to zero; leave those "
            "samples out, or scale the outputs otherwise: train_on(…, normalization=…) with an "
            "output_min below the least output."
        )
