"""Problems that evolve: states at time 0 are carried to any later time."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.problem import Problem, Resolution


@dataclass(frozen=True)
class Evolution(Problem):
    """A problem with a time: `solve` is the state at the final time `T` of a trajectory."""

    # What of a state networks do not see, though what follows depends on it. Where there is such a
    # thing, a map over one step cannot be learnt exactly, and a map from time 0 can.
    unseen: ClassVar[str] = ""

    @property
    @abstractmethod
    def T(self) -> float:  # noqa: N802
        """The time of the outputs."""

    @abstractmethod
    def trajectory(
        self, inputs: Tensor, times: Sequence[float]
    ) -> Float[Tensor, "sample time channel *space"]:
        """The states at increasing `times` ≥ 0, from states at time 0 on `solver_grid`."""

    def solve(self, inputs: Tensor) -> Tensor:
        """The states at time T."""
        return self.trajectory(inputs, [self.T])[:, -1]

    def draw_trajectories(
        self,
        generators: Sequence[Generator],
        grid: Grid,
        times: Sequence[float],
        device: str | torch.device = "cpu",
    ) -> Iterator[Float[Tensor, "sample time channel *space"]]:
        """States on `grid` at `times`, one random trajectory per generator, in batches."""
        for batch in self.draw_batches(generators, grid, device):
            yield self.trajectory(batch, times)

    def trajectories(
        self,
        generators: Sequence[Generator],
        times: Sequence[float],
        resolution: Resolution,
        device: str | torch.device = "cpu",
    ) -> Float[Tensor, "sample time channel *space"]:
        """Fields at `times` and `resolution` as networks see them, one sample per generator.

        Float64 on the CPU. As `pairs`: a sample depends on its generator alone.
        """

        def see(states: Tensor) -> Tensor:
            seen = self.restrict(self.observe(states.flatten(0, 1)), resolution)
            return seen.unflatten(0, states.shape[:2]).cpu()

        grid = self.solver_grid(resolution)
        return torch.cat([*map(see, self.draw_trajectories(generators, grid, times, device))])


def require_evolution(problem: Problem) -> Evolution:
    """`problem`, if it has a time."""
    if not isinstance(problem, Evolution):
        raise ValueError(
            f"{problem.name} is steady: it has no times; use a problem that evolves, such as "
            "navier-stokes."
        )
    return problem


def check_times(times: Sequence[float]) -> None:
    """Refuse times that do not increase from 0."""
    do_increase = all(before < after for before, after in pairwise(times))
    if not times or not do_increase or not all(0 <= time < math.inf for time in times):
        raise ValueError(f"times {list(times)} must be one or more that increase from 0.")
