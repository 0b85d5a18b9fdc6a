"""A network as a map over a time: what training unrolls, and what a rollout repeats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

TIME = "time"  # the condition by which a network is told the lead time


@dataclass(frozen=True)
class Propagator:
    """How a network N stands for the map G(u, τ) over the lead time τ, on scaled states:

        G(u, τ) = u + τ' N(u, c)   residual: N learns the change, and G(u, 0) = u
        G(u, τ) = N(u, c)          otherwise

    τ' = τ / longest. The conditions c are those that the network takes by name: "time" is τ', and
    parameters of a trajectory are scaled to [0, 1] by the training set's.
    """

    lead_times: str  # that it was trained with, a name of `LEAD_TIMES`
    shortest: float  # of the lead times in training
    longest: float
    residual: bool = True
    conditions: tuple[str, ...] = ()  # that the network is told, in this order; none: u alone
    parameters: tuple[str, ...] = ()  # of a trajectory, by name
    low: tuple[float, ...] = ()  # of the parameters in training
    high: tuple[float, ...] = ()

    @property
    def knows_time(self) -> bool:
        """Whether the network is told the lead time, so that one network has many."""
        return TIME in self.conditions

    def conditions_for(
        self, part: Float[Tensor, " batch"], parameters: Float[Tensor, "batch number"] | None
    ) -> Float[Tensor, "batch condition"]:
        """What the network is told beside the state, for the lead times τ' = `part`."""
        columns = {TIME: part}
        if parameters is not None:
            if parameters.shape[1] != len(self.parameters):
                raise ValueError(
                    f"{parameters.shape[1]} parameters are given, and the training had "
                    f"{len(self.parameters)}: {', '.join(self.parameters) or 'none'}; give these."
                )
            for i, (name, a, b) in enumerate(
                zip(self.parameters, self.low, self.high, strict=True)
            ):
                columns[name] = ((parameters[:, i] - a) / ((b - a) or 1.0)).to(part)
        missing = [name for name in self.conditions if name not in columns]
        if missing:
            raise ValueError(
                f"the network is told {', '.join(missing)}, and nothing says what it is; give "
                "`parameters`, one row per sample."
            )
        chosen = [columns[name] for name in self.conditions]
        return torch.stack(chosen, dim=1) if chosen else part[:, None][:, :0]

    def advance(
        self,
        network: Callable[..., Tensor],
        u: Float[Tensor, "batch channel *space"],
        part: Float[Tensor, " batch"],
        conditions: Float[Tensor, "batch condition"],
    ) -> Float[Tensor, "batch channel *space"]:
        """G(u, τ) of scaled states, for the lead times τ' = `part`."""
        told = (conditions,) if self.conditions else ()
        v = network(u, *told)
        return u + part.view(-1, *(1,) * (u.ndim - 1)) * v if self.residual else v


class Window(NamedTuple):
    """A batch of stretches of trajectories, as networks see them: a start, and steps to learn."""

    start: Float[Tensor, "batch channel *space"]
    parts: Float[Tensor, "batch step"]  # the lead times τ' of the steps
    conditions: Float[Tensor, "batch step condition"]
    targets: Float[Tensor, "batch_and_step channel *space"]  # of the steps
    weights: Float[Tensor, " batch_and_step"] | None  # of their errors; None: all count the same


class Unrolled(nn.Module):
    """The steps of a window, one after the other, each compared with its target.

    With gradients "all", those of a step's error go back through all steps before it. With "last"
    they end with the step itself: its input is taken as it is. The first step then has the loss of
    one-step training, and each later one that of the push-forward trick: the network learns to go
    on from what it made itself (Brandstetter, Worrall and Welling, 2022, section 3.1).
    """

    def __init__(
        self,
        network: nn.Module,
        propagator: Propagator,
        gradients: str,
        noise: Sequence[float],
    ) -> None:
        """`noise` has a deviation per channel of the scaled start."""
        super().__init__()
        self.network, self.propagator, self.gradients = network, propagator, gradients
        self.noise = tuple(noise)

    def forward(self, window: Window) -> Float[Tensor, "batch_and_step channel *space"]:
        """G(u) of the steps, or v + w (G(u) − v) with v their targets.

        What a loss compares with v then has w times the error.
        """
        u, made = self._blur(window.start), []
        for k in range(window.parts.shape[1]):
            before = GRADIENTS[self.gradients](u)
            u = self.propagator.advance(
                self.network, before, window.parts[:, k], window.conditions[:, k]
            )
            made.append(u)
        v, found = window.targets, torch.stack(made, dim=1).flatten(0, 1)
        if window.weights is None:
            return found
        return v + window.weights.view(-1, *(1,) * (v.ndim - 1)) * (found - v)

    def _blur(self, u: Tensor) -> Tensor:
        if not any(self.noise):
            return u
        channels = u.split(1, dim=1)
        pairs = zip(channels, self.noise, strict=True)
        return torch.cat([c + size * torch.randn_like(c) for c, size in pairs], dim=1)


# The input of a step, as gradients see what made it.
GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda u: u,
    "last": torch.Tensor.detach,
}
