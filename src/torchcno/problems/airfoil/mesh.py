"""A structured C-mesh around an airfoil, by a conformal map and a shear."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcno.problems.airfoil.geometry import Shape, Surface, crossing
from torchcno.selection import check_options, option

_MOST_GAP = 1e-6  # between the surfaces at an end, in chords


@dataclass(frozen=True)
class MeshConfig:
    """How many cells, and where they lie. The defaults make the paper's 243 × 43 nodes."""

    around: int = option(242, "cells from one end of the wake round the nose to the other")
    wake: int = option(40, "cells of these on either side of the cut behind the trailing edge")
    outward: int = option(42, "cells from the wall to the far field")
    far_field: float = option(
        20.0, "least distance of the outer boundary from the airfoil, in chords", least=2
    )
    focus: float = option(
        0.004, "x of the singular point: half the nose radius behind the nose", above=0, below=1
    )
    nose: float = option(0.7, "spacing at the nose over that of points even in √x", above=0)
    trailing_edge: float = option(0.15, "the same spacing at the trailing edge", above=0)
    wall: float = option(0.17, "growth of η with the index j / outward at the wall", above=0)

    def __post_init__(self) -> None:
        check_options(self)
        if self.around % 2 or self.around - 2 * self.wake < 8 or self.wake < 2 or self.outward < 4:
            raise ValueError(
                f"{self.around} cells around, {self.wake} of them a side of the wake, and "
                f"{self.outward} outward make no C-mesh; give an even number around, at least 8 of "
                "them on the airfoil and 2 a side of the wake, and at least 4 outward."
            )
        if max(self.nose, self.trailing_edge) > 1:
            raise ValueError(
                f"spacings {self.nose} at the nose and {self.trailing_edge} at the trailing edge "
                "must not exceed 1."
            )

    def refined(self, factor: int) -> "MeshConfig":
        """`factor` times as many cells each way; a mesh's nodes are among the refined one's."""
        return replace(
            self,
            around=self.around * factor,
            wake=self.wake * factor,
            outward=self.outward * factor,
        )


@dataclass(frozen=True)
class Faces:
    """Faces of one family: their lengths times their normals, which point to larger i or j."""

    vectors: Float[Tensor, "batch 2 j i"]

    @cached_property
    def lengths(self) -> Float[Tensor, "batch j i"]:
        """The length of each face."""
        return (self.vectors**2).sum(1).sqrt()

    @cached_property
    def normals(self) -> Float[Tensor, "batch 2 j i"]:
        """The unit normal of each face."""
        return self.vectors / self.lengths[:, None]


@dataclass(frozen=True)
class Metrics:
    """Areas and faces of a structured mesh of quadrilaterals, from its nodes.

    Cells are (j, i). The four face vectors of a cell sum to zero, so that a uniform flow is
    preserved.
    """

    nodes: Float[Tensor, "batch 2 node_j node_i"]  # x, y

    @cached_property
    def i_faces(self) -> Faces:
        """The faces across lines of constant i: (j, i + 1) of them."""
        dx, dy = (self.nodes[:, :, 1:] - self.nodes[:, :, :-1]).unbind(1)
        return Faces(torch.stack([dy, -dx], dim=1))

    @cached_property
    def j_faces(self) -> Faces:
        """The faces across lines of constant j: (j + 1, i) of them."""
        dx, dy = (self.nodes[..., 1:] - self.nodes[..., :-1]).unbind(1)
        return Faces(torch.stack([-dy, dx], dim=1))

    @cached_property
    def i_middles(self) -> Faces:
        """What a cell's two i-faces are on average: one a cell."""
        return Faces(0.5 * (self.i_faces.vectors[..., 1:] + self.i_faces.vectors[..., :-1]))

    @cached_property
    def j_middles(self) -> Faces:
        """What a cell's two j-faces are on average: one a cell."""
        return Faces(0.5 * (self.j_faces.vectors[:, :, 1:] + self.j_faces.vectors[:, :, :-1]))

    @cached_property
    def areas(self) -> Float[Tensor, "batch j i"]:
        """Half the cross product of a cell's diagonals; negative where it is turned over."""
        p = self.nodes
        a, b = p[..., 1:, 1:] - p[..., :-1, :-1], p[..., 1:, :-1] - p[..., :-1, 1:]
        return 0.5 * (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])

    @property
    def centres(self) -> Float[Tensor, "batch 2 j i"]:
        """The mean of each cell's corners."""
        p = self.nodes
        return 0.25 * (p[..., 1:, 1:] + p[..., 1:, :-1] + p[..., :-1, 1:] + p[..., :-1, :-1])


@dataclass(frozen=True)
class CMesh(Metrics):
    """A C-mesh in the parabolic plane ζ = ξ + iη = √(z − z₀), z₀ inside the nose (Jameson's map).

        x − x₀ = ξ² − η²,   y = 2ξη

    unfolds the airfoil and the cut behind it to a shallow hump η = S(ξ) over the real axis. Index i
    runs along lines of growing ξ: below the cut, along the lower surface to the nose, back along
    the upper one, above the cut. Index j runs along lines of constant ξ from the hump (j = 0) to
    the parabola η = H:

        η_ij = S(ξ_i) (1 − t_j)² + H t_j,   t_j = (e^{σj/J} − 1) / (e^σ − 1)

    A node and its mirror image under ξ → −ξ lie at the same point of the cut. At a nose that is
    exactly a parabola with focus z₀, ξ = √x on the wall: the wall nodes are fixed in √x, without
    any iteration.
    """

    xi: Float[Tensor, "batch node_i"]
    hump: Float[Tensor, "batch node_i"]  # S(ξ_i)
    levels: Float[Tensor, " node_j"]  # t_j
    crossed: Bool[Tensor, " batch"]  # whether the surfaces of the shape cross
    config: MeshConfig

    @property
    def height(self) -> float:
        """H: the outer parabola passes `far_field` chords in front of the airfoil."""
        return math.sqrt(self.config.far_field + self.config.focus)

    @property
    def valid(self) -> Bool[Tensor, " batch"]:
        """Which meshes can be computed on: of no crossing surfaces, and of no negative cell."""
        return ~self.crossed & (self.areas.amin((1, 2)) > 0)

    def indices(
        self, x: Float[Tensor, " point"], y: Float[Tensor, " point"]
    ) -> tuple[Float[Tensor, "batch point"], Float[Tensor, "batch point"]]:
        """Where points lie in the mesh: real node indices (i, j), by the map's inverse.

        j = 0 is the wall or the cut; points inside the airfoil get the wall's index.
        """
        # Of the two roots the one farther above the hump is in the flow: the sign of y alone does
        # not tell, for a cambered lower surface can rise above y = 0.
        root = torch.complex(x - self.config.focus, y).sqrt()
        i, hump, excess = self._above_hump(root)
        mirrored = self._above_hump(-root)
        other = mirrored[2] > excess
        i, hump, excess = (
            torch.where(other, *pair) for pair in zip(mirrored, (i, hump, excess), strict=True)
        )
        # η = S (1 − t)² + H t is a quadratic for t; written so that S = 0 is no special case.
        slope = self.height - 2 * hump
        t = 2 * excess / (slope + (slope**2 + 4 * hump * excess).clamp(min=0).sqrt())
        levels = self.levels.expand(len(t), -1).contiguous()
        return i, _fractional_index(levels, t.clamp(0, 1).contiguous())

    def _above_hump(self, zeta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of points of the parabolic plane: the real index i, the hump S(ξ), and η − S(ξ)."""
        i = _fractional_index(self.xi, zeta.real.expand(len(self.xi), -1).contiguous())
        left = i.floor().long().clamp(max=self.xi.shape[1] - 2)
        low, high = self.hump.gather(1, left), self.hump.gather(1, left + 1)
        hump = low + (i - left) * (high - low)
        return i, hump, zeta.imag - hump


def _fractional_index(knots: Tensor, values: Tensor) -> Tensor:
    """The real index at which ascending `knots` (batch, n) reach `values` (batch, m), clamped."""
    left = (torch.searchsorted(knots, values) - 1).clamp(0, knots.shape[1] - 2)
    low, high = knots.gather(1, left), knots.gather(1, left + 1)
    return left + ((values - low) / (high - low)).clamp(0, 1)


def _exponential(n: int, length: float, slope: float) -> Tensor:
    """n + 1 points from 0 to `length`, growing exponentially from the derivative `slope` on [0, 1].

    f(t) = length (e^{σt} − 1) / (e^σ − 1),   f'(0) = slope
    """
    if slope >= length:
        raise ValueError(
            f"a first spacing of {slope / n:.3g} does not fit {n} cells on {length:.3g}; use a "
            "larger far field or more cells."
        )
    from scipy.optimize import brentq  # takes a second, which only airfoils need

    sigma = brentq(lambda s: length * s / math.expm1(s) - slope, 1e-9, 60.0)
    t = torch.linspace(0, 1, n + 1, dtype=torch.float64)
    return length * torch.expm1(sigma * t) / math.expm1(sigma)


def _wall_positions(n: int, config: MeshConfig) -> Tensor:
    """√x of the n + 1 nodes of a surface: odd about the nose, so that the spacing is smooth there.

    s(k) = k + β sin(πk) / π − δ sin(2πk) / 2π,   s'(0) = nose,   s'(1) = trailing_edge
    """
    k = torch.linspace(0, 1, n + 1, dtype=torch.float64)
    beta = 0.5 * (config.nose - config.trailing_edge)
    delta = 1 - 0.5 * (config.nose + config.trailing_edge)
    s = (
        k
        + beta * (torch.pi * k).sin() / torch.pi
        - delta * (2 * torch.pi * k).sin() / (2 * torch.pi)
    )
    s[-1] = 1.0  # not but for rounding
    return s


def _check_closed(lower: Surface, upper: Surface) -> None:
    """Refuse shapes with a gap at an end: a flow through it settles, but with a drag of its own."""
    for end, where in ((0, "nose"), (-1, "trailing edge")):
        gaps = (upper - lower)[:, end].abs()
        if (gaps > _MOST_GAP).any():
            raise ValueError(
                f"the surfaces are {gaps.max().item():.3g} apart at the {where}; close them, a "
                "trailing edge by taking x/2 times the gap from the upper one and adding it to the "
                "lower one."
            )


def c_mesh(
    shape: Shape, config: MeshConfig | None = None, device: torch.device | str = "cpu"
) -> CMesh:
    """The C-meshes of a batch of shapes, in float64; shapes that are open at an end are refused."""
    config = config or MeshConfig()
    half = config.around // 2 - config.wake  # cells on one surface
    wall_x = (_wall_positions(half, config) ** 2).to(device)

    last = math.sqrt(1 - config.focus)  # ξ of the trailing edge
    end = math.sqrt(1 + config.far_field - config.focus)
    # The wake goes on with the spacing in which the airfoil ends.
    slope = last * config.trailing_edge / half * config.wake
    wake = (last + _exponential(config.wake, end - last, slope)[1:]).to(device)

    lower, upper = shape.surfaces(wall_x)
    _check_closed(lower, upper)
    distance = (wall_x - config.focus).expand_as(lower)
    above = torch.complex(distance, upper).sqrt()
    below = -torch.complex(distance, lower).sqrt()[:, 1:].flip(1)  # the nose is in `above`
    cut = wake.expand(len(lower), -1)
    xi = torch.cat([-cut.flip(1), below.real, above.real, cut], dim=1)
    zeros = torch.zeros_like(cut)
    hump = torch.cat([zeros, below.imag, above.imag, zeros], dim=1)

    height = math.sqrt(config.far_field + config.focus)
    t = (_exponential(config.outward, height, config.wall) / height).to(device)
    eta = hump[:, None] * (1 - t[:, None]) ** 2 + height * t[:, None]
    x = config.focus + xi[:, None] ** 2 - eta**2
    y = 2 * xi[:, None] * eta
    return CMesh(torch.stack([x, y], dim=1), xi, hump, t, crossing(shape, device), config)


@dataclass(frozen=True)
class MeshQuality:
    """Figures of merit, the worst cell of each mesh of a batch."""

    least_area: Float[Tensor, " batch"]  # of a cell; ≤ 0: turned over
    most_skew: Float[Tensor, " batch"]  # |cos| of the angle between a cell's sides: 0 is orthogonal
    most_growth: Float[Tensor, " batch"]  # ratio of the areas of neighbouring cells
    closed: Float[Tensor, " batch"]  # largest gap between the two sides of the cut


def mesh_quality(mesh: CMesh) -> MeshQuality:
    """Quality figures a mesh; `least_area` > 0 says that there is no negative cell."""
    p, areas = mesh.nodes, mesh.areas
    along, outward = p[..., :-1, 1:] - p[..., :-1, :-1], p[..., 1:, :-1] - p[..., :-1, :-1]
    cosine = (along * outward).sum(1) / (along.norm(dim=1) * outward.norm(dim=1))
    growth = torch.maximum(
        (areas[..., 1:] / areas[..., :-1]).log().abs().amax((1, 2)),
        (areas[:, 1:] / areas[:, :-1]).log().abs().amax((1, 2)),
    ).exp()
    cut = p[..., 0, : mesh.config.wake + 1]
    gap = (cut - p[..., 0, :].flip(-1)[..., : mesh.config.wake + 1]).abs()
    return MeshQuality(areas.amin((1, 2)), cosine.abs().amax((1, 2)), growth, gap.amax((1, 2)))
