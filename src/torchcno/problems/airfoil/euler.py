"""The compressible Euler equations on curvilinear structured meshes, by finite volumes.

    ∂_t U + div F(U) = 0,   U = (ρ, ρv, E),   F = (ρv, ρv ⊗ v + p I, (E + p) v),
    E = ½ρ|v|² + p / (γ − 1)

Everything is batched: states are primitive, q = (ρ, u, v, p), of shape (batch, 4, j, i).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.problems.airfoil.mesh import Faces, Metrics
from torchcno.selection import Options, option

State = Float[Tensor, "batch 4 j i"]
Padded = tuple[Float[Tensor, "batch 4 j padded_i"], Float[Tensor, "batch 4 padded_j i"]]
Sides = tuple[Float[Tensor, "batch 4 face_j face_i"], Float[Tensor, "batch 4 face_j face_i"]]

GAMMA = 1.4  # γ, air

# κ = 1/3 makes the MUSCL reconstruction third order on a smooth one-dimensional flow.
_KAPPA = 1 / 3
# ε: differences whose square is below it are not limited, where ρ = p = 1 far away. Smooth flow
# keeps its accuracy (spurious drag falls by a third from 1e-5) and the limiter does not switch on
# noise, while shocks are far above.
_LIMITER_FLOOR = 1e-3
# The wave speeds of Roe's flux are kept from vanishing below this share of the speed of sound.
_ENTROPY_FIX = 0.1


@dataclass(frozen=True)
class FreeStream(Options):
    """The flow far away: ρ = p = T = 1 in the paper's units, Mach number M and incidence α."""

    mach: float = option(0.729, "Mach number far away (M^∞), subsonic", above=0, below=1)
    incidence: float = option(2.31, "angle of incidence in degrees (α)")
    density: float = option(1.0, "density far away (ρ^∞)", above=0)
    pressure: float = option(1.0, "pressure far away (p^∞)", above=0)
    vortex: float = option(1.0, "strength of the vortex in the far field over that of the lift")

    @property
    def speed(self) -> float:
        """|v| = M √(γp/ρ)."""
        return self.mach * math.sqrt(GAMMA * self.pressure / self.density)

    @property
    def direction(self) -> tuple[float, float]:
        """The unit vector of the velocity."""
        alpha = math.radians(self.incidence)
        return math.cos(alpha), math.sin(alpha)

    @property
    def dynamic_pressure(self) -> float:
        """½ρ|v|², by which forces are made coefficients."""
        return 0.5 * self.density * self.speed**2

    def state(self) -> Float[Tensor, " 4"]:
        """(ρ, u, v, p)."""
        c, s = self.direction
        return torch.tensor(
            [self.density, self.speed * c, self.speed * s, self.pressure], dtype=torch.float64
        )

    def units(self) -> Float[Tensor, " 4"]:
        """What (ρ, u, v, p) of a flow with ρ = p = 1 far away is multiplied by: ρ, √(p/ρ), p."""
        speed = math.sqrt(self.pressure / self.density)
        return torch.tensor([self.density, speed, speed, self.pressure], dtype=torch.float64)

    def with_vortex(
        self, points: Float[Tensor, "batch 2 point"], lift: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch 4 point"]:
        """The free stream with the compressible point vortex of the lift at the quarter chord:

            v = v^∞ + F (sin θ, −cos θ),   F = C_L |v^∞| √(1 − M²) / (4πr (1 − M² sin²(θ − α)))

        density and pressure by constant entropy and total enthalpy (Thomas and Salas, 1986).
        """
        x, y = points[:, 0] - 0.25, points[:, 1]
        c, s = self.direction
        r2 = x * x + y * y
        across = (y * c - x * s) ** 2  # r² sin²(θ − α)
        # F / r, the r of the unit vector included: the angles need no trigonometry.
        strength = self.vortex * self.speed * math.sqrt(1 - self.mach**2) / (4 * math.pi)
        f = lift[:, None] * strength / (r2 - self.mach**2 * across)
        u, v = self.speed * c + f * y, self.speed * s - f * x
        sound2 = GAMMA * self.pressure / self.density
        ratio = 1 + 0.5 * (GAMMA - 1) * (self.speed**2 - u * u - v * v) / sound2
        density = self.density * ratio ** (1 / (GAMMA - 1))
        return torch.stack([density, u, v, self.pressure * ratio * density / self.density], dim=1)


@runtime_checkable
class Boundary(Protocol):
    """What surrounds a mesh."""

    def extend(self, q: State) -> Padded:
        """`q` with two ghost cells on either end of i, and with two on either end of j."""
        ...

    def wall(self, q: State) -> tuple[slice, Float[Tensor, "batch wall"]] | None:
        """Which of the faces j = 0 are a solid wall, and the pressure on them."""
        ...


def muscl(padded: State, dim: int) -> Sides:
    """The states left and right of each face along `dim`, from cells with two ghosts at either end.

        q_L = q_i + s/4 [(1 − κs) Δ₋ + (1 + κs) Δ₊],   s = (2 Δ₋Δ₊ + ε) / (Δ₋² + Δ₊² + ε)

    van Albada's limiter in Anderson, Thomas and van Leer's form: smooth, so that the steady state
    is reached.
    """
    n = padded.shape[dim]
    delta = padded.narrow(dim, 1, n - 1) - padded.narrow(dim, 0, n - 1)
    back, ahead = delta.narrow(dim, 0, n - 2), delta.narrow(dim, 1, n - 2)
    squares = delta * delta
    total = (squares.narrow(dim, 0, n - 2) + squares.narrow(dim, 1, n - 2)).add_(_LIMITER_FLOOR)
    limiter = (2 * back * ahead).add_(_LIMITER_FLOOR).div_(total)
    # With m = s (Δ₋ + Δ₊) / 4 and d = κ s² (Δ₊ − Δ₋) / 4 the two states are q + m + d and q − m +
    # d.
    mean = (back + ahead).mul_(limiter).mul_(0.25)
    bend = (ahead - back).mul_(limiter).mul_(limiter).mul_(0.25 * _KAPPA)
    centre = padded.narrow(dim, 1, n - 2) + bend
    return (
        (centre + mean).narrow(dim, 0, n - 3),
        (centre - mean).narrow(dim, 1, n - 3),
    )


def roe_flux(left: State, right: State, faces: Faces) -> State:
    """Roe's flux through `faces` between the states on either side, per face:

        ½ (F_L + F_R) · S − ½ |S| (|λ| ΔU + A (1, û, v̂, Ĥ) + B (0, n, V̂))

    with Roe averages (hats), V = v · n, and, of |λ|, |λ₊|, |λ₋| the speeds of V̂, V̂ ± â,

        A = (s Δp + d ρ̂â ΔV) / â²,      B = s ρ̂ ΔV + d Δp / â,
        s = ½(|λ₊| + |λ₋|) − |λ|,      d = ½(|λ₊| − |λ₋|)
    """
    nx, ny = faces.normals.unbind(1)
    rho_l, u_l, v_l, p_l = left.unbind(1)
    rho_r, u_r, v_r, p_r = right.unbind(1)
    normal_l, normal_r = u_l * nx + v_l * ny, u_r * nx + v_r * ny
    e_l = p_l / (GAMMA - 1) + 0.5 * rho_l * (u_l * u_l + v_l * v_l)
    e_r = p_r / (GAMMA - 1) + 0.5 * rho_r * (u_r * u_r + v_r * v_r)

    root = (rho_r / rho_l).sqrt()
    weight = root / (1 + root)
    rho = rho_l * root
    u, v = torch.lerp(u_l, u_r, weight), torch.lerp(v_l, v_r, weight)
    enthalpy = torch.lerp((e_l + p_l) / rho_l, (e_r + p_r) / rho_r, weight)
    sound2 = (GAMMA - 1) * (enthalpy - 0.5 * (u * u + v * v))
    sound = sound2.sqrt()
    normal = u * nx + v * ny

    floor = _ENTROPY_FIX * sound
    slow, fast, back = (
        _away_from_zero(speed, floor) for speed in (normal, normal + sound, normal - sound)
    )
    s, d = 0.5 * (fast + back) - slow, 0.5 * (fast - back)
    jump_p, jump_v = p_r - p_l, normal_r - normal_l
    a = (s * jump_p + d * rho * sound * jump_v) / sound2
    b = s * rho * jump_v + d * jump_p / sound

    mass_l, mass_r = rho_l * normal_l, rho_r * normal_r
    pressure = p_l + p_r - b
    flux = torch.stack(
        [
            mass_l + mass_r - slow * (rho_r - rho_l) - a,
            mass_l * u_l
            + mass_r * u_r
            - slow * (rho_r * u_r - rho_l * u_l)
            - a * u
            + pressure * nx,
            mass_l * v_l
            + mass_r * v_r
            - slow * (rho_r * v_r - rho_l * v_l)
            - a * v
            + pressure * ny,
            (e_l + p_l) * normal_l
            + (e_r + p_r) * normal_r
            - slow * (e_r - e_l)
            - a * enthalpy
            - b * normal,
        ],
        dim=1,
    )
    return flux.mul_(0.5 * faces.lengths[:, None])


def _away_from_zero(speed: Tensor, floor: Tensor) -> Tensor:
    """|speed|, rounded off to a parabola where it is below `floor` (Harten)."""
    magnitude = speed.abs()
    return torch.where(magnitude < floor, 0.5 * (magnitude * magnitude / floor + floor), magnitude)


def residual(q: State, mesh: Metrics, boundary: Boundary) -> State:
    """What flows out of each cell: ∮ F · n ds, zero in the steady state."""
    along_i, along_j = boundary.extend(q)
    flux_i = roe_flux(*muscl(along_i, 3), mesh.i_faces)
    flux_j = roe_flux(*muscl(along_j, 2), mesh.j_faces)
    wall = boundary.wall(q)
    if wall is not None:
        where, pressure = wall
        push = pressure[:, None] * mesh.j_faces.vectors[:, :, 0, where]
        nothing = torch.zeros_like(pressure)[:, None]
        flux_j[:, :, 0, where] = torch.cat([nothing, push, nothing], dim=1)
    return flux_i[..., 1:] - flux_i[..., :-1] + flux_j[:, :, 1:] - flux_j[:, :, :-1]


@dataclass(frozen=True)
class AirfoilBoundary:
    """The boundary of a C-mesh: solid wall, cut, and a far field with the vortex of the lift.

    Wall faces carry pressure only, extrapolated from the two nearest cells. Ghosts across the cut
    are the cells on its other side. Ghosts beyond the outer boundary are the free stream with
    vortex: Roe's flux between them and the flow is the characteristic condition.
    """

    mesh: Metrics
    wake: int  # faces on either side of the cut
    stream: FreeStream

    @cached_property
    def _outer(self) -> Float[Tensor, "batch 2 face"]:
        """The middles of the outer faces: at the first i, at the last i, at the last j."""
        p = self.mesh.nodes
        edges = (p[..., 0], p[..., -1], p[..., -1, :])
        return torch.cat([0.5 * (edge[..., 1:] + edge[..., :-1]) for edge in edges], dim=2)

    @property
    def _wall(self) -> slice:
        return slice(self.wake, self.mesh.areas.shape[2] - self.wake)

    def wall(self, q: State) -> tuple[slice, Float[Tensor, "batch wall"]]:
        """The faces between the two sides of the cut, and the pressure on them."""
        p, area = q[:, 3, :2, self._wall], self.mesh.areas[:, :2, self._wall]
        return self._wall, p[:, 0] + (p[:, 0] - p[:, 1]) * area[:, 0] / (area[:, 0] + area[:, 1])

    def forces(self, q: State) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Coefficients of lift and drag: pressure on the wall, across and along the stream."""
        where, pressure = self.wall(q)
        # The face vectors point out of the wall into the flow, the force the other way.
        fx, fy = (-(pressure[:, None] * self.mesh.j_faces.vectors[:, :, 0, where]).sum(-1)).unbind(
            1
        )
        c, s = self.stream.direction
        scale = 1 / self.stream.dynamic_pressure
        return (fy * c - fx * s) * scale, (fx * c + fy * s) * scale

    def extend(self, q: State) -> Padded:
        """See `Boundary.extend`."""
        rows, columns = q.shape[2:]
        outer = self.stream.with_vortex(self._outer, self.forces(q)[0])
        first, last, top = outer.split([rows, rows, columns], dim=2)
        first, last = (g[..., None].expand(-1, -1, -1, 2) for g in (first, last))
        across = q[:, :, :2].flip(-1)  # what lies on the other side of the cut
        nearest, second = q[:, :, 0, self._wall], q[:, :, 1, self._wall]
        beneath = torch.stack([2 * nearest - second, 3 * nearest - 2 * second], dim=2)
        ghosts = torch.cat(
            [across[..., : self.wake], beneath, across[..., columns - self.wake :]], dim=3
        )
        above = top[:, :, None].expand(-1, -1, 2, -1)
        return torch.cat([first, q, last], dim=3), torch.cat([ghosts.flip(2), q, above], dim=2)
