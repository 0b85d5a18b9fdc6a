"""Weights averaged over the time of training, and batch-norm statistics that belong to them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcno.training.tables import lie_alike, make_table, places

# Of training data: more changes the statistics by less than an epoch does.
RECALIBRATION_BATCHES = 32


class WeightAverage:
    """The exponential average of a model's weights w_1, w_2, … over the steps of training.

        a_t = Σ_s d^{t−s} w_s / Σ_s d^{t−s},   1 ≤ s ≤ t,   d = 2^{−1/half-life}

    Normalised at every t, so that it does not remember the weights before the first step. `model`
    holds a_t; its batch-norm statistics need `recalibrate_batch_norm`.
    """

    def __init__(self, model: nn.Module, half_life: float) -> None:
        """Average weights with a half-life in steps, in a copy of the network: `model`."""
        self.model = model.requires_grad_(False)
        self.decay = 0.5 ** (1 / half_life)
        self._averages: list[Tensor] = list(self.model.parameters())
        self._table: Any = None  # of addresses, for the program that moves all averages
        self._places: list[list[int]] = []  # of the tensors that it is made for

    def share(self, step: int) -> float:
        """What the weights after `step` = 1, 2, … count for in the average from then on."""
        return (1 - self.decay) / (1 - self.decay**step)

    @torch.no_grad()
    def update(self, weights: list[Tensor], share: float | Tensor) -> None:
        """Take in weights with their `share`, in the order of `model.parameters()`."""
        if isinstance(share, float):
            torch._foreach_lerp_(self._averages, weights, share)
            return
        # A share that the device knows.
        if all(map(lie_alike, self._averages, weights)):
            self._move_together(weights, share)
            return
        changes = torch._foreach_sub(weights, self._averages)
        torch._foreach_mul_(changes, share.float())  # one kernel, where it has their type
        torch._foreach_add_(self._averages, changes)

    def _move_together(self, weights: list[Tensor], share: Tensor) -> None:
        """All averages in one kernel."""
        from torchcno.training import averaging_kernels

        sides = [[_as_real(t) for t in some] for some in (self._averages, weights)]
        where = [places(side) for side in sides]
        if where != self._places:  # new, or loaded from elsewhere
            self._table, self._places = make_table(*sides), where
        averaging_kernels.move_averages(self._table, share)


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def tracking_norms(model: nn.Module) -> list[_BatchNorm]:
    """The batch norms of `model` that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


def hold_statistics(model: nn.Module) -> None:
    """Let the batch norms of `model` take their running statistics, in training too."""
    for norm in tracking_norms(model):
        norm.eval()


def copy_statistics(source: nn.Module, target: nn.Module) -> None:
    """Give the batch norms of `target` the running statistics of `source`, its like."""
    for there, here in zip(tracking_norms(source), tracking_norms(target), strict=True):
        for theirs, ours in zip(there.buffers(), here.buffers(), strict=True):
            ours.copy_(theirs)


def recalibrate_batch_norm(
    model: nn.Module, inputs: Tensor, batch_size: int, *conditions: Tensor
) -> None:
    """Set the running statistics of `model` to the mean of those of batches of `inputs`.

    `conditions` are what the network is called with beside them.

    Batch-norm layers alone are in training mode meanwhile: dropout stays off, nothing is random.
    """
    norms = tracking_norms(model)
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.train()
    some = (
        t[: RECALIBRATION_BATCHES * batch_size].split(batch_size) for t in (inputs, *conditions)
    )
    whole = [batch for batch in zip(*some, strict=True) if len(batch[0]) == batch_size]
    with torch.no_grad():
        for i, batch in enumerate(whole, start=1):
            for norm in norms:
                # The running mean of i batches. PyTorch's own (momentum None) reads a counter back
                # from the device in every layer.
                norm.momentum = 1 / i
            model(*batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()
