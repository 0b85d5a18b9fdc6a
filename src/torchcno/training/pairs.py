"""What a network learns from, and the network as it is judged there."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcno.metrics import relative_l1

Mask = Callable[[Tensor], Tensor | None]  # from inputs, where outputs count; None: everywhere


@dataclass(frozen=True)
class Pairs:
    """Inputs and targets as the network sees them: normalised, `(sample, channel, *space)`."""

    inputs: Tensor
    targets: Tensor

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

    def to(self, device: torch.device) -> "Pairs":
        """The same pairs on `device`."""
        return Pairs(self.inputs.to(device), self.targets.to(device))

    def masked(self, mask: Mask | None) -> "Pairs":
        """The same pairs with targets of 1 where outputs do not count."""
        return Pairs(self.inputs, fill(self.targets, self.inputs, mask))


class Network(nn.Module):
    """A model as training sees it: with fields of type `dtype`, and 1 where outputs do not count.

    Weights, statistics and sums stay in float32. None: fields do, too.
    """

    def __init__(
        self, model: nn.Module, mask: Mask | None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.model, self.mask, self.dtype = model, mask, dtype

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs in float32."""
        with torch.autocast(inputs.device.type, self.dtype, enabled=self.dtype is not None):
            outputs = self.model(inputs)
        return fill(outputs.float(), inputs, self.mask)


def fill(outputs: Tensor, inputs: Tensor, mask: Mask | None) -> Tensor:
    """`outputs` with 1 wherever the mask of `inputs` says that they do not count."""
    counts = mask(inputs) if mask is not None else None
    return outputs if counts is None else torch.where(counts, outputs, 1.0)


def validation_error(network: nn.Module, pairs: Pairs, batch_size: int) -> float:
    """The mean over samples of the relative L1 error on normalised fields, in evaluation mode."""
    network.eval()
    batches = zip(pairs.inputs.split(batch_size), pairs.targets.split(batch_size), strict=True)
    with torch.no_grad():
        errors = torch.cat([relative_l1(network(u), v) for u, v in batches])
    return float(errors.double().mean())
