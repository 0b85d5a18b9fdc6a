"""Marching the Euler equations to a steady state: implicit steps inside a multigrid cycle.

Time is only a means here, so each cell takes its own step, and the implicit operator need only be
good enough to be stable. A step solves

    (I + Δt/V ∂_j A_j) (I + Δt/V ∂_i A_i) Δq = −Δt/V R(q)

where each factor is diagonalised to four scalar upwind equations along its lines (Pulliam and
Chaussee, 1981; Caughey, 1987), and coarser meshes speed the long waves (FAS; Brandt, Jameson).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcno.problems.airfoil.euler import (
    GAMMA,
    AirfoilBoundary,
    Boundary,
    FreeStream,
    State,
    residual,
)
from torchcno.problems.airfoil.mesh import CMesh, Faces, Metrics
from torchcno.problems.airfoil.replay import March, Replayed
from torchcno.selection import Options, option

# Added to the implicit wave speeds, as a share of the largest: sonic and stagnation points stay
# damped.
_IMPLICIT_FLOOR = 0.05
# Samples that have ended leave the batch once they are this share of it: the rest needs its meshes,
# and on a GPU its graph, made anew, which takes as long as several cycles.
_DROPPED_SHARE = 0.25


@dataclass(frozen=True)
class SteadyConfig(Options):
    """How the steady state is sought, and when it is found."""

    cfl: float = option(5.0, "time step over the time a wave takes across a cell", above=0)
    ramp: float = option(0.5, "growth of the CFL number per cycle, from 1", least=0)
    levels: int = option(3, "meshes of the multigrid cycle", least=1)
    coarse_steps: int = option(2, "steps per visit of a coarse mesh; one on the finest", least=1)
    start_cycles: int = option(40, "cycles on each coarser mesh, for a start", least=0)
    cycles: int = option(400, "cycles after which a flow counts as unsettled", least=1)
    check_every: int = option(20, "cycles between two looks at lift and residual", least=1)
    lift_tolerance: float = option(1e-4, "change of lift from one look to the next", least=0)
    residual_fall: float = option(1e-3, "residual over that of the uniform flow", least=0)

    def cfl_at(self, cycles: int) -> float:
        """The CFL number after some cycles on a mesh."""
        return min(self.cfl, 1 + self.ramp * cycles)


@dataclass(frozen=True)
class Level:
    """A mesh with its boundary, and the coarser one made of groups of its cells."""

    mesh: Metrics
    boundary: Boundary
    groups: "Groups | None" = None  # None: the coarsest


@dataclass(frozen=True)
class Groups:
    """The cells of a mesh, grouped to those of a coarser one."""

    coarse: Level
    rows: Tensor  # the coarse row of each row
    columns: Tensor  # the coarse column of each column

    def sums(self, fields: Float[Tensor, "batch channel j i"]) -> Tensor:
        """Sums over the cells of each group."""
        n_rows, n_columns = self.coarse.mesh.areas.shape[1:]
        batch, channels, _, columns = fields.shape
        narrow = fields.new_zeros(batch, channels, n_rows, columns)
        narrow.index_add_(2, self.rows, fields)
        return fields.new_zeros(batch, channels, n_rows, n_columns).index_add_(
            3, self.columns, narrow
        )

    def spread(self, fields: Float[Tensor, "batch channel j i"]) -> Tensor:
        """The value of its group for every cell."""
        return fields.index_select(2, self.rows).index_select(3, self.columns)


def solve_tridiagonal(
    lower: Tensor, diagonal: Tensor, upper: Tensor, rhs: Tensor, dim: int
) -> Tensor:
    """x with lower_k x_{k−1} + diagonal_k x_k + upper_k x_{k+1} = rhs_k along `dim`.

    Parallel cyclic reduction: ⌈log₂ n⌉ sweeps over the whole array, each of which doubles the
    distance of the unknowns that are still coupled. lower_0 and upper_{n−1} play no part.
    """
    n = rhs.shape[dim]
    a, c, d = lower / diagonal, upper / diagonal, rhs / diagonal
    stride = 1
    while stride < n:
        m = n - stride
        a_far, c_near = a.narrow(dim, stride, m), c.narrow(dim, 0, m)
        product = a_far * c_near
        pivot = torch.ones_like(d)
        pivot.narrow(dim, stride, m).sub_(product)
        pivot.narrow(dim, 0, m).sub_(product)
        reduced = d.clone()
        reduced.narrow(dim, stride, m).addcmul_(a_far, d.narrow(dim, 0, m), value=-1)
        reduced.narrow(dim, 0, m).addcmul_(c_near, d.narrow(dim, stride, m), value=-1)
        d = reduced.div_(pivot)
        if 2 * stride < n:  # else nothing is coupled any more
            a_next, c_next = torch.zeros_like(a), torch.zeros_like(c)
            a_next.narrow(dim, stride, m).addcmul_(a_far, a.narrow(dim, 0, m), value=-1)
            c_next.narrow(dim, 0, m).addcmul_(c_near, c.narrow(dim, stride, m), value=-1)
            a, c = a_next.div_(pivot), c_next.div_(pivot)
        stride *= 2
    return d


def primitive_change(q: State, change: State) -> State:
    """The change of (ρ, u, v, p) that belongs to a small change of (ρ, ρu, ρv, E)."""
    rho, u, v, _ = q.unbind(1)
    d_rho, d_mu, d_mv, d_e = change.unbind(1)
    return torch.stack(
        [
            d_rho,
            (d_mu - u * d_rho) / rho,
            (d_mv - v * d_rho) / rho,
            (GAMMA - 1) * (d_e - u * d_mu - v * d_mv + 0.5 * (u * u + v * v) * d_rho),
        ],
        dim=1,
    )


def implicit_factor(dq: State, q: State, faces: Faces, rate: Tensor, dim: int) -> State:
    """(I + Δt/V ∂A)⁻¹ dq along `dim`, with rate = Δt/V.

    In the characteristic variables of the faces' normals, (δρ − δp/a², δv_t, δv_n ± δp/ρa), A is
    the diagonal of the wave speeds λ; upwind differences make each a tridiagonal system.
    """
    rho, u, v, p = q.unbind(1)
    nx, ny = faces.normals.unbind(1)
    sound2 = GAMMA * p / rho
    sound = sound2.sqrt()
    impedance = rho * sound
    d_rho, d_u, d_v, d_p = dq.unbind(1)
    d_n, d_s = nx * d_u + ny * d_v, d_p / impedance
    waves = torch.stack([d_rho - d_p / sound2, nx * d_v - ny * d_u, d_n + d_s, d_n - d_s], dim=1)

    flow, noise = (nx * u + ny * v) * faces.lengths, sound * faces.lengths
    speeds = torch.stack([flow, flow, flow + noise, flow - noise], dim=1)
    sizes = speeds.abs() + _IMPLICIT_FLOOR * (flow.abs() + noise)[:, None]
    rate = rate[:, None]
    onward, backward = 0.5 * (sizes + speeds), 0.5 * (sizes - speeds)
    lower = -rate * onward.roll(1, dim)  # what the roll wraps round is the part that plays no part
    upper = -rate * backward.roll(-1, dim)
    waves = solve_tridiagonal(lower, 1 + rate * sizes, upper, waves, dim)

    entropy, tangential, ahead, back = waves.unbind(1)
    d_n, d_p = 0.5 * (ahead + back), 0.5 * (ahead - back) * impedance
    return torch.stack(
        [
            entropy + d_p / sound2,
            nx * d_n - ny * tangential,
            ny * d_n + nx * tangential,
            d_p,
        ],
        dim=1,
    )


def implicit_step(
    q: State, level: Level, cfl: float | Tensor, forcing: State | None = None
) -> State:
    """One step towards R(q) + forcing = 0, every cell with its own time step."""
    imbalance = residual(q, level.mesh, level.boundary)
    if forcing is not None:
        imbalance = imbalance + forcing
    faces_i, faces_j = level.mesh.i_middles, level.mesh.j_middles
    rho, u, v, p = q.unbind(1)
    along_i, along_j = (
        (f.vectors[:, 0] * u + f.vectors[:, 1] * v).abs() for f in (faces_i, faces_j)
    )
    sound = (GAMMA * p / rho).sqrt()
    rate = cfl / (along_i + along_j + sound * (faces_i.lengths + faces_j.lengths))
    dq = primitive_change(q, imbalance.mul_(-rate[:, None]))
    dq = implicit_factor(dq, q, faces_i, rate, dim=3)
    dq = implicit_factor(dq, q, faces_j, rate, dim=2)
    return q + dq


def cycle(
    q: State, level: Level, cfl: float | Tensor, coarse_steps: int, forcing: State | None = None
) -> State:
    """A step on `level`, then the correction of its coarser meshes (full approximation scheme):

        R_c(q_c) = R_c(I q) − Σ R(q),   q ← q + Iᵀ(q_c − I q)

    with area-weighted means I and sums Σ over the cells of a group. The correction is constant in a
    group: linear interpolation overshoots at shocks, and the strongest of them then never settle.
    """
    steps = coarse_steps if forcing is not None else 1
    for _ in range(steps):
        q = implicit_step(q, level, cfl, forcing)
    if level.groups is None:
        return q
    groups, coarse = level.groups, level.groups.coarse
    imbalance = residual(q, level.mesh, level.boundary)
    if forcing is not None:
        imbalance = imbalance + forcing
    areas = level.mesh.areas[:, None]
    start = groups.sums(q * areas) / groups.sums(areas)
    defect = groups.sums(imbalance) - residual(start, coarse.mesh, coarse.boundary)
    return q + groups.spread(cycle(start, coarse, cfl, coarse_steps, defect) - start)


def paired_from_ends(n: int) -> list[int]:
    """Where to cut 0 … n for cells to go in pairs from both ends, the rest in the middle."""
    pairs = n // 4
    left = list(range(0, 2 * pairs + 1, 2))
    return sorted({*left, *(n - k for k in left)})


def airfoil_levels(nodes: Tensor, wake: int, stream: FreeStream, levels: int) -> Level:
    """A C-mesh with its boundary, and up to `levels` − 1 coarser ones with theirs."""
    mesh = Metrics(nodes)
    boundary = AirfoilBoundary(mesh, wake, stream)
    outward, around = mesh.areas.shape[1:]
    if levels <= 1 or wake < 4 or outward < 8 or around - 2 * wake < 16:
        return Level(mesh, boundary)
    cuts_j = [*range(0, outward, 2), outward]
    behind = sorted({0, *range(wake, -1, -2)})  # an odd cell out is the farthest from the airfoil
    on_wall = [wake + k for k in paired_from_ends(around - 2 * wake)]
    cuts_i = sorted({*behind, *on_wall, *(around - k for k in behind)})
    coarse = airfoil_levels(nodes[:, :, cuts_j][..., cuts_i], len(behind) - 1, stream, levels - 1)
    rows, columns = (_parents(cuts, nodes.device) for cuts in (cuts_j, cuts_i))
    return Level(mesh, boundary, Groups(coarse, rows, columns))


def _parents(cuts: list[int], device: torch.device) -> Tensor:
    """The group of each cell when cell k of a line goes to the group between the cuts around it."""
    sizes = torch.tensor(cuts, device=device).diff()
    return torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)


@dataclass(frozen=True)
class SteadyFlow:
    """Steady flows past a batch of airfoils, and how far they settled."""

    mesh: CMesh
    stream: FreeStream
    state: State
    lift: Float[Tensor, " batch"]  # C_L
    drag: Float[Tensor, " batch"]  # C_D
    residual: Float[Tensor, " batch"]  # over that of the uniform flow
    lift_drift: Float[Tensor, " batch"]  # |change of C_L| from the last look but one to the last
    cycles: Tensor  # spent, a sample
    converged: Bool[Tensor, " batch"]

    @property
    def boundary(self) -> AirfoilBoundary:
        """The boundary of the finest mesh."""
        return AirfoilBoundary(self.mesh, self.mesh.config.wake, self.stream)

    def surface_pressure(self) -> tuple[Float[Tensor, "batch wall"], Float[Tensor, "batch wall"]]:
        """x and C_p = (p − p^∞) / ½ρ|v|² on the wall, from the lower trailing edge round."""
        where, pressure = self.boundary.wall(self.state)
        x = self.mesh.nodes[:, 0, 0]
        middles = 0.5 * (x[:, 1:] + x[:, :-1])[:, where]
        return middles, (pressure - self.stream.pressure) / self.stream.dynamic_pressure

    def notes(self) -> tuple[str, ...]:
        """A line a sample on what became of it; empty where it converged."""
        return tuple(
            "" if converged else f"sample {k}: {self._complaint(k)}"
            for k, converged in enumerate(self.converged.tolist())
        )

    def _complaint(self, k: int) -> str:
        cycles = self.cycles[k].item()
        if self.mesh.crossed[k]:
            return "the surfaces cross; use a shape with y_lower < y_upper."
        if not self.mesh.valid[k]:
            return "the mesh has cells of negative area; use a smoother nose or more cells."
        if self.lift[k].isnan():
            return f"the flow ran into a vacuum within {cycles} cycles; use a smaller cfl."
        return (
            f"not settled in {cycles} cycles: lift still moves by {self.lift_drift[k].item():.1e}, "
            f"the residual fell to {self.residual[k].item():.1e}; use more cycles or a smaller cfl."
        )


@torch.no_grad()
def steady_flow(
    mesh: CMesh, stream: FreeStream | None = None, config: SteadyConfig | None = None
) -> SteadyFlow:
    """The steady flow past every airfoil of a batch of meshes, on their device.

    A sample ends once its lift changes by at most `lift_tolerance` between two looks and its
    residual has fallen by `residual_fall`: what it is then does not depend on the rest of the
    batch. Samples with a degenerate mesh, in vacuum or unsettled are flagged and do not stop the
    others.

    Flows are computed with ρ = p = 1 far away, for which the limiter's threshold is meant, and
    scaled to `stream` at the end: coefficients do not depend on units.
    """
    stream, config = stream or FreeStream(), config or SteadyConfig()
    unit = replace(stream, density=1.0, pressure=1.0)
    n, (rows, columns) = len(mesh.nodes), mesh.areas.shape[1:]
    uniform = unit.state().to(mesh.nodes)[:, None, None]
    state = uniform.expand(n, 4, rows, columns).clone()
    figures = torch.full((4, n), torch.nan, dtype=mesh.nodes.dtype, device=mesh.nodes.device)
    lift, drag, fall, drift = figures
    cycles = torch.zeros(n, dtype=torch.long, device=mesh.nodes.device)
    converged = torch.zeros(n, dtype=torch.bool, device=mesh.nodes.device)

    ended = ~mesh.valid
    held = mesh.valid.nonzero()[:, 0]  # the samples of the batch
    level = _levels(mesh, held, unit, config)
    first = _imbalance(state[held], level)
    q = started(level, uniform, config)
    march = marching(level, config)
    spent = 0
    while spent < config.cycles and not ended.all():
        going = ~ended[held]
        if going.sum() <= (1 - _DROPPED_SHARE) * len(held):
            held, q, first = held[going], q[going], first[going]
            going = going[going]
            level = _levels(mesh, held, unit, config)
            march = marching(level, config)
        for _ in range(min(config.check_every, config.cycles - spent)):
            q = march(q, config.cfl_at(spent))
            spent += 1
        active = held[going]
        before = lift[active]
        forces = AirfoilBoundary(level.mesh, mesh.config.wake, unit).forces(q)
        lift[active], drag[active] = (force[going] for force in forces)
        fall[active] = (_imbalance(q, level) / first)[going]
        drift[active] = (lift[active] - before).abs()
        state[active], cycles[active] = q[going], spent
        settled = (drift[active] <= config.lift_tolerance) & (fall[active] <= config.residual_fall)
        converged[active] = settled
        ended[active] = settled | ~fall[active].isfinite()
    state *= stream.units().to(state)[:, None, None]
    return SteadyFlow(mesh, stream, state, lift, drag, fall, drift, cycles, converged)


def started(level: Level, uniform: Float[Tensor, "4 1 1"], config: SteadyConfig) -> State:
    """A first guess on a level: the flow roughly settled on the coarser ones, coarsest first."""
    if level.groups is None:
        return uniform.expand(len(level.mesh.areas), 4, *level.mesh.areas.shape[1:])
    coarse = level.groups.coarse
    q = started(coarse, uniform, config)
    march = marching(coarse, config)
    for spent in range(config.start_cycles):
        q = march(q, config.cfl_at(spent))
    return level.groups.spread(q)


def marching(level: Level, config: SteadyConfig) -> March:
    """`cycle` on a level; on a GPU one launch each."""

    def march(q: State, cfl: float | Tensor) -> State:
        return cycle(q, level, cfl, config.coarse_steps)

    return Replayed(march) if level.mesh.nodes.is_cuda else march


def _levels(mesh: CMesh, samples: Tensor, stream: FreeStream, config: SteadyConfig) -> Level:
    return airfoil_levels(mesh.nodes[samples], mesh.config.wake, stream, config.levels)


def _imbalance(q: State, level: Level) -> Float[Tensor, " batch"]:
    """The root mean square over the cells of the mass that is made or lost."""
    return residual(q, level.mesh, level.boundary)[:, 0].square().mean((1, 2)).sqrt()
