"""Symmetries of solution operators: G(g u) = g G(u) for every g of a group.

A network that was not built with the symmetry keeps it only as well as it has learnt it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

Plane = Float[Tensor, "batch channel y x"]
Axes = tuple[int, ...]


@dataclass(frozen=True)
class Symmetry:
    """One element g of a group, and its inverse."""

    apply: Callable[[Plane], Plane]
    undo: Callable[[Plane], Plane]


def mirror(axes: Axes, u: Plane) -> Plane:
    """u mirrored along `axes`. Its own inverse."""
    return u.flip(axes)


def mirror_flow(axes: Axes, u: Plane) -> Plane:
    """A plane velocity u or (u, v) mirrored: what crosses the mirror turns. Its own inverse."""
    signs = [-1.0 if axis in axes else 1.0 for axis in (-1, -2)]
    return u.flip(axes) * torch.tensor(signs[: u.shape[1]]).to(u)[:, None, None]


def mirror_and_exchange(axes: Axes, u: Plane) -> Plane:
    """u mirrored along `axes`, then with x and y exchanged."""
    return u.flip(axes).mT


def exchange_and_mirror(axes: Axes, u: Plane) -> Plane:
    """The inverse of `mirror_and_exchange`."""
    return u.mT.flip(axes)


MIRRORS: tuple[Axes, ...] = ((), (-1,), (-2,), (-1, -2))
_MIRRORED = [Symmetry(partial(mirror, axes), partial(mirror, axes)) for axes in MIRRORS]
_EXCHANGED = [
    Symmetry(partial(mirror_and_exchange, axes), partial(exchange_and_mirror, axes))
    for axes in MIRRORS
]

# The identity comes first.
SYMMETRIES: dict[str, list[Symmetry]] = {
    "none": _MIRRORED[:1],
    "exchange": [_MIRRORED[0], _EXCHANGED[0]],
    "square": [*_MIRRORED, *_EXCHANGED],
    "reflections": [
        Symmetry(partial(mirror_flow, axes), partial(mirror_flow, axes)) for axes in MIRRORS
    ],
}
