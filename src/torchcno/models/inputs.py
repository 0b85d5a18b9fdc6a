"""What the networks share at their entrance: checks of sizes and shapes, and coordinates."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def plane(size: Any) -> tuple[int, int]:
    """`size` as (y, x), from whatever sequence a file held; refused where it is no plane's."""
    size = tuple(size)
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"size {size} is not that of a plane; give (y, x) of at least one point.")
    return size


def check_fields(u: Tensor, channels: int, least: int) -> None:
    """Refuse what is not (batch, `channels`, y, x) with at least `least` points an axis."""
    if u.ndim != 4:
        raise ValueError(
            f"input of shape {tuple(u.shape)} has {u.ndim} axes; give (batch, channel, y, x)."
        )
    if u.shape[1] != channels:
        raise ValueError(
            f"input of shape {tuple(u.shape)} has {u.shape[1]} channels, but the model takes "
            f"{channels}; build it with in_channels={u.shape[1]} or give {channels}."
        )
    if min(u.shape[2:]) < least:
        raise ValueError(
            f"input of {u.shape[2]} × {u.shape[3]} points is too small; "
            f"give at least {least} points an axis."
        )


def check_size(u: Tensor, size: tuple[int, ...]) -> None:
    """Refuse fields on another grid than the one a network's weights belong to."""
    if tuple(u.shape[2:]) != tuple(size):
        raise ValueError(
            f"input of size {tuple(u.shape[2:])}, but the model accepts only {tuple(size)}; "
            f"resample the field, or build the model with size={tuple(u.shape[2:])}."
        )


def coordinates(u: Float[Tensor, "batch channel y x"]) -> Float[Tensor, "2 y x"]:
    """The positions (x, y) ∈ [0, 1]² of the samples of `u`, both ends of an axis included."""
    y, x = (torch.linspace(0, 1, n, dtype=u.dtype, device=u.device) for n in u.shape[2:])
    return torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x))])
