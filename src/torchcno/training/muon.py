"""Muon: steps of the same length in every direction of a weight matrix.

PyTorch's own, from 2.9 on, takes matrices only and leaves kernels and biases to another optimiser.
"""

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from torchcno.operators import side_by_side
from torchcno.training.adamw import move_by_adamw

MOMENTUM = 0.95  # μ
# p(σ) = aσ + bσ³ + cσ⁵ of Jordan et al. (2024). Five times over it takes singular values from all
# of (0.01, 1) to about one, where a series that converges to one is slow to lift the small ones.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
LENGTH = 0.2  # root mean square of a step's entries at η = 1, as AdamW's (Liu et al., 2025)
_HAS_TRITON = importlib.util.find_spec("triton") is not None


class Muon(Optimizer):
    """Steps along the orthogonal matrix nearest to the averaged gradient, and AdamW for the rest.

        M ← μM + (1 − μ)G      W ← (1 − ηw)W − η · 0.2 √max(m, n) · O(μM + (1 − μ)G)

    with O(UΣVᵀ) ≈ UVᵀ, for real weights of two and more axes as matrices, a row an output channel.
    Biases, scales and complex weights follow AdamW. The factor makes the entries of a step as large
    as AdamW's, so that one rate η and one decay w serve both.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.0,
        capturable: bool = False,
    ) -> None:
        weights = list(params)
        groups = [
            {"params": [w for w in weights if _is_matrix(w) == matrices], "matrices": matrices}
            for matrices in (True, False)
        ]
        defaults = {"lr": lr, "weight_decay": weight_decay, "capturable": capturable}
        super().__init__([group for group in groups if group["params"]], defaults)
        self.loss_factor = 1.0  # gradients are those of the loss times this, a power of two
        self._places: tuple[int, ...] = ()  # of the tensors that `_frames` are made for

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step; a CUDA graph can hold it if `lr` is a tensor on the device."""
        side_by_side([partial(self._move, group) for group in self.param_groups])

    def _move(self, group: dict[str, Any]) -> None:
        weights = [w for w in group["params"] if w.grad is not None]
        if not group["matrices"]:
            move_by_adamw(self, weights, group, self.loss_factor)
        elif all(map(_is_fused, weights)) and isinstance(group["lr"], Tensor):
            self._move_together(weights, group)
        else:
            self._move_alike(weights, group)

    def _move_together(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """All matrices in a few kernels, with products of float16."""
        from torchcno.training import muon_kernels

        averages = [self._average(weight) for weight in weights]
        places = tuple(t.data_ptr() for t in (*weights, *averages))
        if places != self._places:  # new, or loaded from elsewhere
            # Gradients are copied to where the kernels look: a graph may have its own elsewhere.
            self._copies = [torch.empty_like(weight) for weight in weights]
            self._frames = muon_kernels.make_frames(weights, averages, self._copies)
            self._places = places
        torch._foreach_copy_(self._copies, _gradients(weights))
        for frame in self._frames:
            muon_kernels.average_and_look_ahead(frame, MOMENTUM, self.loss_factor)
            directions = _iterate(frame.x, muon_kernels.polynomial)
            muon_kernels.move(frame, directions, group["lr"], group["weight_decay"], LENGTH)

    def _move_alike(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Matrices of like shape in one product each, in the arithmetic that is set."""
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)  # in one product each
        for weight in weights:
            alike[weight.shape].append(weight)
        for same in alike.values():
            averages = [self._average(weight) for weight in same]
            gradients = _gradients(same)
            if self.loss_factor != 1:
                gradients = list(torch._foreach_div(gradients, self.loss_factor))
            torch._foreach_lerp_(averages, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, averages, MOMENTUM)
            directions = orthogonalized(torch.stack([a.flatten(1) for a in ahead]))
            moves = directions * (group["lr"] * LENGTH * max(directions.shape[1:]) ** 0.5)
            torch._foreach_mul_(same, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_sub_(same, [move.reshape(same[0].shape) for move in moves])

    def _average(self, weight: Tensor) -> Tensor:
        """The averaged gradient of a matrix."""
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["exp_avg"] = torch.zeros_like(weight)
        return state["exp_avg"]


def _is_fused(weight: Tensor) -> bool:
    """Whether there are kernels for this matrix: its rows lie one after the other, in float32."""
    rows = weight.stride(0) == weight.numel() // len(weight)
    return _HAS_TRITON and weight.is_cuda and weight.dtype is torch.float32 and rows


def _is_matrix(weight: Tensor) -> bool:
    return weight.ndim >= 2 and not weight.is_complex()


def _gradients(weights: list[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]


def orthogonalized(matrices: Float[Tensor, "k m n"]) -> Float[Tensor, "k m n"]:
    """U p(p(… p(Σ))) Vᵀ ≈ UVᵀ of matrices UΣVᵀ, by products alone.

    Divided by its Frobenius norm, a matrix has singular values of at most one; from then on
    X ← aX + b(XXᵀ)X + c(XXᵀ)²X applies p to them.
    """
    _, m, n = matrices.shape
    if m > n:
        return orthogonalized(matrices.mT).mT  # XXᵀ is the smaller square then
    norms = matrices.norm(dim=(1, 2), keepdim=True)
    return _iterate(matrices / norms.clamp(min=1e-30))  # zero stays zero


def _polynomial(square: Float[Tensor, "k m m"], a: float, b: float, c: float) -> Tensor:
    """aI + bS + cS²."""
    factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor


def _iterate(
    x: Float[Tensor, "k m n"], polynomial: Callable[..., Tensor] = _polynomial
) -> Float[Tensor, "k m n"]:
    """p applied five times to the singular values of x, which are at most one."""
    for _ in range(ITERATIONS):
        x = polynomial(x @ x.mT, *COEFFICIENTS) @ x
    return x
