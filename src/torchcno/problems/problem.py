"""What every problem is: a distribution of inputs and a solver."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from torchcno.grids import Grid, Layout
from torchcno.selection import Options, select
from torchcno.spectral import resample

Resolution = int | tuple[int, ...]  # points: one number for all axes, or one per axis


@dataclass(frozen=True)
class Problem(Options, ABC):
    """A PDE's solution operator G: u ↦ v, given by a distribution of inputs u and a solver for v.

    A subclass states its equation in the docstring, in one line first, and its constants as fields
    with the paper's values. Fields are `(sample, channel, *space)`, physical, float64 inside.

    `sample_inputs` and `solve` work on the whole state that the equation needs; `observe` picks
    what networks see of it. The two differ where the benchmark shows a part only: one component
    of a velocity, or initial data without what flows in from outside.
    """

    name: ClassVar[str]
    # Of the recipe: raised when solver or sampling change what the same constants make. Data files
    # of another version are other data.
    version: ClassVar[int] = 1
    layout: ClassVar[Layout]  # where the samples lie
    boundary: ClassVar[str]  # how the fields meet the edge: zero, periodic, even or odd
    # Whether the equation is the same everywhere. A force that depends on x is not.
    homogeneous: ClassVar[bool] = True
    # Symmetries of the operator, G(g u) = g G(u): names of augmentations that training may use.
    symmetries: ClassVar[tuple[str, ...]] = ()
    samples: ClassVar[Mapping[str, int]]  # the paper's number of samples per split
    ood: ClassVar[Mapping[str, Any]]  # the constants that differ out of distribution
    resolution: ClassVar[Any] = 64  # the paper's points, a `Resolution`
    extent: ClassVar[tuple[tuple[float, float], ...]] = ((0.0, 1.0), (0.0, 1.0))  # one per axis
    square: ClassVar[bool] = True  # whether the solver needs as many points along every axis
    normalized: ClassVar[bool] = True  # whether networks see fields scaled to [0, 1]
    scales: ClassVar[bool] = True  # whether a multiple of a state is another state
    state_channels: ClassVar[int] = 1  # channels of the inputs that `solve` takes
    has_residual: ClassVar[bool] = False  # whether a pair alone tells how far it is from the PDE
    input_label: ClassVar[str] = "input"  # what the fields are, for plots
    output_label: ClassVar[str] = "output"

    @property
    def label(self) -> str:
        """What it is called where people read it."""
        return self.name

    @property
    def channels(self) -> tuple[int, int]:
        """How many input and output channels networks see."""
        return 1, 1

    def grid(self, resolution: Resolution) -> Grid:
        """The grid of `resolution` points on the problem's domain."""
        if not isinstance(resolution, tuple):
            resolution = (resolution,) * len(self.extent)
        self._check_square(resolution)
        return Grid(resolution, self.layout, self.extent)

    def solver_grid(self, resolution: Resolution) -> Grid:
        """The grid on which pairs for `resolution` are made; finer where the solver needs it."""
        return self.grid(resolution)

    def gpu_batch(self, resolution: Resolution) -> int:
        """How many samples a GPU makes at once: so many that memory stays about a GiB."""
        return max(1, 128 * 64**2 // math.prod(self.grid(resolution).shape))

    @abstractmethod
    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """`n` random states on `grid`, from a CPU generator: (n, state channel, *space), float64.

        A generator stands for functions: the same one gives the same functions on every grid.
        """

    @abstractmethod
    def solve(self, inputs: Tensor) -> Tensor:
        """The outputs for states on `solver_grid`, in float64, on the same grid and device."""

    def observe(self, fields: Tensor) -> Tensor:
        """The channels of a state, before or after `solve`, that networks see."""
        return fields

    def restrict(self, fields: Tensor, resolution: Resolution) -> Tensor:
        """Fields of the solver grid on the grid of `resolution`, band-limited."""
        return resample(fields, self.grid(resolution).shape, self.layout)

    def pairs(
        self,
        generators: Sequence[Generator],
        resolution: Resolution,
        device: str | torch.device = "cpu",
    ) -> tuple[Tensor, Tensor]:
        """Inputs and outputs at `resolution` as networks see them, one sample per generator.

        Float64 on the CPU, whatever `device` solves. A sample depends on its generator alone.
        On the CPU it does so to the last bit, since samples are solved one by one: the rounding of
        batched products depends on the batch, and a sample there fills the cores' caches already.
        """
        batches = self.draw_batches(generators, self.solver_grid(resolution), device)
        inputs, outputs = (
            torch.cat([self.restrict(self.observe(fields), resolution).cpu() for fields in each])
            for each in (batches, map(self.solve, batches))
        )
        return inputs, outputs

    def draw_batches(
        self, generators: Sequence[Generator], grid: Grid, device: str | torch.device
    ) -> list[Tensor]:
        """Random states on `device`, one per generator, in the batches in which they are solved."""
        states = torch.cat([self.sample_inputs(grid, 1, generator) for generator in generators])
        states = states.to(device)
        return list(states.split(1)) if states.device.type == "cpu" else [states]

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """Numbers that the equation keeps, or lets only fall, of fields as networks see them.

        `fields` are (…, channel, *space), each number is (…). Empty: none is known.
        """
        return {}

    def for_split(self, split: str) -> "Problem":
        """This problem with the constants of `split`."""
        constants: dict[str, Mapping[str, Any]] = {key: {} for key in SPLITS}
        return replace(self, **select({**constants, "ood": self.ood}, split, "split"))

    def coarsened(self, share: float) -> "Problem | None":
        """This problem with a cheaper solver: `share` of its points per axis, or of its steps.

        By default itself: then a coarser grid alone makes the solver cheaper. None: nothing does.
        """
        return self

    def residual(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """What predicted outputs leave of the equation: zero for the solver's on the same grid.

        Of fields as networks see them, in float64.
        """
        if not self.has_residual:
            raise ValueError(
                f"{self.name} has no residual of a prediction, since input and output alone do not "
                "determine one; ask for error bands, predict(u, confidence=0.9)."
            )
        return self.imbalance(self.checked(inputs), self.checked(outputs))

    def imbalance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """`residual` of fields in float64 that are checked already, for training.

        Without a look at values, so that a step can be captured. There where `has_residual` is.
        """
        raise NotImplementedError

    def correct(self, inputs: Tensor, outputs: Tensor, iterations: int) -> Tensor:
        """Predicted outputs after `iterations` of a solver that starts from them, in float64.

        It converges to the solver's answer on the grid of the data. None are the outputs as given.
        """
        raise ValueError(
            f"{self.name} has no iteration that corrects a prediction; leave `correct` out. "
            "poisson and darcy have one."
        )

    def mask(self, inputs: Tensor) -> Tensor | None:
        """Where outputs count, from physical inputs; None: everywhere."""
        return None

    def checked(self, inputs: Tensor) -> Tensor:
        """`inputs` in float64, once they are known to be states that `solve` can take."""
        axes, channels = len(self.extent), self.state_channels
        if inputs.ndim != axes + 2 or inputs.shape[1] != channels or inputs.shape[0] == 0:
            raise ValueError(
                f"{self.name} solves states of shape (sample, {channels}, "
                f"{', '.join('zyx'[-axes:])}), not {tuple(inputs.shape)}; see `sample_inputs`."
            )
        if not inputs.is_floating_point():
            raise ValueError(f"{self.name} solves real floating-point fields, not {inputs.dtype}.")
        self._check_square(tuple(inputs.shape[2:]))
        if not torch.isfinite(inputs).all():
            raise ValueError(f"inputs of {self.name} hold NaN or infinite values; remove them.")
        return inputs.to(torch.float64)

    def _check_square(self, shape: tuple[int, ...]) -> None:
        if self.square and len(set(shape)) > 1:
            raise ValueError(
                f"{self.name} solves on square grids, not {shape}; "
                "use as many points along every axis."
            )


SPLITS: tuple[str, ...] = ("train", "val", "test", "ood")
