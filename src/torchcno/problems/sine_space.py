"""Operators that are diagonal in the sine modes of an inclusive grid."""

from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.constants import constants
from torchcno.grids import unit_positions
from torchcno.spectral import modes, transform


@lru_cache(maxsize=32)
@constants()
def sine_pair(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Modes sin(πkξ), k = 1 … n − 2, on n inclusive points, and the transform onto them."""
    forward = transform(n, n, "inclusive", "odd")
    backward = modes(unit_positions(n, "inclusive"), n, "inclusive", "odd")
    return forward.to(device), backward.to(device)


def multiply_modes(
    u: Float[Tensor, "*batch n n"], multiplier: Callable[[Tensor], Tensor]
) -> Float[Tensor, "*batch n n"]:
    """Σ_ij m(i² + j²) û_ij sin(πix) sin(πjy) from the samples of Σ_ij û_ij sin(πix) sin(πjy).

    On the unit square. The values on the edge play no part: every mode vanishes there.
    """
    forward, backward = sine_pair(u.shape[-1], u.device)
    k = torch.arange(1, len(forward) + 1, dtype=torch.float64, device=u.device)
    u_hat = forward @ u @ forward.T
    return backward @ (multiplier(k[:, None] ** 2 + k**2) * u_hat) @ backward.T
