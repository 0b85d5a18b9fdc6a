"""Several networks of one kind as one: their mean predicts, and their spread tells doubt."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of K networks N_1, …, N_K that differ in what was random in their training:

    N(u) = (1/K) Σ_k N_k(u)
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        if not len(self.networks):
            raise ValueError("an ensemble has no networks; give one at least.")

    @property
    def config(self) -> Any:
        """That of every network."""
        return getattr(self.networks[0], "config", {})

    def members(
        self, u: Float[Tensor, "batch in_channel *space"], *conditions: Any, **named: Any
    ) -> Float[Tensor, "member batch out_channel *out_space"]:
        """What every network makes of u."""
        return torch.stack([network(u, *conditions, **named) for network in self.networks])

    def forward(
        self, u: Float[Tensor, "batch in_channel *space"], *conditions: Any, **named: Any
    ) -> Float[Tensor, "batch out_channel *out_space"]:
        """The mean."""
        return self.members(u, *conditions, **named).mean(0)


def members_of(network: nn.Module) -> list[nn.Module]:
    """The networks of an ensemble; of any other network: itself."""
    return list(network.networks) if isinstance(network, Ensemble) else [network]


def spread_of(
    predictions: Float[Tensor, "member batch channel *space"],
) -> Float[Tensor, "batch channel *space"]:
    """The standard deviation over members, with K − 1 in place of K; zero for one member."""
    return predictions.std(0, correction=min(1, len(predictions) - 1))
