"""What the networks share at their entrance: checks of sizes and shapes, and coordinates."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.operators.conditioning import as_rows, check_names, with_constant_channels
from torchcno.selection import check_options, option

CONDITIONING = "names of scalars that the network depends on, such as time"


def axes(size: Any) -> tuple[int, ...]:
    """`size` as a tuple, from whatever sequence a file held; a single number is refused."""
    if not isinstance(size, Iterable):
        raise ValueError(
            f"size {size} is a single number; give one per axis, as in ({size}, {size})."
        )
    return tuple(size)


@dataclass(frozen=True)
class FieldsConfig:
    """What the configuration of every network begins with, whatever the number of axes."""

    DIMENSIONS: ClassVar[tuple[int, ...]] = (1, 2, 3)

    in_channels: int = option(1, "channels of the input", least=1)
    out_channels: int = option(1, "channels of the output", least=1)
    size: tuple[int, ...] = option((64, 64), "points per axis of the training grid: y, x")
    _: KW_ONLY
    conditioning: tuple[str, ...] = option((), CONDITIONING)

    def __post_init__(self) -> None:
        size = axes(self.size)  # from what a file can hold
        if len(size) not in self.DIMENSIONS or min(size) < 1:
            ways = (f"({', '.join('zyx'[-d:])})" for d in self.DIMENSIONS)
            raise ValueError(
                f"size {size} is for no grid of this network; give {' or '.join(ways)} of at least "
                "one point each."
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "conditioning", check_names(self.conditioning))
        check_options(self)

    @property
    def fields_and_scalars(self) -> int:
        """Channels of the input, and one for each scalar: what `join_conditions` makes."""
        return self.in_channels + len(self.conditioning)


@dataclass(frozen=True)
class PlaneConfig(FieldsConfig):
    """The same, of a network on planes alone."""

    DIMENSIONS: ClassVar[tuple[int, ...]] = (2,)


def check_fields(u: Tensor, config: Any, least: int = 1) -> None:
    """Refuse what is not a real (batch, in_channels, *space) with `least` points per axis."""
    space, channels = ", ".join("zyx"[-len(config.size) :]), config.in_channels
    if u.ndim != 2 + len(config.size):
        raise ValueError(
            f"input of shape {tuple(u.shape)} has {u.ndim} axes; give (batch, channel, {space})."
        )
    if u.shape[1] != channels:
        raise ValueError(
            f"input of shape {tuple(u.shape)} has {u.shape[1]} channels, but the model takes "
            f"{channels}; build it with in_channels={u.shape[1]} or give {channels}."
        )
    if min(u.shape[2:]) < least:
        raise ValueError(
            f"input of {' × '.join(map(str, u.shape[2:]))} points is too small; "
            f"give at least {least} points per axis."
        )
    if not u.is_floating_point():
        raise ValueError(f"input of dtype {u.dtype}; give real floating-point fields: u.float().")


def check_size(u: Tensor, size: tuple[int, ...]) -> None:
    """Refuse fields on another grid than the one a network's weights belong to."""
    if tuple(u.shape[2:]) != tuple(size):
        raise ValueError(
            f"input of size {tuple(u.shape[2:])}, but the model accepts only {tuple(size)}; "
            f"resample the field, or build the model with size={tuple(u.shape[2:])}."
        )


def join_conditions(
    u: Float[Tensor, "batch in_channels *space"],
    conditions: Tensor | float | None,
    config: FieldsConfig,
) -> Float[Tensor, "batch fields_and_scalars *space"]:
    """u with the scalars as constant channels, for networks without a better place for them."""
    return with_constant_channels(u, as_rows(conditions, config.conditioning, u))


def coordinates(u: Float[Tensor, "batch channel *space"]) -> Float[Tensor, "axis ..."]:
    """The positions (x, y, …) ∈ [0, 1]^d of the samples of `u`, both ends of an axis included.

    So on every grid: on a periodic one, whose samples lie at j/n and not at j/(n − 1), a place has
    slightly different coordinates at different resolutions.
    """
    ticks = (torch.linspace(0, 1, n, dtype=u.dtype, device=u.device) for n in u.shape[2:])
    return torch.stack(torch.meshgrid(*ticks, indexing="ij")[::-1])
