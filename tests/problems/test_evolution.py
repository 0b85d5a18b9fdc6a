"""Problems that evolve: trajectories, and what is conserved along them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from torchcno.problems import PROBLEMS
from torchcno.problems.allen_cahn import AllenCahn
from torchcno.problems.evolution import Evolution, require_evolution
from torchcno.problems.transport import DiscontinuousTransport
from torchcno.problems.wave import Wave

BRIEF: dict[str, dict[str, object]] = {
    "navier-stokes": {"T": 0.1, "N": 32},
    "vorticity": {"T": 0.3, "N": 32, "k_max": 8},
    "allen-cahn": {"steps": 40},
    "burgers": {"T": 0.1, "N": 64},
    "taylor-green": {"T": 0.1, "N": 12},
    "discontinuous-transport": {"edges": "exact"},
}
EVOLVING = sorted(name for name in PROBLEMS if issubclass(PROBLEMS[name], Evolution))
ALL = pytest.mark.parametrize("name", EVOLVING)


def brief(name: str) -> Evolution:
    return require_evolution(replace(PROBLEMS[name](), **BRIEF.get(name, {})))


def generators(*seeds: int) -> list[Generator]:
    return [Generator().manual_seed(seed) for seed in seeds]


def points(problem: Evolution) -> int:
    return 12 if len(problem.extent) == 3 else 32


def test_steady_problems_say_so() -> None:
    for name in set(PROBLEMS) - set(EVOLVING):
        with pytest.raises(ValueError, match=f"{name} is steady"):
            require_evolution(PROBLEMS[name]())
    assert set(PROBLEMS) - set(EVOLVING) == {"poisson", "darcy", "airfoil"}


@ALL
def test_a_trajectory_of_one_time_is_the_solution_bit_for_bit(name: str) -> None:
    problem = brief(name)
    resolution = points(problem)
    states = problem.sample_inputs(problem.solver_grid(resolution), 1, *generators(0))
    assert torch.equal(problem.trajectory(states, [problem.T])[:, 0], problem.solve(states))
    inputs, outputs = problem.pairs(generators(0), resolution)
    evolved = problem.trajectories(generators(0), [0.0, problem.T], resolution)
    scale = 1e-12 * float(outputs.abs().max())
    torch.testing.assert_close(evolved[:, 0], inputs, rtol=0, atol=scale)
    torch.testing.assert_close(evolved[:, 1], outputs, rtol=0, atol=scale)


@ALL
def test_intermediate_times_change_the_rest_by_the_error_of_a_step_at_most(name: str) -> None:
    problem = brief(name)
    T, resolution = problem.T, points(problem)
    few = problem.trajectories(generators(1), [T / 3, T, 2 * T], resolution)
    many = problem.trajectories(
        generators(1), [0.0, 0.2 * T, T / 3, 0.77 * T, T, 1.5 * T, 2 * T], resolution
    )
    torch.testing.assert_close(many[:, [2, 4, 6]], few, rtol=0, atol=1e-3 * float(few.abs().max()))


@ALL
def test_a_trajectory_depends_on_its_generator_alone(name: str) -> None:
    problem = brief(name)
    times = [0.0, problem.T / 2]
    many = problem.trajectories(generators(1, 2), times, points(problem))
    alone = problem.trajectories(generators(2), times, points(problem))
    assert torch.equal(many[1:], alone)
    assert not torch.equal(many[0], many[1])


@pytest.mark.gpu
@ALL
def test_devices_agree(name: str) -> None:
    problem = brief(name)
    times = [0.0, problem.T / 2, problem.T]
    here, there = (
        problem.trajectories(generators(1, 2), times, points(problem), device)
        for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(here, there, rtol=0, atol=1e-9 * here.abs().max().item())


@ALL
@pytest.mark.parametrize("times", [[], [0.2, 0.1], [0.1, 0.1], [-0.1], [math.nan], [0.0, math.inf]])
def test_times_that_do_not_increase_from_0_are_refused(name: str, times: list[float]) -> None:
    problem = brief(name)
    with pytest.raises(ValueError, match="increase from 0"):
        problem.trajectories(generators(0), times, points(problem))


@ALL
def test_means_stay_and_energies_fall(name: str) -> None:
    problem = brief(name)
    if name == "navier-stokes":
        problem = replace(problem, components="uv")
    resolution = problem.solver_grid(points(problem)).shape[0]
    times = [problem.T * i / 4 for i in range(5)]
    fields = problem.trajectories(generators(3), times, resolution)
    found = problem.invariants(fields)
    assert (
        set(found)
        == {
            "allen-cahn": {"energy"},
            "burgers": {"mean u", "energy"},
            "navier-stokes": {"mean u", "mean v", "energy"},
            "taylor-green": {"mean u", "mean v", "mean w", "energy"},
            "vorticity": {"mean ω"},
            "smooth-transport": {"mass"},
            "discontinuous-transport": {"mass"},
            "wave": set(),
        }[name]
    )
    for quantity, values in found.items():
        assert values.shape == (1, 5)
        if quantity == "energy":
            assert (values.diff() < 0).all()
        elif quantity.startswith("mean"):
            assert (values - values[:, :1]).abs().max() < 1e-12
        else:
            # The peak of a Gaussian, which is scaled to 1, lies between points.
            assert (values / values[:, :1] - 1).abs().max() < 0.02


def test_half_way_around_a_wave_is_where_it_began() -> None:
    """One mode sin πx sin πy swings with the period √2/c, and is upside down at half of it."""
    problem = Wave(K=1)
    f = problem.sample_inputs(problem.grid(16), 1, *generators(0))
    period = math.sqrt(2) / problem.c
    states = problem.trajectory(f, [0.0, period / 4, period / 2, period])
    for i, sign in enumerate((1, 0, -1, 1)):
        torch.testing.assert_close(states[:, i], sign * f, rtol=0, atol=1e-12)


def test_transport_moves_by_whole_points_in_between() -> None:
    problem = DiscontinuousTransport(edges="exact", velocity=(128 / 127 / 4, 0.0))
    (fields,) = problem.draw_trajectories(generators(0), problem.grid(32), [0.0, 0.5, 1.0])
    for step in (1, 2):
        moved = fields[:, 0, ..., : 32 - 4 * step]
        torch.testing.assert_close(fields[:, step, ..., 4 * step :], moved, rtol=0, atol=1e-12)


def test_a_state_of_transport_holds_two_times() -> None:
    problem = DiscontinuousTransport()
    states = problem.sample_inputs(problem.grid(16), 1, *generators(0))
    held = problem.trajectory(states, [0.0, 1.0])
    assert torch.equal(held[:, 0], states[:, :1])
    assert torch.equal(held[:, 1], states[:, 1:])
    with pytest.raises(ValueError, match="draw_trajectories"):
        problem.trajectory(states, [0.5])


def test_fronts_take_whole_steps_where_times_allow_it() -> None:
    """Twenty steps and twenty more are forty."""
    problem = AllenCahn(steps=40)
    f = problem.sample_inputs(problem.grid(32), 1, *generators(0))
    states = problem.trajectory(f, [20 * problem.dt, 40 * problem.dt])
    assert torch.equal(states[:, 1], problem.solve(f))
