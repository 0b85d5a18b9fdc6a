"""What every problem is: a distribution of inputs and a solver."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from torch import Generator, Tensor

from torchcno.grids import Grid, Layout
from torchcno.selection import select
from torchcno.spectral import resample

Split = Literal["train", "val", "test", "ood"]


@dataclass(frozen=True)
class Problem(ABC):
    """A PDE's solution operator G: u ↦ v, given by a distribution of inputs u and a solver for v.

    A subclass states its equation in the docstring and its constants as fields with the paper's values.
    Fields are `(sample, channel, y, x)`, physical values, float64 inside.
    """

    name: ClassVar[str]
    layout: ClassVar[Layout]  # where the samples lie
    boundary: ClassVar[Literal["zero", "periodic", "even", "odd"]]  # how the fields meet the edge
    samples: ClassVar[Mapping[str, int]]  # the paper's number of samples a split
    ood: ClassVar[Mapping[str, Any]]  # the constants that differ out of distribution
    resolution: ClassVar[int] = 64  # the paper's points an axis
    extent: ClassVar[tuple[tuple[float, float], ...]] = ((0.0, 1.0), (0.0, 1.0))
    normalized: ClassVar[bool] = True  # whether networks see fields scaled to [0, 1]

    @property
    def channels(self) -> tuple[int, int]:
        """How many input and output channels."""
        return 1, 1

    def grid(self, resolution: int) -> Grid:
        """The grid of `resolution` points an axis."""
        return Grid((resolution, resolution), self.layout, self.extent)

    def solver_grid(self, resolution: int) -> Grid:
        """The grid on which pairs for `resolution` are made; finer where the solver needs it."""
        return self.grid(resolution)

    @abstractmethod
    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """`n` random inputs on `grid`, drawn from a CPU generator: (n, channel, y, x), float64."""

    @abstractmethod
    def solve(self, inputs: Tensor) -> Tensor:
        """The outputs for `inputs`, on the same grid and device."""

    def restrict(self, fields: Tensor, resolution: int) -> Tensor:
        """Fields of the solver grid on the grid of `resolution`, band-limited."""
        return resample(fields, (resolution, resolution), self.layout)

    def for_split(self, split: str) -> Self:
        """This problem with the constants of `split`."""
        return replace(self, **select({**dict.fromkeys(SPLITS, {}), "ood": self.ood}, split, "split"))

    def mask(self, inputs: Tensor) -> Tensor | None:
        """Where outputs count, from physical inputs; None: everywhere."""
        return None


SPLITS: tuple[str, ...] = ("train", "val", "test", "ood")
