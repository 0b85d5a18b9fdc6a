"""The learning rate as a function of time, so that a schedule has no state to save."""

import math
from collections.abc import Callable

from torchcno.selection import select
from torchcno.training.recipe import Recipe

STEP_EPOCHS = 10  # between two reductions of the schedule "step"
ONE_CYCLE_RISE = 0.3  # the part of the run in which the rate grows
ONE_CYCLE_DIV = 1e4  # the peak over the first rate, and the first over the last


def learning_rate(recipe: Recipe, time: float) -> float:
    """η at `time`, in epochs since the start: 0 ≤ time < recipe.epochs."""
    return select(SCHEDULES, recipe.schedule, "schedule")(recipe, time)


def step(recipe: Recipe, time: float) -> float:
    """η γ^⌊t/10⌋."""
    return recipe.learning_rate * recipe.gamma ** (int(time) // STEP_EPOCHS)


def cosine(recipe: Recipe, time: float) -> float:
    """η t/w up to the end w of the warm-up, then η (1 + cos π(t − w)/(T − w)) / 2."""
    warmup = recipe.warmup * recipe.epochs
    if time < warmup:
        return recipe.learning_rate * time / warmup
    return _between(recipe.learning_rate, 0.0, (time - warmup) / (recipe.epochs - warmup))


def one_cycle(recipe: Recipe, time: float) -> float:
    """From η/10⁴ up to η in the first 30 % of the run, then down to η/10⁸, each a half cosine.

    Smith and Topin (2019), with the constants of section C.2.
    """
    peak, part = recipe.learning_rate, time / recipe.epochs
    first = peak / ONE_CYCLE_DIV
    if part < ONE_CYCLE_RISE:
        return _between(first, peak, part / ONE_CYCLE_RISE)
    return _between(peak, first / ONE_CYCLE_DIV, (part - ONE_CYCLE_RISE) / (1 - ONE_CYCLE_RISE))


def _between(start: float, end: float, part: float) -> float:
    """From `start` at 0 to `end` at 1 along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


SCHEDULES: dict[str, Callable[[Recipe, float], float]] = {
    "step": step,
    "cosine": cosine,
    "one-cycle": one_cycle,
}
