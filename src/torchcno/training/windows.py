"""Stretches of trajectories that a network learns from, as the training loop takes them.

All states lie on the device once. A window is a row of numbers of states; a batch of windows is
gathered there, inside the captured step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from torchcno.data.trajectories import EQUAL_STEPS, Trajectories
from torchcno.metrics import relative_l1
from torchcno.selection import select
from torchcno.training.propagator import TIME, Propagator, Unrolled, Window

Take = Callable[[Tensor, Tensor], Tensor]  # (states, their numbers) -> these states, maybe moved
VALIDATED = 16  # times of a validation trajectory that are predicted, at most
WORST = 1e3  # what a validation rollout that left all numbers behind counts for


def single_steps(n: int, unroll: int) -> list[range]:
    """i, i + 1, …, i + unroll."""
    return [range(i, i + unroll + 1) for i in range(n - unroll)]


def all_leads(n: int, unroll: int) -> list[range]:
    """i, i + m, …, i + unroll · m for every m ≥ 1: with unroll = 1 every pair i < j, once."""
    longest = (n - 1) // unroll
    return [
        range(i, i + unroll * m + 1, m)
        for m in range(1, longest + 1)
        for i in range(n - unroll * m)
    ]


def first_to_last(n: int, unroll: int) -> list[range]:
    """0, n − 1: one step."""
    return [range(0, n, n - 1)] if unroll == 1 else []


# The times of the windows of one trajectory with n snapshots.
LEAD_TIMES: dict[str, Callable[[int, int], list[range]]] = {
    "one-step": single_steps,
    "all-to-all": all_leads,
    "direct": first_to_last,
}

# Weights of errors by the time since the start of a window, 0 < s ≤ 1 in parts of the longest.
TIME_WEIGHTS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "equal": None,
    "late": lambda s: s,
    "early": lambda s: 1 / s,
}


def window_times(n: int, lead_times: str, unroll: int) -> Int[Tensor, "window times"]:
    """The numbers of the times of every window of one trajectory with `n` snapshots."""
    found = select(LEAD_TIMES, lead_times, "lead_times")(n, unroll)
    if not found:
        raise ValueError(
            f"{n} times have no window of {unroll} steps with lead_times {lead_times!r}; use a "
            f"smaller unroll, such as 1, or give more times."
        )
    return torch.tensor([list(times) for times in found])


def parameter_names(trajectories: Trajectories) -> tuple[str, ...]:
    """What the parameters of trajectories are called; p0, p1, … where they have no names."""
    if trajectories.parameters is None:
        return ()
    count = trajectories.parameters.shape[1]
    return trajectories.parameter_names or tuple(f"p{i}" for i in range(count))


def describe_propagator(
    trajectories: Trajectories,
    lead_times: str,
    unroll: int,
    residual: bool,
    conditions: Sequence[str],
) -> Propagator:
    """The map over time that a network told `conditions` learns from `trajectories`."""
    times = trajectories.times[window_times(len(trajectories.times), lead_times, unroll)]
    leads = times.diff(dim=1)
    names = parameter_names(trajectories)
    unknown = [name for name in conditions if name not in (TIME, *names)]
    if unknown:
        known = ", ".join((TIME, *names))
        raise ValueError(
            f"the network is to be told {', '.join(unknown)}, and the trajectories have {known}; "
            "name these in `conditioning`."
        )
    shortest, longest = float(leads.min()), float(leads.max())
    if TIME not in conditions and longest - shortest > EQUAL_STEPS * longest:
        raise ValueError(
            f"the lead times are between {shortest:g} and {longest:g}, and the network is not told "
            "which; build it with conditioning=('time',), or use lead_times 'one-step' with equal "
            "steps in time."
        )
    low, high = (), ()
    if trajectories.parameters is not None:
        low, high = (
            tuple(extreme.values.tolist())
            for extreme in (trajectories.parameters.min(0), trajectories.parameters.max(0))
        )
    return Propagator(
        lead_times=lead_times,
        shortest=shortest,
        longest=longest,
        residual=residual,
        conditions=tuple(conditions),
        parameters=names,
        low=low,
        high=high,
    )


@dataclass(frozen=True)
class Steps:
    """Steps from states to later ones, a row per start, and what networks are told of them."""

    rows: Int[Tensor, "row times"]  # numbers of states; the first is the start
    parts: Float[Tensor, "row step"]  # the lead times, in parts of the longest of training
    conditions: Float[Tensor, "row step condition"]

    @classmethod
    def of(
        cls,
        trajectories: Trajectories,
        propagator: Propagator,
        times: Int[Tensor, "window times"],
        chained: bool = True,
    ) -> "Steps":
        """The steps between `times`, in every trajectory; not `chained`: each from the first."""
        n, windows = len(trajectories.times), len(times)
        first = torch.arange(len(trajectories)).repeat_interleave(windows)
        rows = first[:, None] * n + times.repeat(len(trajectories), 1)
        at = trajectories.times[times]
        leads = at.diff(dim=1) if chained else at[:, 1:] - at[:, :1]
        parts = (leads / propagator.longest).repeat(len(trajectories), 1).float()
        known = trajectories.parameters
        told = [
            propagator.conditions_for(parts[:, k], None if known is None else known.cpu()[first])
            for k in range(parts.shape[1])
        ]
        return cls(rows, parts, torch.stack(told, dim=1))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What there is, a row per start."""
        return self.rows, self.parts, self.conditions

    def to(self, device: torch.device) -> "Steps":
        """The same on `device`."""
        return Steps(*(tensor.to(device) for tensor in self.tensors))

    def take(self, some: Tensor | slice) -> "Steps":
        """Some of the rows."""
        if isinstance(some, slice):
            return Steps(*(tensor[some] for tensor in self.tensors))
        return Steps(*(tensor.index_select(0, some) for tensor in self.tensors))


@dataclass(frozen=True)
class Windows:
    """As `Pairs`, of trajectories: a sample is a window, gathered from all states."""

    inputs: Float[Tensor, "state channel *space"]  # of all trajectories, one after the other
    steps: Steps
    weights: Float[Tensor, "window step"] | None
    propagator: Propagator
    trajectories: int  # how many the states are of
    gradients: str = "all"  # a name of `propagator.GRADIENTS`
    noise: tuple[float, ...] = ()  # deviation of noise on the start, per channel

    @classmethod
    def of(
        cls,
        scaled: Trajectories,
        propagator: Propagator,
        unroll: int = 1,
        gradients: str = "all",
        noise: float = 0.0,
        time_weights: str = "equal",
    ) -> "Windows":
        """The windows of trajectories in the values that networks see.

        `noise` is in parts of the deviation of each channel over the training set.
        """
        times = window_times(len(scaled.times), propagator.lead_times, unroll)
        channels = scaled.states.transpose(0, 2).flatten(1).double()
        sizes = (noise * channels.std(1, correction=0)).tolist() if noise else ()
        return cls(
            scaled.states.flatten(0, 1).float(),
            Steps.of(scaled, propagator, times),
            _weigh(scaled, times, time_weights),
            propagator,
            len(scaled),
            gradients,
            tuple(sizes),
        )

    def __len__(self) -> int:
        return len(self.steps)

    def first(self, count: int | None) -> "Windows":
        """The windows of the first `count` trajectories alone; None: of all of them."""
        if count is None:
            return self
        if count > self.trajectories:
            raise ValueError(
                f"samples is {count}, and there are {self.trajectories} trajectories; use at most "
                "those."
            )
        states, windows = (
            count * (total // self.trajectories) for total in (len(self.inputs), len(self))
        )
        return replace(
            self,
            inputs=self.inputs[:states],
            steps=self.steps.take(slice(windows)),
            weights=None if self.weights is None else self.weights[:windows],
            trajectories=count,
        )

    def draw(self, generator: Generator, steps: int, size: int) -> Int[Tensor, "step sample"]:
        """The windows of the batches of a new epoch."""
        order = torch.randperm(len(self), generator=generator)
        return order[: steps * size].view(steps, size)

    def load(self, step: int) -> None:
        """Have what a step reads in memory: all is, always."""

    def to(self, device: torch.device) -> "Windows":
        """The same windows on `device`."""
        weights = None if self.weights is None else self.weights.to(device)
        return replace(
            self, inputs=self.inputs.to(device), steps=self.steps.to(device), weights=weights
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that decides what is learnt."""
        return (
            self.inputs,
            *self.steps.tensors,
            *(() if self.weights is None else (self.weights,)),
        )

    @property
    def channels(self) -> int:
        """Of a state."""
        return self.inputs.shape[1]

    def gather(self, batch: Int[Tensor, " batch"], take: Take) -> tuple[Window, Tensor]:
        """The windows of a batch, and the states that its steps should come to."""
        steps = self.steps.take(batch)
        states = [take(self.inputs, rows) for rows in steps.rows[:, 1:].unbind(1)]
        targets = torch.stack(states, dim=1).flatten(0, 1)
        weights = None if self.weights is None else self.weights.index_select(0, batch).flatten()
        start = take(self.inputs, steps.rows[:, 0])
        return Window(start, steps.parts, steps.conditions, targets, weights), targets

    def teach(self, network: nn.Module) -> nn.Module:
        """What a step trains: the network, unrolled over a window."""
        return Unrolled(network, self.propagator, self.gradients, self.noise)

    def examples(self, count: int) -> tuple[Tensor, ...]:
        """What the network is called with in `count` windows that are spread over all."""
        count = min(count, len(self))
        spread = torch.arange(count, device=self.inputs.device) * len(self) // count
        steps = self.steps.take(spread)
        start = self.inputs.index_select(0, steps.rows[:, 0])
        return (start, steps.conditions[:, 0]) if self.propagator.conditions else (start,)


@dataclass(frozen=True)
class Rollouts:
    """As `Pairs` for validation: trajectories that are to be predicted from their first state."""

    inputs: Float[Tensor, "state channel *space"]
    steps: Steps
    propagator: Propagator

    counts: None = None  # where targets count: everywhere
    fill: float = 1.0  # as of `Pairs`, to no effect

    @classmethod
    def of(cls, scaled: Trajectories, propagator: Propagator) -> "Rollouts":
        """Rollouts from the first state, over at most 16 times.

        Of a network with many lead times: each time in one step, spread over all times.
        """
        n = len(scaled.times)
        count = min(n - 1, VALIDATED)
        ends = {
            "one-step": list(range(1, count + 1)),
            "all-to-all": [(k * (n - 1)) // count for k in range(1, count + 1)],
            "direct": [n - 1],
        }[propagator.lead_times]
        times = torch.tensor([[0, *ends]])
        chained = propagator.lead_times != "all-to-all"
        return cls(
            scaled.states.flatten(0, 1).float(),
            Steps.of(scaled, propagator, times, chained),
            propagator,
        )

    def __len__(self) -> int:
        return len(self.steps)

    def to(self, device: torch.device) -> "Rollouts":
        """The same on `device`."""
        return replace(self, inputs=self.inputs.to(device), steps=self.steps.to(device))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that decides the error."""
        return (self.inputs, *self.steps.tensors)

    @property
    def targets(self) -> Tensor:
        """The states that are to be predicted."""
        return self.inputs.index_select(0, self.steps.rows[:, 1:].flatten())

    def error_of(self, network: nn.Module, batch_size: int) -> Float[Tensor, ""]:
        """The mean over trajectories and times of the relative L1 error on scaled states.

        A rollout that leaves all numbers behind counts as an error of 1000: the weights are bad for
        rollouts, and training may go on from them.
        """
        network.eval()
        chained = self.propagator.lead_times != "all-to-all"
        errors = []
        with torch.no_grad():
            for begin in range(0, len(self), batch_size):
                some = self.steps.take(slice(begin, begin + batch_size))
                start = u = self.inputs.index_select(0, some.rows[:, 0])
                for k in range(some.parts.shape[1]):
                    u = self.propagator.advance(
                        network, u if chained else start, some.parts[:, k], some.conditions[:, k]
                    )
                    truth = self.inputs.index_select(0, some.rows[:, k + 1])
                    errors.append(relative_l1(u, truth))
        found = torch.cat(errors).double()
        return found.nan_to_num(nan=WORST, posinf=WORST).clamp(max=WORST).mean()


def _weigh(
    trajectories: Trajectories, times: Tensor, time_weights: str
) -> Float[Tensor, "window step"] | None:
    """A weight for each step of each window, one on average."""
    choose = select(TIME_WEIGHTS, time_weights, "time_weights")
    if choose is None:
        return None
    at = trajectories.times[times]
    since = at[:, 1:] - at[:, :1]
    weights = choose(since / since.max())
    return (weights / weights.mean()).repeat(len(trajectories), 1).float()
