import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from torchcno.problems.airfoil import FreeStream, c_mesh, rae2822
from torchcno.problems.airfoil.euler import GAMMA, AirfoilBoundary, muscl, residual, roe_flux
from torchcno.problems.airfoil.mesh import Faces, Metrics
from torchcno.problems.airfoil.steady import Level, cycle


def euler_flux(q: Tensor, normal: Tensor) -> Tensor:
    rho, u, v, p = q.unbind(1)
    nx, ny = normal.unbind(1)
    mass = rho * (u * nx + v * ny)
    energy = p / (GAMMA - 1) + 0.5 * rho * (u * u + v * v)
    return torch.stack(
        [mass, mass * u + p * nx, mass * v + p * ny, (energy + p) * mass / rho], dim=1
    )


def random_states(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = torch.rand(1, 4, 1, n, generator=generator, dtype=torch.float64)
    q[:, 1:3] -= 0.5
    q[:, [0, 3]] += 0.5
    return q


@dataclass(frozen=True)
class Surrounded:
    """Ghost cells that hold a given state, on a mesh without walls."""

    exact: Tensor  # (batch, 4, j + 4, i + 4)

    def extend(self, q: Tensor) -> tuple[Tensor, Tensor]:
        padded = self.exact.clone()
        padded[..., 2:-2, 2:-2] = q
        return padded[:, :, 2:-2], padded[..., 2:-2]

    def wall(self, q: Tensor) -> None:
        return None


def test_a_uniform_flow_is_preserved_to_rounding_on_a_curved_mesh():
    mesh = c_mesh(rae2822())
    uniform = FreeStream().state()[None, :, None, None]
    everywhere = Surrounded(uniform.expand(1, 4, 46, 246))
    made = residual(uniform.expand(1, 4, 42, 242), mesh, everywhere)
    assert (made.abs().amax(1) / mesh.j_faces.lengths[:, :-1]).max() < 1e-13


def test_roe_flux_of_equal_states_is_the_flux():
    q, normal = random_states(50), random_states(50, seed=1)[:, 1:3]
    torch.testing.assert_close(roe_flux(q, q, Faces(normal)), euler_flux(q, normal))


def test_what_leaves_one_cell_enters_the_next():
    left, right, normal = random_states(50), random_states(50, seed=1), random_states(50, 2)[:, 1:3]
    there, back = roe_flux(left, right, Faces(normal)), roe_flux(right, left, Faces(-normal))
    torch.testing.assert_close(there, -back)


def test_supersonic_flow_is_taken_from_upwind():
    left, right = random_states(20), random_states(20, seed=1)
    left[:, 1] += 4
    right[:, 1] += 4
    normal = torch.zeros(1, 2, 1, 20, dtype=torch.float64)
    normal[:, 0] = 1
    torch.testing.assert_close(roe_flux(left, right, Faces(normal)), euler_flux(left, normal))


def test_reconstruction_is_exact_for_linear_states():
    x = torch.arange(12, dtype=torch.float64)
    slopes = torch.tensor([0.1, -0.2, 0.3, 5.0], dtype=torch.float64)
    q = (3 + slopes[:, None] * x)[None, :, None]
    middles = (3 + slopes[:, None] * (x[1:-2] + 0.5))[None, :, None]
    for side in muscl(q, 3):
        torch.testing.assert_close(side, middles)


def annulus(n: int, ghosts: int = 0) -> Metrics:
    """The quarter of an annulus 1 ≤ r ≤ 1.5, n × 2n cells that are not evenly spaced."""
    j = torch.arange(-ghosts, n + ghosts + 1, dtype=torch.float64) / n
    i = torch.arange(-ghosts, 2 * n + ghosts + 1, dtype=torch.float64) / (2 * n)
    r, angle = torch.meshgrid(
        1 + 0.5 * (j + 0.05 * torch.sin(3 * j)), i + 0.04 * i**2, indexing="ij"
    )
    angle = 0.5 * torch.pi * (1 - angle)
    return Metrics(torch.stack([r * angle.cos(), r * angle.sin()])[None])


def free_vortex(points: Tensor, mach: float = 0.6) -> Tensor:
    """The isentropic potential vortex |v| = M/r, clockwise, with ρ = p = a²/γ = 1 at r = 1."""
    x, y = points.unbind(1)
    r2 = x * x + y * y
    speed = mach * math.sqrt(GAMMA)
    ratio = 1 + 0.5 * (GAMMA - 1) * mach**2 * (1 - 1 / r2)
    rho = ratio ** (1 / (GAMMA - 1))
    return torch.stack([rho, speed * y / r2, -speed * x / r2, rho * ratio], dim=1)


def test_the_steady_vortex_is_second_order():
    errors = []
    for n in (8, 16, 32):
        mesh = annulus(n)
        level = Level(mesh, Surrounded(free_vortex(annulus(n, ghosts=2).centres)))
        exact = free_vortex(mesh.centres)
        q = exact + 0.05 * random_states(2 * n)  # from afar: the steady state is found, not kept
        for k in range(12 * n):
            q = cycle(q, level, cfl=min(8.0, 1.0 + k), coarse_steps=1)
        left = residual(q, mesh, level.boundary).abs().max()
        assert left < 1e-5
        error = (q - exact)[:, 0].abs()
        errors.append(((error * mesh.areas).sum() / mesh.areas.sum()).item())
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 1.8


def test_the_vortex_of_the_far_field_has_the_circulation_of_the_lift():
    """∮ v · ds = ½ C_L |v^∞| (Kutta and Joukowski), with entropy and total enthalpy unchanged."""
    stream, lift = FreeStream(), torch.tensor([0.9], dtype=torch.float64)
    theta = torch.arange(2000, dtype=torch.float64) * 2 * torch.pi / 2000
    ring = torch.stack([0.25 + 7 * theta.cos(), 7 * theta.sin()])[None]
    rho, u, v, p = stream.with_vortex(ring, lift)[0]
    clockwise = ((u * theta.sin() - v * theta.cos()) * 7).mean() * 2 * torch.pi
    assert clockwise.item() == pytest.approx(0.5 * 0.9 * stream.speed, rel=1e-9)
    assert torch.allclose(p / rho**GAMMA, torch.ones(2000).double())
    enthalpy = GAMMA / (GAMMA - 1) * p / rho + 0.5 * (u * u + v * v)
    assert torch.allclose(enthalpy, enthalpy.mean().expand(2000))


def test_uniform_pressure_makes_no_force(small):
    mesh = c_mesh(rae2822(), small)
    q = FreeStream().state()[None, :, None, None].expand(1, 4, 12, 48)
    lift, drag = AirfoilBoundary(mesh, small.wake, FreeStream()).forces(q)
    assert abs(lift.item()) + abs(drag.item()) < 1e-13


def test_flow_passes_the_cut_as_if_it_were_not_there(small):
    """What leaves a cell through the cut enters the cell on the other side."""
    mesh = c_mesh(rae2822(), small)
    boundary = AirfoilBoundary(mesh, small.wake, FreeStream())
    generator = torch.Generator().manual_seed(0)
    q = FreeStream().state()[None, :, None, None] + 0.05 * torch.rand(
        1, 4, 12, 48, generator=generator, dtype=torch.float64
    )
    flux = roe_flux(*muscl(boundary.extend(q)[1], 2), mesh.j_faces)[:, :, 0]
    behind = flux[..., : small.wake]
    torch.testing.assert_close(behind, -flux.flip(-1)[..., : small.wake])


def test_bad_streams_are_refused():
    for mach in (0.0, 1.2):
        with pytest.raises(ValueError, match=f"mach is {mach}; use"):
            FreeStream(mach=mach)
    with pytest.raises(ValueError, match=r"pressure is 0\.0; use more than 0"):
        FreeStream(pressure=0.0)
