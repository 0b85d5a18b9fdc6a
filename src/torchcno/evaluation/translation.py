"""Translations of band-limited periodic fields by any fraction of a grid step."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.constants import constants
from torchcno.grids import unit_positions
from torchcno.metrics import relative_l2
from torchcno.spectral import modes, transform


@lru_cache(maxsize=1024)
@constants()
def translation_matrix(n: int, steps: float | int) -> Float[Tensor, "n n"]:
    """τ along one periodic axis of n points, in float64:

        (τ f)(ξ_j) = (P f)(ξ_j − steps / n)

    with P the projection on the modes that the grid resolves strictly: the Nyquist mode of an even
    n has no translate on its own grid. τ(0) = P, and τ(s) τ(t) = τ(s + t).
    """
    xi = unit_positions(n, "periodic")
    moved = modes(xi - steps / n, n, "periodic", "periodic")
    return moved @ transform(n, n, "periodic", "periodic")


def translated(
    u: Float[Tensor, "batch channel *space"], steps: Sequence[float | int]
) -> Float[Tensor, "batch channel *space"]:
    """The band-limited part of u moved by `steps` of its grid, one number an axis of space."""
    for axis, s in enumerate(steps, start=u.ndim - len(steps)):
        matrix = translation_matrix(u.shape[axis], s).to(u)
        u = torch.movedim(torch.movedim(u, axis, -1) @ matrix.T, -1, axis)
    return u


def translation_error(
    at_origin: Float[Tensor, "batch channel *space"],
    moved: Float[Tensor, "batch channel *space"],
    steps: Sequence[float | int],
) -> Float[Tensor, " batch"]:
    """‖P G(τu) − τ G(u)‖ / ‖P G(u)‖ from G(u), `at_origin`, and G(τu), `moved`.

    `steps` are those of τ on the grid of the outputs.
    """
    nowhere = [0.0] * len(steps)
    return relative_l2(translated(moved, nowhere), translated(at_origin, steps))
