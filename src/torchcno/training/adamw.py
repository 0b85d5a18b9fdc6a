"""AdamW in one kernel, of complex weights too: each is a pair of real numbers."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from torchcno.training.tables import TensorTable, lie_alike, make_table, places

BETAS, EPSILON = (0.9, 0.999), 1e-8


class FusedAdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019), as PyTorch computes it one operation at a time.

    PyTorch's own kernel refuses complex weights, and takes a kernel per operation for them. The
    spectral weights of an FNO are nearly all that it has. On CUDA a kernel of ours takes all.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.0,
        capturable: bool = False,
    ) -> None:
        # Real ones first: checkpoints number the weights in this order.
        weights = sorted(params, key=Tensor.is_complex)
        defaults = {"lr": lr, "weight_decay": weight_decay, "capturable": capturable}
        super().__init__(weights, defaults)
        self.loss_factor = 1.0  # gradients are those of the loss times this, a power of two

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step; a CUDA graph can hold it if `lr` is a tensor on the device."""
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            move_by_adamw(self, weights, group, self.loss_factor)


@dataclass(frozen=True)
class Prepared:
    """What a kernel for all weights is given."""

    places: list[list[int]]  # of all but the gradients
    gradients: list[Tensor]
    table: TensorTable


_prepared: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # by the first step


def move_by_adamw(
    optimizer: Optimizer, weights: list[Tensor], group: dict[str, Any], loss_factor: float
) -> None:
    """Move some weights of a group by AdamW, with their averages in the optimiser's state.

    Their gradients come times `loss_factor`.
    """
    by_type: dict[torch.dtype, list[tuple[Tensor, ...]]] = defaultdict(list)
    for weight in weights:
        state = optimizer.state[weight]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weight) for _ in range(2))
            state["step"] = torch.zeros((), device=weight.device)
        assert weight.grad is not None
        numbers: tuple[Tensor, ...] = weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]
        if weight.is_complex():
            numbers = tuple(map(torch.view_as_real, numbers))
        by_type[weight.dtype.to_real()].append((*numbers, state["step"]))
    for rows in by_type.values():
        alike, gradients, averages, squares, steps = map(list, zip(*rows, strict=True))
        torch._foreach_add_(steps, 1)
        if isinstance(group["lr"], Tensor) and all(starmap(_lie_alike, rows)):
            _move_together(gradients, [alike, averages, squares, steps], group, loss_factor)
            continue
        scale = None
        if loss_factor != 1:
            scale = torch.full((), loss_factor, device=steps[0].device)
        torch._fused_adamw_(
            alike,
            gradients,
            averages,
            squares,
            [],
            steps,
            lr=group["lr"],
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=group["weight_decay"],
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
        )


def _lie_alike(weight: Tensor, gradient: Tensor, *averages: Tensor) -> bool:
    return lie_alike(weight, *averages[:2])


def _move_together(
    gradients: list[Tensor],
    columns: list[list[Tensor]],
    group: dict[str, Any],
    loss_factor: float,
) -> None:
    """The same by a kernel of ours, which knows where weights, averages, squares and steps lie."""
    from torchcno.training import adamw_kernels

    weights, *others = columns
    where, first = [places(tensors) for tensors in columns], columns[-1][0]
    known: Prepared | None = _prepared.get(first)
    if known is None or known.places != where:  # new, or loaded from elsewhere
        # Gradients are copied to where the kernel looks: a graph may have its own elsewhere.
        copies = [torch.empty_like(weight) for weight in weights]
        known = Prepared(where, copies, make_table(weights, copies, *others))
        _prepared[first] = known
    torch._foreach_copy_(known.gradients, gradients)
    given = (group["lr"], group["weight_decay"], BETAS, EPSILON, loss_factor)
    adamw_kernels.move(known.table, *given)
