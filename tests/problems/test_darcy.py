import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import diags
from scipy.sparse.linalg import spsolve
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.darcy import Darcy, solve_diffusion


def manufactured(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """a, u and f = −∇·(a∇u) on n² points, u = 0 on the edge."""
    y, x = Grid((n, n), "inclusive").mesh()
    a = torch.exp(torch.sin(2 * x + y))
    a_x, a_y = 2 * torch.cos(2 * x + y) * a, torch.cos(2 * x + y) * a
    p, q = math.pi, 2 * math.pi
    u = torch.sin(p * x) * torch.sin(q * y)
    u_x = p * torch.cos(p * x) * torch.sin(q * y)
    u_y = q * torch.sin(p * x) * torch.cos(q * y)
    return a, u, (p**2 + q**2) * a * u - a_x * u_x - a_y * u_y


def test_second_order_where_the_coefficient_is_smooth() -> None:
    def error(n: int) -> Tensor:
        a, u, f = manufactured(n)
        return (solve_diffusion(a[None], f[None], 1e-12)[0] - u[1:-1, 1:-1]).abs().max()

    errors = [error(n) for n in (17, 33, 65)]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.05)


def test_agreement_with_a_sparse_direct_solver(generator: Generator) -> None:
    problem = Darcy()
    n = 24
    a = problem.sample_inputs(problem.grid(n), 1, generator)
    u = problem.solve(a)[0, 0, 1:-1, 1:-1]
    c = a[0, 0].numpy()
    between = lambda p, q: 2 / (1 / p + 1 / q) * (n - 1) ** 2  # noqa: E731
    east, west = between(c[1:-1, 1:-1], c[1:-1, 2:]), between(c[1:-1, 1:-1], c[1:-1, :-2])
    north, south = between(c[1:-1, 1:-1], c[2:, 1:-1]), between(c[1:-1, 1:-1], c[:-2, 1:-1])
    centre = east + west + north + south
    east[:, -1] = 0  # the neighbour beyond is on the edge
    m = n - 2
    upper, far = -east.ravel()[:-1], -north.ravel()[:-m]
    matrix = diags([centre.ravel(), upper, upper, far, far], [0, 1, -1, m, -m], format="csc")
    expected = spsolve(matrix, -np.ones(m * m)).reshape(m, m)
    torch.testing.assert_close(u, torch.from_numpy(expected), rtol=1e-9, atol=0)


def test_pressure_is_negative_and_zero_on_the_edge() -> None:
    """∇·(a∇u) = 1: by the maximum principle the largest value, 0, is taken on the edge alone."""
    _, u = Darcy().pairs([Generator().manual_seed(i) for i in range(4)], 64)
    assert (u[..., 1:-1, 1:-1] < 0).all()
    assert u.max() == 0
    edge = torch.cat([u[..., 0, :], u[..., -1, :], u[..., :, 0], u[..., :, -1]], dim=-1)
    assert not edge.any()


@pytest.mark.parametrize("split", ["test", "ood"])
def test_coefficient_jumps_as_often_as_its_kernel_says(split: str, generator: Generator) -> None:
    """Rice: a centred Gaussian process of covariance r has √(−r″(0)/r(0))/π zeros a unit length.

    For exp(−d²/l²) that is √2/(πl).
    """
    problem = Darcy().for_split(split)
    jumps = jumps_of(problem.sample_inputs(problem.grid(64), 200, generator)[:, 0])
    expected = math.sqrt(2) / (math.pi * problem.length)
    assert jumps.mean() == pytest.approx(expected, abs=4 * jumps.std().item() / math.sqrt(200))


def test_coefficient_jumps_as_often_as_the_published_ones(generator: Generator) -> None:
    # 2.03, 2.09 and 1.60 a line in three published samples
    problem = Darcy()
    jumps = jumps_of(problem.sample_inputs(problem.grid(64), 200, generator)[:, 0])
    assert jumps.mean() == pytest.approx(1.91, abs=2 * jumps.std().item() / math.sqrt(3))


def jumps_of(a: Tensor) -> Tensor:
    """How often each sample jumps along a line of the unit square, on average over its lines."""
    changes = [(a.diff(dim=dim) != 0).double().mean((1, 2)) for dim in (1, 2)]
    return (a.shape[-1] - 1) * (changes[0] + changes[1]) / 2


def test_refinement_agrees_on_jumping_coefficients() -> None:
    def pressure(refinement: int) -> Tensor:
        problem = replace(Darcy(), refinement=refinement)
        return problem.pairs([Generator().manual_seed(i) for i in range(3)], 22)[1]

    reference = pressure(16)
    errors = [
        ((pressure(m) - reference).abs().mean() / reference.abs().mean()).item() for m in (2, 4, 8)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.01


def test_coefficient_is_the_same_function_at_every_resolution() -> None:
    problem = Darcy()
    coarse, fine = (
        problem.pairs([Generator().manual_seed(3)], resolution)[0] for resolution in (22, 64)
    )
    assert torch.equal(coarse, fine[..., ::3, ::3])
    assert set(fine.unique().tolist()) == {3.0, 12.0}


def test_a_sample_ignores_its_batch(generator: Generator) -> None:
    problem = Darcy()
    a = problem.sample_inputs(problem.grid(33), 3, generator)
    a[0] = 3.0  # converges in one iteration
    together = problem.solve(a)
    for i in range(3):
        torch.testing.assert_close(problem.solve(a[i : i + 1])[0], together[i], rtol=1e-12, atol=0)


def test_nothing_flows_without_a_source_beside_samples_that_have_one() -> None:
    f = torch.ones(2, 17, 17, dtype=torch.float64)
    f[0] = 0.0
    a = torch.where(torch.rand(f.shape, generator=Generator().manual_seed(0)) > 0.5, 12.0, 3.0)
    u = solve_diffusion(a.double(), f, 1e-10)
    assert torch.equal(u[0], torch.zeros_like(u[0]))
    assert (u[1] > 0).all()


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (torch.zeros(1, 1, 9, 9), "positive"),
        (torch.ones(1, 1, 2, 2), "3 or more"),
    ],
)
def test_impossible_coefficients_are_refused(a: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Darcy().solve(a)
