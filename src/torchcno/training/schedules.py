"""The learning rate as a function of time, so that a schedule has no state to save.

A schedule takes the time t in epochs since the start, 0 ≤ t < T, and of what a recipe says the
numbers that it uses: the highest rate η, the epochs T, γ and the warm-up w, a part of T.
"""

import math
from collections.abc import Callable
from typing import Any

STEP_EPOCHS = 10  # between two reductions of the schedule "step"
ONE_CYCLE_RISE = 0.3  # the part of the run in which the rate grows
ONE_CYCLE_DIV = 1e4  # the peak over the first rate, and the first over the last


def step(time: float, *, rate: float, gamma: float, **_: Any) -> float:
    """η γ^⌊t/10⌋."""
    return rate * gamma ** (int(time) // STEP_EPOCHS)


def cosine(time: float, *, rate: float, epochs: int, warmup: float, **_: Any) -> float:
    """η t/(wT) up to the end wT of the warm-up, then η (1 + cos π(t − wT)/(T − wT)) / 2."""
    end = warmup * epochs
    return rate * time / end if time < end else _between(rate, 0.0, (time - end) / (epochs - end))


def one_cycle(time: float, *, rate: float, epochs: int, **_: Any) -> float:
    """From η/10⁴ up to η in the first 30 % of the run, then down to η/10⁸, each a half cosine.

    Smith and Topin (2019), with the constants of section C.2.
    """
    part, first = time / epochs, rate / ONE_CYCLE_DIV
    if part < ONE_CYCLE_RISE:
        return _between(first, rate, part / ONE_CYCLE_RISE)
    return _between(rate, first / ONE_CYCLE_DIV, (part - ONE_CYCLE_RISE) / (1 - ONE_CYCLE_RISE))


def _between(start: float, end: float, part: float) -> float:
    """From `start` at 0 to `end` at 1 along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


SCHEDULES: dict[str, Callable[..., float]] = {
    "step": step,
    "cosine": cosine,
    "one-cycle": one_cycle,
}
