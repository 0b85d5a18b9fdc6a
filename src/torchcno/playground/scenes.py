"""What a person can draw: functions of a few numbers, which any grid can sample.

A scene is what the page sends while a person drags. It holds no grid: the same scene on another
resolution, or moved by a fraction of a grid step, is the same function.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems import Problem
from torchcno.problems.airfoil import Airfoil
from torchcno.problems.airfoil.geometry import crossing, perturbed, rae2822
from torchcno.problems.darcy import Darcy
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.transport import DiscontinuousTransport, SmoothTransport

Spot = tuple[float, float, float, float]  # x, y in the unit square, width, height in units
State = Float[Tensor, "1 channel y x"]

MOST_SPOTS = 400
MOST_DISKS = 4
CURVE_POINTS = 32  # of the displacement that a person bends
LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Frame:
    """What the numbers of a scene mean, wherever the grid lies that samples it."""

    extent: tuple[tuple[float, float], ...]  # of the page's unit square, in tensor order: y, x
    unit: float = 1.0  # a spot's height of 1


@dataclass(frozen=True)
class Scene(ABC):
    """An input as a person draws it."""

    kind: ClassVar[str]  # how the page lets a person draw

    @classmethod
    @abstractmethod
    def deal(cls, problem: Any, seed: int) -> Self:
        """A random input of the problem."""

    @abstractmethod
    def state(self, problem: Any, grid: Grid, frame: Frame) -> State:
        """The problem's state at the points of `grid`."""


@dataclass(frozen=True)
class Spots(Scene):
    """Spots on a random input, or on nothing.

        blob  h exp(−q/2)             q = |x − c|²/w²
        ring  h (1 − q/2) exp(−q/2)   of mean zero: −Δ of a blob

    A ring is a source whose potential is a blob. It has the fine scales of Poisson's training data,
    where a blob is far from them.
    """

    seed: int | None = None  # of the random input below; None: nothing
    blobs: tuple[Spot, ...] = ()
    rings: tuple[Spot, ...] = ()

    kind: ClassVar = "spots"
    periodic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_range("seed", self.seed, 0, LARGEST_SEED)
        if len(self.blobs) + len(self.rings) > MOST_SPOTS:
            raise ValueError(f"the drawing has more than {MOST_SPOTS} spots; clear some of it.")
        for x, y, width, height in (*self.blobs, *self.rings):
            check_range("a spot's place", x, -1, 2)
            check_range("a spot's place", y, -1, 2)
            check_range("a spot's width", width, 0.005, 1)
            check_range("a spot's height", height, -100, 100)

    @classmethod
    def deal(cls, problem: Any, seed: int) -> Self:
        """A random input with nothing drawn on it."""
        return cls(seed)

    def state(self, problem: Problem | None, grid: Grid, frame: Frame) -> State:
        """The random input and the spots, added."""
        return self.background(problem, grid) + frame.unit * self.drawn(grid, frame)

    def background(self, problem: Problem | None, grid: Grid) -> State:
        """The random input alone."""
        if self.seed is None or problem is None:
            return torch.zeros(1, 1, *grid.shape, dtype=torch.float64)
        return problem.sample_inputs(grid, 1, Generator().manual_seed(self.seed))

    def drawn(self, grid: Grid, frame: Frame) -> State:
        """The spots alone."""
        fields = torch.zeros(grid.shape, dtype=torch.float64)
        if self.blobs:
            along_y, along_x, _, _ = self._gaussians(grid, frame, self.blobs)
            fields += along_y.T @ along_x
        if self.rings:
            along_y, along_x, q_y, q_x = self._gaussians(grid, frame, self.rings)
            bent_y, bent_x = (1 - q_y / 2) * along_y, q_x / 2 * along_x
            fields += bent_y.T @ along_x - along_y.T @ bent_x
        return fields[None, None]

    def _gaussians(self, grid: Grid, frame: Frame, spots: Sequence[Spot]) -> tuple[Tensor, ...]:
        """Per spot h exp(−q_y/2) along y and exp(−q_x/2) along x, and q_y, q_x."""
        x, y, width, height = torch.tensor(spots, dtype=torch.float64).T[..., None]
        distances = []
        for axis, centre in ((0, y), (1, x)):
            start, end = frame.extent[axis]
            distance = grid.axis(axis) - (start + (end - start) * centre)
            if self.periodic or grid.layouts[axis] == "periodic":
                period = end - start
                distance = (distance + period / 2) % period - period / 2
            distances.append((distance / ((end - start) * width)).square())
        q_y, q_x = distances
        return height * torch.exp(-q_y / 2), torch.exp(-q_x / 2), q_y, q_x


@dataclass(frozen=True)
class PeriodicSpots(Spots):
    """Spots on a torus, also where the grid holds both its ends."""

    periodic: ClassVar = True


@dataclass(frozen=True)
class Materials(Spots):
    """Two materials: paint lays down one of them, negative paint the other."""

    def state(self, problem: Darcy, grid: Grid, frame: Frame) -> State:  # type: ignore[override]
        """The materials, where the paint is thicker than half a unit."""
        paint = self.drawn(grid, frame)
        below = self.background(problem, grid).clamp(min=problem.low)
        return torch.where(paint > 0.5, problem.high, torch.where(paint < -0.5, problem.low, below))


@dataclass(frozen=True)
class Layers(Scene):
    """Two shear layers on one curve y = σ(x): its values at 32 points, in multiples of δ."""

    curve: tuple[float, ...] = (0.0,) * CURVE_POINTS

    kind: ClassVar = "layers"

    def __post_init__(self) -> None:
        if len(self.curve) != CURVE_POINTS:
            raise ValueError(f"the curve has {len(self.curve)} points; give {CURVE_POINTS}.")
        for value in self.curve:
            check_range("a point of the curve", value, -100, 100)

    @classmethod
    def deal(cls, problem: NavierStokes, seed: int) -> Self:
        """A curve of the training data."""
        x = torch.arange(CURVE_POINTS, dtype=torch.float64) / CURVE_POINTS
        unscaled = replace(problem, delta=1.0)
        return cls(
            tuple(unscaled.sample_displacements(1, x, Generator().manual_seed(seed))[0].tolist())
        )

    def state(self, problem: NavierStokes, grid: Grid, frame: Frame) -> State:
        """The velocity of the layers."""
        (n_points, _) = grid.shape
        x = grid.resized(2 * n_points, 2 * n_points).axis(1)
        k = torch.arange(1, CURVE_POINTS // 2, dtype=torch.float64)  # what the points determine
        hats = torch.fft.rfft(torch.tensor(self.curve, dtype=torch.float64), norm="forward")
        waves = torch.exp(2j * torch.pi * x[:, None] * k)
        sigma = hats[0].real + 2 * (waves @ hats[1:-1]).real
        return problem.layers(problem.delta * sigma[None], grid)


@dataclass(frozen=True)
class Disks(Scene):
    """Disks or Gaussians that the wind carries: (x, y, size) each."""

    disks: tuple[tuple[float, float, float], ...] = ((0.3, 0.3, 0.1),)

    kind: ClassVar = "disks"

    def __post_init__(self) -> None:
        if not 1 <= len(self.disks) <= MOST_DISKS:
            raise ValueError(f"there are {len(self.disks)} disks; draw one to {MOST_DISKS}.")
        for x, y, size in self.disks:
            check_range("a disk's place", x, 0, 1)
            check_range("a disk's place", y, 0, 1)
            check_range("a disk's size", size, 1e-4, 0.5)

    @classmethod
    def deal(cls, problem: SmoothTransport | DiscontinuousTransport, seed: int) -> Self:
        """One disk of the training data."""
        (disk,) = problem.sample_shapes(1, Generator().manual_seed(seed)).tolist()
        return cls((tuple(disk),))

    def state(
        self, problem: SmoothTransport | DiscontinuousTransport, grid: Grid, frame: Frame
    ) -> State:
        """The sum of the disks, here and upstream."""
        disks = torch.tensor(self.disks, dtype=torch.float64)
        return problem.states(disks, grid).sum(0, keepdim=True)


@dataclass(frozen=True)
class Bumps(Scene):
    """An airfoil by its bumps ψ, those of the lower surface first."""

    psi: tuple[float, ...] = (0.5,) * 20

    kind: ClassVar = "bumps"

    def __post_init__(self) -> None:
        for value in self.psi:
            check_range("a bump", value, 0, 1)

    @classmethod
    def deal(cls, problem: Airfoil, seed: int) -> Self:
        """A shape of the training data."""
        return cls(tuple(problem.sample_coefficients(Generator().manual_seed(seed))[0].tolist()))

    def state(self, problem: Airfoil, grid: Grid, frame: Frame) -> State:
        """The shape's characteristic function, and ψ."""
        if len(self.psi) != 2 * problem.bumps:
            raise ValueError(f"there are {len(self.psi)} bumps; give {2 * problem.bumps}.")
        psi = torch.tensor([self.psi], dtype=torch.float64)
        if crossing(perturbed(rae2822(), psi, problem.amplitudes)).any():
            raise ValueError("the two surfaces of the airfoil cross; make a bump smaller.")
        return problem.states(psi, grid)


@dataclass(frozen=True)
class Easel:
    """How a problem is drawn."""

    scene: type[Scene]
    hint: str  # what a person does, for the page
    constants: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # their range


_SOURCE = "Paint on the input, or drag a spot."

EASELS: dict[str, Easel] = {
    "poisson": Easel(Spots, _SOURCE, {"K": (1, 30), "r": (-1.0, 1.5)}),
    "wave": Easel(Spots, _SOURCE, {"K": (1, 46), "r": (-0.5, 2.0)}),
    "smooth-transport": Easel(Disks, "Drag the bump.", {}),
    "discontinuous-transport": Easel(Disks, "Drag the disk.", {"smoothing": (0.004, 0.06)}),
    "allen-cahn": Easel(PeriodicSpots, _SOURCE, {"K": (1, 46), "amplitude": (0.03, 3.0)}),
    "navier-stokes": Easel(
        Layers,
        "Drag the layers up and down.",
        {"rho": (0.02, 0.4), "centre": (0.2, 0.8), "offset": (0.05, 0.45), "delta": (0.002, 0.12)},
    ),
    "darcy": Easel(
        Materials, "Paint with one of two materials.", {"length": (0.06, 1.0), "high": (3.5, 60.0)}
    ),
    "airfoil": Easel(Bumps, "Drag the knobs above and below the airfoil.", {"bumps": (3, 20)}),
    "vorticity": Easel(Spots, _SOURCE, {"tau": (2.0, 25.0), "scale": (50.0, 6000.0)}),
}
UNKNOWN = Easel(Spots, _SOURCE)  # of every other problem, and of data without a solver


def check_range(what: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside [low, high], or none at all."""
    if not low <= value <= high:  # nor where it is NaN
        raise ValueError(f"{what} is {value:g}; give a number from {low:g} to {high:g}.")
