"""Steps in time, apart from the equations that they advance."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

State = TypeVar("State")
Tendency = Callable[[Tensor], Tensor]


def take_snapshots(
    state: State,
    times: Sequence[float],
    advance: Callable[[State, float], State],
    show: Callable[[State], Tensor],
) -> Tensor:
    """What `show` makes of a state at each of the increasing `times`, as the second axis.

    `state` is that at time 0, and `advance` carries one over a duration.
    """
    shown, now = [], 0.0
    for time in times:
        if time > now:
            state = advance(state, time - now)
        shown.append(show(state))
        now = time
    return torch.stack(shown, dim=1)


def advance_crank_nicolson_heun(
    u_hat: Tensor,
    tendency: Tendency,
    nu: float,
    k_squared: Tensor,
    duration: float,
    longest: float,
) -> Tensor:
    """û of ∂_t û = N(û) − ν |k|² û after `duration`, in equal steps Δt ≤ `longest`: second order.

    Diffusion by the rule of Crank and Nicolson, N by that of Heun.
    """
    steps = math.ceil(duration / longest)
    dt = duration / steps
    half = dt / 2 * nu * k_squared
    keep, gain = (1 - half) / (1 + half), dt / (1 + half)
    for _ in range(steps):
        before = tendency(u_hat)
        kept = keep * u_hat
        after = tendency(torch.addcmul(kept, gain, before))
        u_hat = torch.addcmul(kept, gain, before + after, value=0.5)
    return refuse_blow_up(u_hat, dt)


def advance_integrating_factor(
    u_hat: Tensor,
    tendency: Tendency,
    rate: Tensor,
    advection: float,
    duration: float,
    longest: float,
) -> Tensor:
    """û of ∂_t û = N(û) − λ û after `duration`, in equal steps Δt ≤ `longest`: fourth order.

    λ exactly, by the factor e^{−λt}; N by the classical rule of Runge and Kutta. `advection` is the
    largest frequency of N, κ_max |u|: steps are stable while Δt times it is below 2√2. Longer ones
    would not even blow up where diffusion is strong, and are refused.
    """
    steps = math.ceil(duration / longest * (1 - 1e-9))
    dt = duration / steps
    if not dt * advection <= 2 * math.sqrt(2):
        stable = 2.8 / advection
        raise ValueError(f"time steps of {dt:g} are unstable; use dt={stable:.1g} or less.")
    half = torch.exp(-dt / 2 * rate)
    for _ in range(steps):
        halfway = half * u_hat
        first = tendency(u_hat)
        second = tendency(halfway + dt / 2 * half * first)
        third = tendency(halfway + dt / 2 * second)
        fourth = tendency(half * (halfway + dt * third))
        u_hat = half * (halfway + dt / 6 * (half * first + 2 * (second + third))) + dt / 6 * fourth
    return refuse_blow_up(u_hat, dt)


def refuse_blow_up(u_hat: Tensor, dt: float) -> Tensor:
    """`u_hat`, if steps of `dt` left it finite."""
    if not torch.isfinite(u_hat).all():
        raise ValueError(f"time steps of {dt:g} are unstable; use dt={dt / 2:g} or less.")
    return u_hat
