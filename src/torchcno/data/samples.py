"""Samples of a problem, each a function of its number."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import check_times, require_evolution
from torchcno.problems.problem import Problem, Resolution
from torchcno.sizes import refuse_without_memory

TIMES_AT_ONCE = 16  # of a trajectory, for which a GPU takes as many samples as of pairs
SOLVER_FIELDS = 6  # in float64, that a solver has in memory at least


@dataclass(frozen=True)
class Samples:
    """The first `count` samples of a problem: the i-th depends on the other fields and i alone."""

    problem: Problem
    split: str
    resolution: Resolution
    seed: int = 0
    count: int = 0  # 0: the paper's
    times: tuple[float, ...] = ()  # of trajectories; empty: samples are pairs

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**63:  # as files keep it
            raise ValueError(f"seed is {self.seed}; use a number below 2⁶³.")
        _ = self.split_problem, self.grid  # both refuse what they do not know
        if self.times:
            require_evolution(self.problem)
            # 3 · 0.1 and 0.3 are one time, and one file
            object.__setattr__(self, "times", tuple(float(f"{t:.12g}") for t in self.times))
            check_times(self.times)
            if len(self.times) < 2:
                raise ValueError("one time is no trajectory; give two or more: 0:1:0.1.")
        if self.count == 0:
            object.__setattr__(self, "count", self.problem.samples[self.split])

    @classmethod
    def of(
        cls,
        problem: Problem,
        split: str,
        resolution: Resolution | None = None,
        seed: int = 0,
        samples: int | None = None,
        times: Sequence[float] = (),
    ) -> "Samples":
        """So many `samples` at `resolution`, both the paper's unless given."""
        if samples is not None and samples < 1:
            raise ValueError(f"samples is {samples}; use 1 or more.")
        resolution = problem.resolution if resolution is None else resolution
        return cls(problem, split, resolution, seed, samples or 0, tuple(times))

    @cached_property
    def split_problem(self) -> Problem:
        """The problem with the constants of the split."""
        return self.problem.for_split(self.split)

    @property
    def grid(self) -> Grid:
        """Where the samples' values lie."""
        return self.problem.grid(self.resolution)

    @property
    def points(self) -> int | str:
        """The points per axis, as files call them: 64, or 48x64 where the axes differ."""
        shape = self.grid.shape
        return shape[0] if len(set(shape)) == 1 else "x".join(map(str, shape))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The arrays that a sample has, by their names in files, with their shapes."""
        space, (seen, predicted) = self.grid.shape, self.split_problem.channels
        if self.times:
            return {"state": (len(self.times), seen, *space)}
        return {"input": (seen, *space), "output": (predicted, *space)}

    @property
    def gpu_batch(self) -> int:
        """How many samples a GPU makes at once: fewer where they have many times."""
        batch = self.problem.gpu_batch(self.resolution)
        return max(1, batch * TIMES_AT_ONCE // max(TIMES_AT_ONCE, len(self.times)))

    @property
    def recipe(self) -> str:
        """Every constant of the problem and its solver, as JSON."""
        solver_grid = self.split_problem.solver_grid(self.resolution)
        constants = {**asdict(self.split_problem), "solver_grid": solver_grid.shape}
        return json.dumps(constants, sort_keys=True)

    @property
    def identity(self) -> dict[str, str | int]:
        """What tells these samples from any others."""
        times = {"times": json.dumps(self.times)} if self.times else {}
        return {
            "problem": self.problem.name,
            "split": self.split,
            "seed": self.seed,
            "resolution": self.points,
            "recipe_version": self.problem.version,
            "recipe": self.recipe,
            **times,
        }

    @property
    def is_default(self) -> bool:
        """Whether these are the problem's own constants and the seed 0."""
        own = Samples(type(self.problem)(), self.split, self.resolution)
        return self.identity == own.identity

    def check_inputs(self) -> None:
        """Refuse a grid without room for one sample, or constants by which none can be drawn."""
        grid = self.split_problem.solver_grid(self.resolution)
        held = SOLVER_FIELDS + len(self.times) * self.problem.state_channels
        what = f"a sample of {self.problem.name} on {' × '.join(map(str, grid.shape))} points"
        when = f" at {len(self.times)} times" if self.times else ""
        remedy = "use fewer points per axis" + (", or fewer times" if self.times else "")
        refuse_without_memory(held * 8 * math.prod(grid.shape), what + when, remedy)
        self.split_problem.sample_inputs(grid, 1, Generator())

    def sample_seed(self, i: int) -> int:
        """The seed of sample `i`.

        torch's Mersenne twister keeps 32 bits of its seed. Were i hashed too, a set of 77,000
        samples would more likely than not hold one of them twice; steps of an odd number repeat
        only after 2³² samples.
        """
        name = f"{self.problem.name}/{self.split}/{self.seed}".encode()
        start = int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "little")
        return (start + i * 0x9E3779B1) % 2**32

    def make(
        self, indices: Iterable[int], device: str | torch.device = "cpu"
    ) -> tuple[Float[Tensor, "sample ..."], ...]:
        """The samples `indices`, solved as one batch on `device`: float32, on the CPU.

        Inputs and outputs; of trajectories the states alone, as `shapes` has them.
        """
        indices = list(indices)
        generators = [Generator().manual_seed(self.sample_seed(i)) for i in indices]
        made = tuple(fields.to(torch.float32) for fields in self._solve(generators, device))
        for i, arrays in zip(indices, zip(*made, strict=True), strict=True):
            if not all(torch.isfinite(field).all() for field in arrays):
                raise ValueError(
                    f"sample {i} of {self.problem.name} is not finite with the constants "
                    f"{self.recipe}; the solver needs others, such as a smaller time step."
                )
        return made

    def _solve(self, generators: list[Generator], device: str | torch.device) -> tuple[Tensor, ...]:
        if not self.times:
            return self.split_problem.pairs(generators, self.resolution, device)
        evolution = require_evolution(self.split_problem)
        return (evolution.trajectories(generators, self.times, self.resolution, device),)
