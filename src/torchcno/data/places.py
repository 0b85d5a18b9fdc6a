"""Whether outputs depend on the place, which a periodic network cannot tell."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.statistics import merge_moments
from torchcno.data.stored import StoredFields

CHANCE = 10.0  # variation of a mean over places, beyond that of chance, that is no chance
BLOCK = 8  # samples that are read at a time


class PlaceDependence:
    """How far the mean over samples varies in space, over what chance leaves of it.

        mean_x (m(x) − m̄)² / (mean_x s(x)² / n),   m, s: mean and deviation of n samples at x

    About 1 where no place differs from another, and of the order of n where one does. Samples come
    a block at a time: memory holds two fields, whatever there is on a disk.
    """

    def __init__(self) -> None:
        zero = torch.zeros(())
        self.moments = (0.0, zero, zero)  # count; mean and squares per channel and point

    def add(self, u: Float[Tensor, "sample channel *space"]) -> None:
        """Take in some samples."""
        u = u.double().flatten(2)
        mean = u.mean(0)
        self.moments = merge_moments(self.moments, (len(u), mean, (u - mean).square().sum(0)))

    def result(self) -> float:
        """Of the channel where it is largest."""
        n, mean, squares = self.moments
        varies = (mean - mean.mean(1, keepdim=True)).square().mean(1)
        chance = squares.mean(1) / (n - 1) / n
        return float((varies / chance).nan_to_num(nan=0.0).max())


def outputs_know_places(fields: Fields | StoredFields) -> bool:
    """Whether outputs differ from place to place where inputs do not.

    An operator that commutes with translations, of inputs that are alike everywhere, has outputs
    that are alike everywhere. So here a force or a coefficient stays in its place.
    """
    if len(fields) < 2:
        return False
    of_inputs, of_outputs = PlaceDependence(), PlaceDependence()
    for block in fields.blocks(BLOCK):
        of_inputs.add(block.inputs)
        of_outputs.add(block.outputs)
    return of_outputs.result() > CHANCE * max(1.0, of_inputs.result())
