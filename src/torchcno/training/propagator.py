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
    targets: Float[Tensor, "batch_and_step channel *space"]  # of the steps that are learnt
    weights: Float[Tensor, " batch_and_step"] | None  # of their errors; None: all count the same


class Unrolled(nn.Module):
    """The steps of a window, one after the other, as training sees them.

    With gradients "all", every step is compared with its target and gradients go through all of
    them. With "last" (push-forward), the steps before the last make its input, without gradients:
    the network learns to go on from what it made itself.
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
        """G(u) of the steps that are learnt, or v + w (G(u) − v) with v their targets.

        What a loss compares with v then has w times the error.
        """
        u, steps = self._blur(window.start), window.parts.shape[1]
        learnt = GRADIENTS[self.gradients](steps)
        made = []
        for k in range(steps):
            with torch.set_grad_enabled(torch.is_grad_enabled() and k >= min(learnt)):
                u = self.propagator.advance(
                    self.network, u, window.parts[:, k], window.conditions[:, k]
                )
            if k in learnt:
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


# Of so many steps of a window, those that are compared with their targets.
GRADIENTS: dict[str, Callable[[int], range]] = {
    "all": lambda steps: range(steps),
    "last": lambda steps: range(steps - 1, steps),
}
