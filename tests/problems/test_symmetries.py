"""The symmetries that a problem declares are symmetries of its solver."""

from itertools import chain

import pytest
import torch
from torch import Generator

from torchcno.problems import PROBLEMS
from torchcno.training.augmentation import GROUPS, Mover

STATES = {  # problems whose state is the field itself, and a number of points that takes no time
    "poisson": 20,
    "wave": 28,
    "darcy": 16,
    "allen-cahn": 32,
    "burgers": 64,
    "taylor-green": 16,
}


BRIEF = {"burgers": {"N": 64, "T": 0.1}, "taylor-green": {"N": 16, "T": 0.1}}


@pytest.mark.parametrize("name", STATES)
def test_solutions_move_with_their_inputs(name):
    problem = PROBLEMS[name](**BRIEF.get(name, {}))
    resolution = STATES[name]
    u = problem.sample_inputs(problem.solver_grid(resolution), 1, Generator().manual_seed(0))
    v = problem.solve(u)
    mover = Mover(u.shape[2:], u.device)
    for group in set(problem.symmetries) & GROUPS.keys():
        for move in GROUPS[group](u.shape[2:], u.shape[1]):
            numbers = torch.tensor([*chain(*move)])
            moved, expected = (mover(f, torch.tensor([0]), numbers) for f in (u, v))
            scale = float(v.abs().max())
            torch.testing.assert_close(
                problem.solve(moved), expected, rtol=0, atol=1e-9 * scale, msg=f"{group} {move}"
            )


@pytest.mark.parametrize("name", BRIEF)
def test_solutions_on_a_torus_are_translated_with_their_inputs(name):
    problem = PROBLEMS[name](**BRIEF[name])
    u = problem.sample_inputs(problem.solver_grid(8), 1, Generator().manual_seed(0))
    shifts, axes = tuple(range(3, 3 + u.ndim - 2)), tuple(range(2, u.ndim))
    moved = problem.solve(u).roll(shifts, axes)
    torch.testing.assert_close(problem.solve(u.roll(shifts, axes)), moved, rtol=0, atol=1e-12)


def test_problems_without_a_sign_have_no_odd_symmetry():
    for name in ("darcy", "smooth-transport", "discontinuous-transport", "airfoil"):
        assert not any("odd" in symmetry for symmetry in PROBLEMS[name]().symmetries)


def test_a_wind_off_the_diagonal_has_no_exchange():
    assert PROBLEMS["smooth-transport"]().symmetries == ("exchange",)
    assert PROBLEMS["smooth-transport"](velocity=(0.2, -0.2)).symmetries == ()
