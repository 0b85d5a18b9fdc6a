"""Scalars that an operator depends on beside its input field: a lead time, parameters of a PDE.

A network names them in its configuration, `conditioning=("time",)`, and is called
`network(u, conditions)`, with one row of scalars per sample.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

HIDDEN = 64  # neurons per layer between the scalars and the scales


class Modulation(NamedTuple):
    """What the scalars do to a field: v ↦ (1 + scale) v + shift, for each sample and channel."""

    scale: Float[Tensor, "batch channel"]
    shift: Float[Tensor, "batch channel"]


Modulations = Iterator[Modulation]  # one for each norm of a network, in the order of its blocks


def modulate(
    v: Float[Tensor, "batch channel *space"], modulation: Modulation | None
) -> Float[Tensor, "batch channel *space"]:
    """(1 + scale) v + shift, in the type of v; v itself where there is no modulation."""
    if modulation is None:
        return v
    per_point = (*modulation.scale.shape, *[1] * (v.ndim - 2))
    scale, shift = (part.reshape(per_point).to(v.dtype) for part in modulation)
    return torch.addcmul(shift, v, 1 + scale)


def draw(modulations: Modulations | None) -> Modulation | None:
    """The next one; None: the network has none."""
    return None if modulations is None else next(modulations)


class Conditioner(nn.Module):
    """Scalars c to scales and shifts of all norms of a network (FiLM: Perez et al., 2018).

        (scale, shift) = W s(W₂ s(W₁ c + b₁) + b₂),   s = SiLU

    One product makes those of all norms, whose channels are `widths`. W is zero at the start: the
    network begins as one without conditions.
    """

    def __init__(self, scalars: int, widths: Iterable[int]) -> None:
        super().__init__()
        self.widths = [width for width in widths for _ in Modulation._fields]
        self.embedding = nn.Sequential(
            nn.Linear(scalars, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU()
        )
        self.scales_and_shifts = nn.Linear(HIDDEN, sum(self.widths), bias=False)
        nn.init.zeros_(self.scales_and_shifts.weight)

    def forward(self, conditions: Float[Tensor, "batch scalar"]) -> list[Modulation]:
        """One `Modulation` per norm."""
        weight = self.scales_and_shifts.weight
        # Scalars have more digits than half precision: times that are close stay apart.
        with torch.autocast(conditions.device.type, enabled=False):
            parts = self.scales_and_shifts(self.embedding(conditions.to(weight.dtype)))
        split = parts.split(self.widths, dim=1)
        return [Modulation(*pair) for pair in zip(split[::2], split[1::2], strict=True)]


def conditioning_of(network: nn.Module) -> tuple[str, ...]:
    """The names of the scalars that a network depends on; none for a network without a say."""
    names: Sequence[str] = getattr(getattr(network, "config", None), "conditioning", ())
    return tuple(names)


def is_conditioned(network: nn.Module) -> bool:
    """Whether a network is called `network(u, conditions)`."""
    return bool(conditioning_of(network))


def check_names(names: Any) -> tuple[str, ...]:
    """Names of scalars as a tuple; refused where they are no names, or one comes twice."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if not (isinstance(name, str) and name.strip()):
            raise ValueError(f"conditioning has the name {name!r}; give words such as 'time'.")
    if len(set(names)) < len(names):
        raise ValueError(f"conditioning {names} has a name twice; give each name once.")
    return names


def as_rows(
    conditions: Tensor | float | None, names: tuple[str, ...], u: Float[Tensor, "batch ..."]
) -> Float[Tensor, "batch scalar"] | None:
    """`conditions` as one row per sample of u; None where the network has no scalars.

    They are (batch, scalar); or (batch,) for a single scalar; or one row, or one number, for all
    samples.
    """
    n, batch = len(names), u.shape[0]
    if not n:
        if conditions is not None:
            raise ValueError(
                "conditions are given to a network that has none; leave them out, or build it "
                "with conditioning=('time',)."
            )
        return None
    if conditions is None:
        raise ValueError(
            f"the network depends on {', '.join(names)}; call network(u, conditions) with "
            f"conditions of shape (batch, {n})."
        )
    if not isinstance(conditions, Tensor):
        # Made on the device: a copy to it could not be captured in a graph.
        rows = u.new_full((1, 1), conditions)
    elif conditions.ndim < 2:
        rows = conditions.reshape(-1, n if conditions.numel() == n else 1)
    else:
        rows = conditions
    if rows.ndim != 2 or rows.shape[1] != n or rows.shape[0] not in (1, batch):
        shape = tuple(conditions.shape) if isinstance(conditions, Tensor) else ()
        raise ValueError(
            f"conditions of shape {shape} do not fit {batch} samples and the scalars "
            f"{', '.join(names)}; give ({batch}, {n}), or (1, {n}) for all samples."
        )
    if rows.is_complex():
        raise ValueError(f"conditions have dtype {rows.dtype}; give real numbers.")
    real = rows if rows.is_floating_point() else rows.to(u.dtype)
    return real.to(u.device).expand(batch, n)


def with_constant_channels(
    u: Float[Tensor, "batch channel *space"], rows: Float[Tensor, "batch scalar"] | None
) -> Float[Tensor, "batch more_channels *space"]:
    """u and a constant field for each scalar behind it."""
    if rows is None:
        return u
    constants = rows.to(u.dtype).view(*rows.shape, *[1] * (u.ndim - 2))
    return torch.cat([u, constants.expand(-1, -1, *u.shape[2:])], dim=1)
