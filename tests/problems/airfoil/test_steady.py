from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from torchcno.problems.airfoil import (
    FreeStream,
    HicksHenne,
    Naca4,
    SteadyConfig,
    c_mesh,
    perturbed,
    rae2822,
    steady,
    steady_flow,
)
from torchcno.problems.airfoil.euler import GAMMA
from torchcno.problems.airfoil.steady import (
    airfoil_levels,
    cycle,
    paired_from_ends,
    solve_tridiagonal,
)


@pytest.mark.parametrize("n", [1, 2, 7, 42])
@pytest.mark.parametrize("dim", [0, 1])
def test_tridiagonal_systems_are_solved(n, dim):
    generator = torch.Generator().manual_seed(n)
    a, b, c, d = torch.rand(4, 3, n, generator=generator, dtype=torch.float64)
    b = b + 2.5
    dense = torch.diag_embed(b) + torch.diag_embed(a[:, 1:], -1) + torch.diag_embed(c[:, :-1], 1)
    x = solve_tridiagonal(*(t if dim else t.T for t in (a, b, c, d)), dim)
    torch.testing.assert_close(x if dim else x.T, torch.linalg.solve(dense, d))


@pytest.mark.parametrize("n", range(8, 40))
def test_groups_are_symmetric_and_small(n):
    cuts = paired_from_ends(n)
    assert [n - k for k in reversed(cuts)] == cuts
    assert {b - a for a, b in pairwise(cuts)} <= {1, 2, 3}


def test_groups_conserve_and_spread_is_the_adjoint_of_sums():
    level = airfoil_levels(c_mesh(rae2822()).nodes, 40, FreeStream(), 3)
    shapes = []
    generator = torch.Generator().manual_seed(0)
    while level.groups is not None:
        groups = level.groups
        shapes.append(tuple(groups.coarse.mesh.areas.shape[1:]))
        fine = torch.rand(level.mesh.areas[:, None].shape, generator=generator).double()
        coarse = torch.rand(1, 1, *shapes[-1], generator=generator).double()
        assert torch.allclose(
            (groups.sums(fine) * coarse).sum(), (fine * groups.spread(coarse)).sum()
        )
        level = groups.coarse
    assert shapes == [(21, 121), (11, 61)]


# What a step does to one side it does to the other: symmetry needs no steady state.
BRIEF = SteadyConfig(start_cycles=5, cycles=10, check_every=5)


def test_a_symmetric_airfoil_at_zero_incidence_has_no_lift(small):
    flow = steady_flow(c_mesh(Naca4(), small), FreeStream(0.8, 0.0), BRIEF)
    assert abs(flow.lift.item()) < 1e-12
    assert flow.drag.item() > 1e-3


def test_mirrored_incidence_mirrors_the_lift(small):
    lifts = [
        steady_flow(c_mesh(Naca4(), small), FreeStream(0.5, a), BRIEF).lift.item()
        for a in (1.25, -1.25)
    ]
    assert lifts[0] == pytest.approx(-lifts[1], abs=1e-12)
    assert lifts[0] > 0.05


def test_the_units_of_the_free_stream_scale_the_flow_and_nothing_else(small):
    """Mach number and incidence make the flow: air at sea level is that of unit density."""
    mesh, air = c_mesh(rae2822(), small), FreeStream(density=1.225, pressure=101325.0)
    unit, flow = (steady_flow(mesh, stream, BRIEF) for stream in (FreeStream(), air))
    torch.testing.assert_close(flow.state, unit.state * air.units()[:, None, None])
    torch.testing.assert_close(FreeStream().state() * air.units(), air.state())
    for ours, expected in zip(
        flow.boundary.forces(flow.state), (unit.lift, unit.drag), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(flow.lift, unit.lift, rtol=1e-12, atol=0)
    torch.testing.assert_close(flow.surface_pressure(), unit.surface_pressure())


@pytest.fixture(scope="module")
def subsonic(small):
    """NACA0012 at Mach 0.5 and 1.25° on a mesh and on the one twice as fine."""
    flows = [
        steady_flow(c_mesh(Naca4(), config), FreeStream(0.5, 1.25))
        for config in (small, small.refined(2))
    ]
    assert all(flow.converged.all() for flow in flows)
    return flows


def test_total_enthalpy_is_constant_in_subsonic_flow(subsonic):
    deviations = []
    for flow in subsonic:
        rho, u, v, p = flow.state.unbind(1)
        enthalpy = GAMMA / (GAMMA - 1) * p / rho + 0.5 * (u * u + v * v)
        far = GAMMA / (GAMMA - 1) + 0.5 * flow.stream.speed**2
        deviations.append((enthalpy / far - 1).abs().mean().item())
    assert deviations[1] < 1e-3
    assert deviations[1] < 0.5 * deviations[0]


def test_spurious_drag_falls_with_refinement(subsonic):
    """Flow without shocks or friction has no drag (d'Alembert)."""
    coarse, fine = (abs(flow.drag.item()) for flow in subsonic)
    assert fine < 0.4 * coarse


def test_the_pressure_at_the_nose_is_that_of_stagnation(subsonic):
    x, cp = subsonic[1].surface_pressure()
    stagnation = ((1 + 0.2 * 0.5**2) ** 3.5 - 1) / (0.5 * GAMMA * 0.5**2)
    assert cp.max().item() == pytest.approx(stagnation, rel=0.05)
    assert x[0, cp.argmax()].item() < 0.01


def test_one_mesh_goes_on_where_three_have_settled(small):
    """The steady state of a multigrid cycle is that of a single mesh: corrections vanish there."""
    tight = SteadyConfig(residual_fall=1e-6, lift_tolerance=1e-6, cycles=600)
    flow = steady_flow(c_mesh(rae2822(), small), config=tight)
    assert flow.converged.all()
    level = airfoil_levels(flow.mesh.nodes, small.wake, flow.stream, levels=1)
    q = flow.state
    for _ in range(20):
        q = cycle(q, level, tight.cfl, tight.coarse_steps)
    torch.testing.assert_close(q, flow.state, rtol=0, atol=1e-5)


def test_a_batch_is_its_samples_one_by_one_and_a_bad_one_harms_no_other(small, monkeypatch):
    psi = torch.rand(2, 20, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    good = perturbed(rae2822(), psi)
    deep = torch.zeros(1, 10, dtype=torch.float64)
    deep[0, 4] = 0.3  # through the upper surface
    lower, upper = torch.cat([good.lower, deep]), torch.cat([good.upper, -deep])
    # So lenient that the two good ones end after different numbers of cycles.
    config = replace(BRIEF, cycles=40, check_every=1, residual_fall=0.04, lift_tolerance=0.05)

    def solve(which):
        shape = HicksHenne(rae2822(), lower[which], upper[which])
        return steady_flow(c_mesh(shape, small), config=config)

    together = solve([0, 2, 1])
    assert together.converged.tolist() == [True, False, True]
    assert together.cycles[0] != together.cycles[2]
    assert together.notes()[1].startswith("sample 1: the surfaces cross")
    for place, which in ((0, 0), (2, 1)):
        alone = solve([which])
        assert together.cycles[place] == alone.cycles[0]
        torch.testing.assert_close(together.state[place], alone.state[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(together.lift[place], alone.lift[0], rtol=0, atol=1e-12)

    monkeypatch.setattr(steady, "_DROPPED_SHARE", 2.0)  # ended samples stay till the end
    kept = solve([0, 1])
    assert kept.cycles.tolist() == together.cycles[[0, 2]].tolist()
    torch.testing.assert_close(kept.state, together.state[[0, 2]], rtol=0, atol=1e-12)


def test_an_unsettled_flow_is_flagged(small):
    flow = steady_flow(c_mesh(rae2822(), small), config=replace(BRIEF, cycles=7))
    assert not flow.converged.any()
    assert flow.cycles.item() == 7
    assert flow.notes()[0].startswith("sample 0: not settled in 7 cycles")


def test_a_vacuum_is_flagged(small):
    flow = steady_flow(c_mesh(rae2822(), small), config=SteadyConfig(cfl=500.0, ramp=200.0))
    assert not flow.converged.any()
    assert "vacuum" in flow.notes()[0]


@pytest.mark.parametrize("field", ["cfl", "levels", "coarse_steps", "cycles", "check_every"])
def test_a_march_that_makes_no_step_is_refused(field):
    nothing = type(getattr(SteadyConfig(), field))(0)
    with pytest.raises(ValueError, match=f"{field} is {nothing}; use"):
        SteadyConfig(**{field: nothing})


def test_negative_settings_of_a_march_are_refused():
    with pytest.raises(ValueError, match=r"ramp is -0\.1; use 0 or more"):
        SteadyConfig(ramp=-0.1)
