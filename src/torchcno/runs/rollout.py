"""A trained operator that goes on in time: one step of it, and rollouts of many."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.arrays import as_real_tensor
from torchcno.data.trajectories import Trajectories, as_times
from torchcno.operators.conditioning import as_rows
from torchcno.runs.operator import Conditions, TrainedOperator
from torchcno.runs.plain import to_plain
from torchcno.runs.ranges import OutOfRange
from torchcno.selection import select
from torchcno.training.augmentation import average_over_group
from torchcno.training.propagator import TIME, Propagator

States = Float[Tensor | np.ndarray, "sample channel *space"]  # physical, at one time
SAME_TIME = 1e-4  # lead times that differ by less than this part of the longest are the same


@dataclass(frozen=True)
class Jump:
    """The way to a time of a rollout: from a state that is known, over one or more lead times."""

    base: int  # the number of the time that it starts from
    leads: tuple[float, ...]


def plan_rollout(propagator: Propagator, times: Sequence[float], way: str = "auto") -> list[Jump]:
    """How each time but the first is reached, by the entry `way` of `WAYS`."""
    bases = select(WAYS, way, "way")(propagator, list(times))
    return [
        Jump(base, _divide(propagator, times[j + 1] - times[base], way))
        for j, base in enumerate(bases)
    ]


def _divide(propagator: Propagator, gap: float, way: str) -> tuple[float, ...]:
    """A time that passes as lead times that the network takes."""
    longest, near = propagator.longest, SAME_TIME * propagator.longest
    if propagator.knows_time:
        count = 1 if way == "direct" else max(1, math.ceil((gap - near) / longest))
        return (gap / count,) * count
    count = round(gap / longest)
    if count < 1 or abs(gap - count * longest) > near:
        raise ValueError(
            f"the network makes steps of {longest:g}, and {gap:g} is no multiple of it; give times "
            "that are, or train with lead_times 'all-to-all' and a network that is told the time."
        )
    if way == "direct" and count > 1:
        raise ValueError(
            f"the network makes steps of {longest:g}, not one of {gap:g}; use way 'steps', or "
            "train with lead_times 'all-to-all'."
        )
    return (longest,) * count


def _from_far_back(propagator: Propagator, times: list[float]) -> list[int]:
    """The earliest time that one lead time reaches from, so that steps are few."""
    reach = propagator.longest * (1 + SAME_TIME)
    found = []
    for j in range(1, len(times)):
        within = (i for i in range(j) if times[j] - times[i] <= reach)
        found.append(next(within, j - 1) if propagator.knows_time else j - 1)
    return found


# From which time each of the others is reached.
WAYS: dict[str, Callable[[Propagator, list[float]], list[int]]] = {
    "auto": _from_far_back,
    "steps": lambda propagator, times: list(range(len(times) - 1)),  # each from the one before
    "direct": lambda propagator, times: [0] * (len(times) - 1),  # each from the first, in one step
}


class EvolutionOperator(TrainedOperator):
    """A learned evolution in physical units: u(t) ↦ u(t + τ), again and again.

    Called on states alone it makes one step: the lead time that it was trained with, or the longest
    of several. `rollout` goes on to any times.

    >>> states = operator.rollout(u0, [0.0, 0.1, 0.2, 1.0])
    """

    def __init__(self, *parts: Any, propagator: Propagator, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.propagator = propagator

    def forward(
        self, u: Float[Tensor, "batch channel *space"], conditions: Conditions = None
    ) -> Float[Tensor, "batch channel *space"]:
        """The states one lead time later.

        `conditions` are what the network is told, in the data's own units: the lead time, for
        conditioning=("time",).
        """
        self._refuse_shape(u)
        leads, parameters = self._read(u, conditions)
        number = next(self.parameters()).dtype
        scaled = self.normalization.normalize_inputs(u).to(number)
        v = self._advance(scaled, leads.to(scaled), parameters)
        return self.normalization.denormalize_outputs(v)

    def _rows_for(self, u: Tensor, conditions: Conditions) -> Tensor | None:
        """What the network is told: of lead times alone, the longest, unless given."""
        if conditions is None and self.propagator.conditions == (TIME,):
            conditions = self.propagator.longest
        return super()._rows_for(u, conditions)

    @torch.inference_mode()
    def rollout(
        self,
        u0: States,
        times: Any,
        *,
        parameters: Any = None,
        way: str = "auto",
        batch_size: int = 32,
    ) -> Float[Tensor, "sample time channel *space"]:
        """States at `times`, of which the first is that of `u0`; on the CPU, `u0` among them.

        way         "steps": each time from the one before. "direct": each from the first, in one
                    step. "auto": in as few steps as the lead times of training allow.
        parameters  of each sample, where the network is told some.

        Longer gaps than the network's lead times are divided. A state outside the training range is
        an `OutOfRange` warning, with its time; one that is not finite is an error.
        """
        u0 = self._checked(u0)
        rows = _rows_of(parameters, len(u0))
        made = []
        for begin in range(0, len(u0), batch_size):
            some = slice(begin, begin + batch_size)
            given = None if rows is None else rows[some]
            steps = self.rollout_steps(u0[some], times, parameters=given, way=way)
            made.append(torch.stack([state for _, state in steps], dim=1))
        return torch.cat(made)

    def rollout_steps(
        self, u0: States, times: Any, *, parameters: Any = None, way: str = "auto"
    ) -> "Iterator[tuple[float, Float[Tensor, 'sample channel *space']]]":
        """`rollout` as a stream: a time and its states, one after the other, on the CPU.

        Only the states that later ones start from stay in memory.
        """
        u0, moments = self._checked(u0), as_times(times).tolist()
        plan = plan_rollout(self.propagator, moments, way)
        self._warn_of_leads(plan)
        rows = _rows_of(parameters, len(u0))
        self.propagator.conditions_for(torch.ones(len(u0)), rows)  # refused before the first step
        return self._go(u0, moments, plan, rows)

    @torch.inference_mode()
    def _go(
        self, u0: Tensor, times: list[float], plan: list[Jump], parameters: Tensor | None
    ) -> Iterator[tuple[float, Tensor]]:
        self.eval()
        weight = next(self.parameters())
        if parameters is not None:
            parameters = parameters.to(weight.device)
        known = {0: self.normalization.normalize_inputs(u0.to(weight.device)).to(weight.dtype)}
        outside = (
            "the rollout is outside the training range at t = {:g}, and may be wrong from there on"
        )
        is_told = self._warn_of_range(u0, outside.format(times[0]))
        yield times[0], u0.to("cpu", weight.dtype)
        for j, jump in enumerate(plan, start=1):
            known = {i: state for i, state in known.items() if i >= jump.base}
            u = known[jump.base]
            for lead in jump.leads:
                u = self._advance(u, u.new_full((len(u),), lead), parameters)
            if any(later.base <= j for later in plan[j:]):
                known[j] = u
            state = self.normalization.denormalize_outputs(u).cpu()
            self._refuse_infinite(state, times[j])
            is_told = is_told or self._warn_of_range(state, outside.format(times[j]))
            yield times[j], state

    def step(
        self, u: Float[Tensor, "batch channel *space"]
    ) -> Float[Tensor, "batch channel *space"]:
        """One step of scaled states, as the network sees them, over the lead time of a call."""
        return self._advance(u, u.new_full((u.shape[0],), self.propagator.longest), None)

    def _advance(self, u: Tensor, leads: Tensor, parameters: Tensor | None) -> Tensor:
        """Scaled states to scaled states, over physical lead times."""
        part = leads / self.propagator.longest
        told = self.propagator.conditions_for(part, parameters)
        if self.symmetry is None:
            return self.propagator.advance(self.network, u, part, told)
        advance = partial(self.propagator.advance, self.network)
        return average_over_group(advance, self.symmetry, u, part, told)

    def _read(self, u: Tensor, conditions: Conditions) -> tuple[Tensor, Tensor | None]:
        """Lead times and parameters of the rows that the network is told, in physical units."""
        propagator = self.propagator
        default = u.new_full((u.shape[0],), propagator.longest)  # any batch, also where traced
        if conditions is None and propagator.conditions in ((), (TIME,)):
            return default, None
        rows = as_rows(conditions, propagator.conditions, u)
        if rows is None:
            return default, None
        columns = dict(zip(propagator.conditions, rows.unbind(1), strict=True))
        leads = columns.get(TIME, default)
        missing = [name for name in propagator.parameters if name not in columns]
        if not propagator.parameters:
            return leads, None
        zeros = torch.zeros_like(leads)  # what the network is not told does not matter
        known = {**columns, **dict.fromkeys(missing, zeros)}
        return leads, torch.stack([known[name] for name in propagator.parameters], dim=1)

    def _warn_of_leads(self, plan: Sequence[Jump]) -> None:
        leads = [lead for jump in plan for lead in jump.leads]
        low, high = self.propagator.shortest, self.propagator.longest
        near = SAME_TIME * high
        beyond = [lead for lead in leads if lead < low - near or lead > high + near]
        if beyond:
            warnings.warn(
                f"the lead time {beyond[0]:g} is outside those of the training, {low:g} to "
                f"{high:g}, and predictions may be wrong; use times that steps within them reach, "
                "with way 'auto'.",
                OutOfRange,
                stacklevel=4,
            )

    def _refuse_infinite(self, state: Tensor, time: float) -> None:
        if state.isfinite().all():
            return
        bad = int((~state.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(
            f"the rollout holds NaN or infinite values at t = {time:g}, first in sample {bad}; "
            "stop before, use fewer steps (way 'auto' of a network with lead times), or train for "
            "rollouts: unroll 2 or more, noise 0.01."
        )

    def description(self) -> dict[str, Any]:
        """What `model.json` says, with what is known of time."""
        return {**super().description(), "propagator": to_plain(self.propagator)}


class Horizon(EvolutionOperator):
    """The map from one time to a later one, in as few steps as the lead times of training allow.

    Of a network that is told parameters, `rows` has those of the samples that it is applied to.
    """

    def __init__(
        self, operator: EvolutionOperator, start: float, end: float, rows: Tensor | None = None
    ) -> None:
        super().__init__(
            operator.network,
            operator.normalization,
            operator.grid,
            operator.model,
            operator.problem,
            operator.error_scaling,
            operator.symmetry,
            operator.range,
            propagator=operator.propagator,
        )
        (jump,) = plan_rollout(operator.propagator, [start, end])
        self.leads, self.rows = jump.leads, rows

    @classmethod
    def of(cls, operator: EvolutionOperator, trajectories: Trajectories) -> "Horizon":
        """The map from the first time of `trajectories` to the last, with their parameters."""
        first, *_, last = trajectories.times.tolist()
        return cls(operator, first, last, trajectories.parameters)

    def forward(
        self, u: Float[Tensor, "batch channel *space"], conditions: Conditions = None
    ) -> Float[Tensor, "batch channel *space"]:
        """The states at the end; `conditions` are the parameters, a row per sample."""
        self._refuse_shape(u)
        rows = self._rows_for(u, conditions)
        rows = None if rows is None else rows.to(u.device)
        number = next(self.parameters()).dtype
        v = self.normalization.normalize_inputs(u).to(number)
        for lead in self.leads:
            v = self._advance(v, v.new_full((len(v),), lead), rows)
        return self.normalization.denormalize_outputs(v)

    def _rows_for(self, u: Tensor, conditions: Conditions) -> Tensor | None:
        """The parameters of each sample: those of `rows`, unless given."""
        return _rows_of(self.rows if conditions is None else conditions, len(u))


def _rows_of(parameters: Any, n: int) -> Float[Tensor, "sample number"] | None:
    """Parameters as one row per sample."""
    if parameters is None:
        return None
    rows = as_real_tensor(parameters, "parameters")
    rows = rows.reshape(1, -1).expand(n, -1) if rows.ndim < 2 else rows
    if rows.ndim != 2 or len(rows) < n:
        raise ValueError(
            f"parameters have shape {tuple(rows.shape)} for {n} samples; give (sample, number)."
        )
    return rows[:n]
