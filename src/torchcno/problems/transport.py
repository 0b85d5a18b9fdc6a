"""Transport of smooth and of discontinuous data by a constant wind."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from scipy.ndimage import gaussian_filter
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.evolution import Evolution, check_times
from torchcno.problems.problem import Resolution
from torchcno.problems.random_fields import uniform
from torchcno.selection import option


@dataclass(frozen=True)
class _Transport(Evolution):
    """u_t + v·∇u = 0 on the plane, so that u(x, T) = f(x − vT).

    Section 3 and SM "Transport Equation". The state holds f twice: on the unit square D, which
    networks see, and on the square D − vT upstream, which the wind carries to D by the time T. The
    second is needed since f does not vanish on the edge, and makes the solution exact.
    """

    velocity: tuple[float, float] = option((0.2, 0.2), "velocity (v_x, v_y)")
    T: float = option(1.0, "final time")

    version: ClassVar = 2
    boundary: ClassVar = "zero"
    samples: ClassVar = {"train": 512, "val": 256, "test": 256, "ood": 256}
    ood: ClassVar = {"centre": (0.4, 0.6)}
    state_channels: ClassVar = 2
    input_label: ClassVar = "u(0)"
    output_label: ClassVar = "u(T)"

    @property
    def symmetries(self) -> tuple[str, ...]:  # type: ignore[override]
        """The axes can be exchanged where the wind blows along the diagonal."""
        return ("exchange",) if self.velocity[0] == self.velocity[1] else ()

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """Random initial data f: (n, [on D, on D − vT], y, x)."""
        return self.states(self.sample_shapes(n, generator), grid)

    def states(self, parameters: Float[Tensor, "n 3"], grid: Grid) -> Float[Tensor, "n 2 y x"]:
        """The states of the shapes with centres (μ_x, μ_y) and sizes `parameters`."""
        v_x, v_y = self.velocity
        y, x = grid.axis(0), grid.axis(1)
        here = self._profile(y, x, parameters)
        upstream = self._profile(y - self.T * v_y, x - self.T * v_x, parameters)
        return torch.stack([here, upstream], dim=1)

    def trajectory(self, inputs: Tensor, times: Sequence[float]) -> Tensor:
        """u on D at times 0 and T: f, and what was on D − vT. A state holds no others."""
        states = self.checked(inputs)
        check_times(times)
        held = {0.0: states[:, :1], float(self.T): states[:, 1:]}
        others = [time for time in times if time not in held]
        if others:
            raise ValueError(
                f"a state of {self.name} holds the times 0 and T = {self.T:g}, not {others}; draw "
                "others by `draw_trajectories`, or sample states with another T."
            )
        return torch.stack([held[time] for time in times], dim=1)

    def draw_trajectories(
        self,
        generators: Sequence[Generator],
        grid: Grid,
        times: Sequence[float],
        device: str | torch.device = "cpu",
    ) -> Iterator[Tensor]:
        """u on D at `times`, exactly: the shapes of `sample_inputs`, moved."""
        check_times(times)
        for generator in generators:
            shape = self.sample_shapes(1, generator)
            moved = [replace(self, T=time).states(shape, grid)[:, 1:] for time in times]
            yield torch.stack(moved, dim=1).to(device)

    def invariants(self, fields: Tensor) -> dict[str, Tensor]:
        """The mass on D, which stays while the shape does."""
        return {"mass": fields.mean((-3, -2, -1))}

    def observe(self, fields: Tensor) -> Tensor:
        """f, or u(T), on the unit square."""
        return fields[:, :1]

    @abstractmethod
    def sample_shapes(self, n: int, generator: Generator) -> Float[Tensor, "n 3"]:
        """The centre (μ_x, μ_y) and the size of n shapes."""

    @abstractmethod
    def _profile(
        self, y: Float[Tensor, " y"], x: Float[Tensor, " x"], parameters: Float[Tensor, "n 3"]
    ) -> Float[Tensor, "n y x"]:
        """The shapes at the points of a grid, between 0 and 1."""


@dataclass(frozen=True)
class SmoothTransport(_Transport):
    """Transport of a Gaussian: f ↦ u(T) of u_t + v·∇u = 0.

        f(x) = exp(−|x − μ|²/2σ),   μ ~ U(0.2, 0.4)²,   σ ~ U(0.003, 0.009)

    Section 3 and SM "Transport Equation". Of a pair, f and u(T) are each divided by their largest
    value on the grid, as in the published data. The peak lies between the points, elsewhere before
    than after the transport, so that the two are scaled by factors which differ by 0.37 % on
    average: networks can predict this only as well as they see the peak.
    """

    centre: tuple[float, float] = option((0.2, 0.4), "range of the centre's coordinates (μ)")
    variance: tuple[float, float] = option((0.003, 0.009), "range of the variance (σ)")

    name: ClassVar = "smooth-transport"
    scales: ClassVar = False  # every input has the largest value 1
    layout: ClassVar = "inclusive"

    def restrict(self, fields: Tensor, resolution: Resolution) -> Tensor:
        """`fields`, which are made on the grid of the data, each with the largest value 1."""
        return fields / fields.amax((-2, -1), keepdim=True)

    def sample_shapes(self, n: int, generator: Generator) -> Tensor:
        """Centres and sizes, each uniform."""
        return _centres_and(self.variance, self.centre, n, generator)

    def _profile(self, y: Tensor, x: Tensor, parameters: Tensor) -> Tensor:
        centre_x, centre_y, variance = parameters.T[..., None]
        along_y = torch.exp(-((y - centre_y) ** 2) / (2 * variance))
        along_x = torch.exp(-((x - centre_x) ** 2) / (2 * variance))
        return along_y[:, :, None] * along_x[:, None, :]


@dataclass(frozen=True)
class DiscontinuousTransport(_Transport):
    """Transport of a disk: f ↦ u(T) of u_t + v·∇u = 0.

        f = 1{|x − μ| ≤ R} ∗ N(0, s²),   μ ~ U(0.2, 0.4)²,   R ~ U(0.1, 0.2)

    Section 3 and SM "Transport Equation": the jump is softened by a Gaussian filter of 1.75 points
    on a grid of 128², then band-limited to 64², against aliasing and Gibbs' phenomenon. In the
    published data the 128 points include both ends of [0, 1], the filter reflects there, and every
    second point is kept as if the fields were periodic: the 64 points are 2i/127, a periodic grid
    on [0, 128/127).

    The filter is applied to samples of the disk, 0 or 1 at each point. These have stairs, others
    before and after the transport, which leave about 1 % to networks that have learnt everything
    else. `edges="exact"` softens the disk itself, which makes shape and translation exact: the
    better problem, but not the published one.
    """

    centre: tuple[float, float] = option((0.2, 0.4), "range of the centre's coordinates (μ)")
    radius: tuple[float, float] = option((0.1, 0.2), "range of the radius (R)")
    smoothing: float = option(1.75 / 127, "width of the softened edge (s): 1.75 points of 128")
    edges: str = option(
        "sampled",
        "what is softened: sampled (the disk at the points) or exact",
        choices=("sampled", "exact"),
    )

    name: ClassVar = "discontinuous-transport"
    layout: ClassVar = "periodic"
    extent: ClassVar = ((0.0, 128 / 127), (0.0, 128 / 127))

    def solver_grid(self, resolution: Resolution) -> Grid:
        """Twice the resolution: for the paper's 64², the 128² points that include both ends."""
        grid = self.grid(resolution)
        return grid.resized(*(2 * n for n in grid.shape))

    def sample_shapes(self, n: int, generator: Generator) -> Tensor:
        """Centres and sizes, each uniform."""
        return _centres_and(self.radius, self.centre, n, generator)

    def _profile(self, y: Tensor, x: Tensor, parameters: Tensor) -> Tensor:
        softened = self._samples if self.edges == "sampled" else self._disk
        return softened(y, x, parameters)

    def _samples(self, y: Tensor, x: Tensor, parameters: Tensor) -> Tensor:
        """The disk's values at the points, 0 or 1, under a filter that reflects at the ends."""
        centre_x, centre_y, radius = parameters.T[..., None, None]
        inside = torch.hypot(y[:, None] - centre_y, x - centre_x) <= radius
        width_y, width_x = (self.smoothing / float(p[1] - p[0]) for p in (y, x))
        return torch.from_numpy(gaussian_filter(inside.double().numpy(), (0, width_y, width_x)))

    def _disk(self, y: Tensor, x: Tensor, parameters: Tensor) -> Tensor:
        """The disk as chords x = R sin θ of half height R cos θ, each smoothed along both axes.

            f(x, y) = ∫_{−π/2}^{π/2} g(x − R sin θ) [Φ(y + R cos θ) − Φ(y − R cos θ)] R cos θ dθ

        with g, Φ the density and distribution of N(0, s²). The integrand is even about ±π/2 and
        2π-periodic in θ, so the midpoint rule converges faster than any power.
        """
        centre_x, centre_y, radius = parameters.T[..., None, None]
        s = self.smoothing
        # a node every half of s/R: the rule's error is about exp(−2π²·4)
        chords = max(16, math.ceil(2 * math.pi * self.radius[1] / s))
        theta = math.pi * ((torch.arange(chords, dtype=torch.float64) + 0.5) / chords - 0.5)
        half = radius * theta.cos()
        density = torch.exp(-(((x[:, None] - centre_x - radius * theta.sin()) / s) ** 2) / 2)
        weight = math.pi / chords / (s * math.sqrt(2 * math.pi)) * half
        above = torch.special.ndtr((y[:, None] - centre_y + half) / s)
        below = torch.special.ndtr((y[:, None] - centre_y - half) / s)
        return (above - below) @ (weight * density).mT


def _centres_and(
    size: tuple[float, float], centre: tuple[float, float], n: int, generator: Generator
) -> Tensor:
    centres = uniform(centre, n, 2, generator=generator)
    return torch.cat([centres, uniform(size, n, 1, generator=generator)], dim=1)
