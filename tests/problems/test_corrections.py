"""Iterations of a solver that start from a prediction."""

import pytest
import torch
from torch import Generator, Tensor

from torchcno.metrics import relative_l2
from torchcno.problems import PROBLEMS
from torchcno.problems.darcy import Darcy
from torchcno.problems.poisson import Poisson

SOLVED = [Poisson(K=6), Darcy(refinement=1)]
POINTS = 20


def prediction(problem, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, the solver's outputs on the same grid, and outputs that are some percent off."""
    grid = problem.grid(POINTS)
    u = problem.sample_inputs(grid, 3, generator)
    v = problem.solve(u)
    noise = torch.randn(v.shape, generator=generator, dtype=v.dtype)
    return u, v, v + 0.05 * v.abs().mean() * noise


@pytest.mark.parametrize("problem", SOLVED, ids=lambda p: p.name)
def test_a_correction_converges_to_the_solvers_answer(problem, generator):
    u, v, start = prediction(problem, generator)
    errors = torch.stack([relative_l2(problem.correct(u, start, k), v) for k in (0, 8, 60, 400)])
    assert (errors[0] > 0.03).all()
    assert (errors[1] < errors[0]).all()
    assert (errors[-1] < 1e-8).all()


@pytest.mark.parametrize("problem", SOLVED, ids=lambda p: p.name)
def test_no_iteration_leaves_the_prediction_as_it_is(problem, generator):
    u, _, start = prediction(problem, generator)
    assert torch.equal(problem.correct(u, start, 0), start)


def test_an_iteration_for_darcy_leaves_a_third_of_the_error(generator):
    """In the energy norm by CG's bound: (√κ − 1)/(√κ + 1) = 1/3 for coefficients 3 and 12."""
    problem = Darcy(refinement=1)
    u, v, start = prediction(problem, generator)

    def energy(k: int) -> Tensor:
        e = problem.correct(u, start, k) - v
        balance = problem.residual(u, v) - problem.residual(u, v + e)
        return (e * balance).flatten(1).sum(1).sqrt()

    # The bound is 2 (1/3)^k of the start's energy, on the inner points and with a zero edge.
    inner = torch.zeros_like(start)
    inner[..., 1:-1, 1:-1] = (start - v)[..., 1:-1, 1:-1]
    at_start = (inner * (problem.residual(u, v) - problem.residual(u, v + inner))).flatten(1).sum(1)
    for k in (2, 4, 6):
        assert (energy(k) <= 2 * 3.0**-k * at_start.sqrt() * (1 + 1e-9)).all()


@pytest.mark.parametrize("problem", SOLVED, ids=lambda p: p.name)
def test_the_residual_of_the_solvers_answer_is_zero(problem, generator):
    u, v, start = prediction(problem, generator)
    assert float(problem.residual(u, v).abs().max()) < 1e-7
    assert float(problem.residual(u, start).abs().max()) > 1e-2


def test_a_batch_is_corrected_as_its_samples_are(generator):
    problem = Darcy(refinement=1)
    u, _, start = prediction(problem, generator)
    alone = torch.cat([problem.correct(u[i : i + 1], start[i : i + 1], 5) for i in range(3)])
    torch.testing.assert_close(problem.correct(u, start, 5), alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["wave", "allen-cahn", "navier-stokes", "airfoil"])
def test_problems_without_a_residual_say_so(name):
    problem, field = PROBLEMS[name](), torch.zeros(1, 1, 8, 8)
    with pytest.raises(ValueError, match="has no residual of a prediction"):
        problem.residual(field, field)
    with pytest.raises(ValueError, match="has no iteration that corrects"):
        problem.correct(field, field, 1)
