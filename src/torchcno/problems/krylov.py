"""Conjugate gradients for a batch of positive definite systems."""

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

FieldBatch = Float[Tensor, "batch *channel n n"]
Map = Callable[[Tensor], Tensor]


def conjugate_gradients(
    operator: Map, b: FieldBatch, preconditioner: Map, tolerance: float, most: int
) -> FieldBatch:
    """x with |b − Ax| ≤ tolerance |b| for every sample of a batch, within `most` iterations."""
    x, iterates = torch.zeros_like(b), gradient_iterates(operator, b, preconditioner, tolerance)
    for _ in range(most):
        found = next(iterates, None)
        if found is None:
            return x
        x = found
    raise RuntimeError(
        f"conjugate gradients left a residual above {tolerance:g} after {most} iterations; "
        "use a larger tolerance."
    )


def gradient_iterates(
    operator: Map,
    b: FieldBatch,
    preconditioner: Map,
    tolerance: float,
    start: FieldBatch | None = None,
) -> Iterator[Tensor]:
    """x after each iteration, from `start` or from zero, until |b − Ax| ≤ tolerance |b|.

    A sample's iterates do not depend on the batch: one that has converged moves no more.
    """

    def dot(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum((-2, -1), keepdim=True)

    x, residual = torch.zeros_like(b), b
    if start is not None:
        x, residual = start, b - operator(start)
    target = tolerance**2 * dot(b, b)
    z = preconditioner(residual)
    direction, rho = z, dot(residual, z)
    while True:
        active = dot(residual, residual) > target
        if not active.any():
            return
        image = operator(direction)
        step = torch.where(active, rho / dot(direction, image), 0.0)
        x = x + step * direction
        residual = residual - step * image
        z = preconditioner(residual)
        rho, rho_before = dot(residual, z), rho
        # Where the residual is zero the quotient is 0/0, and zero times that is no zero.
        direction = z + torch.where(active, rho / rho_before, 0.0) * direction
        yield x


def take(iterates: Iterator[Tensor], count: int, start: Tensor) -> Tensor:
    """The iterate number `count`, or the last one where they end before; number 0 is `start`."""
    x = start
    for found in islice(iterates, count):
        x = found
    return x
