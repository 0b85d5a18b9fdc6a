"""How far a predicted field is from the true one, relative to the true one, sample by sample.

Fractions, not percent. A truth that is zero everywhere has no relative error: the result is inf or
nan.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.grids import Grid

FieldBatch = Float[Tensor, "batch channel *space"]
# From physical inputs, where outputs count; None: everywhere.
Mask = Callable[[Tensor], Tensor | None]


def filled(fields: FieldBatch, counts: Tensor | None = None, *, value: float = 1.0) -> FieldBatch:
    """`fields` with `value` where they do not count: 1 as in the paper, or 0, to add nothing."""
    return fields if counts is None else torch.where(counts, fields, value)


def relative_l1(prediction: FieldBatch, truth: FieldBatch) -> Float[Tensor, " batch"]:
    """‖p − v‖₁ / ‖v‖₁, over channels and space: the error of the paper's Table 1."""
    return _norm(prediction - truth, 1) / _norm(truth, 1)


def relative_l2(prediction: FieldBatch, truth: FieldBatch) -> Float[Tensor, " batch"]:
    """‖p − v‖₂ / ‖v‖₂, over channels and space."""
    return _norm(prediction - truth, 2) / _norm(truth, 2)


def relative_h1(prediction: FieldBatch, truth: FieldBatch, grid: Grid) -> Float[Tensor, " batch"]:
    """‖p − v‖_H¹ / ‖v‖_H¹ with ‖v‖²_H¹ = ‖v‖₂² + Σ_a ‖∂_a v‖₂².

    The derivatives are differences of neighbours, (v_{j+1} − v_j) / h: those of the piecewise
    linear interpolant, which sees the highest modes of the grid in full. On a periodic axis the
    last point's neighbour is the first.
    """
    return (_h1_squared(prediction - truth, grid) / _h1_squared(truth, grid)).sqrt()


METRICS: dict[str, Callable[[Tensor, Tensor, Grid], Tensor]] = {
    "relative_l1": lambda prediction, truth, grid: relative_l1(prediction, truth),
    "relative_l2": lambda prediction, truth, grid: relative_l2(prediction, truth),
    "relative_h1": relative_h1,
}


def _norm(v: FieldBatch, p: int) -> Tensor:
    # Without a square root of its own, so that the gradient at v = 0 is 0 and not nan.
    return torch.linalg.vector_norm(v.flatten(1), p, dim=1)


def _h1_squared(v: FieldBatch, grid: Grid) -> Tensor:
    if tuple(v.shape[2:]) != grid.shape:
        raise ValueError(
            f"fields of shape {tuple(v.shape[2:])} do not lie on a grid of {grid.shape}."
        )
    total = v.square().flatten(1).mean(1)
    axes = zip(grid.spacing, grid.layouts, strict=True)
    for axis, (h, layout) in enumerate(axes, start=2):
        after = v.narrow(axis, 0, 1) if layout == "periodic" else None
        slope = torch.diff(v, dim=axis, append=after) / h
        total = total + slope.square().flatten(1).mean(1)
    return total
