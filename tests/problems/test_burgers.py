import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.burgers import Burgers
from torchcno.spectral import resample


def cole_hopf(problem: Burgers, x: Tensor, t: float, mean: float = 0.0) -> Tensor:
    """u = c − 2ν φ_x/φ of a solution φ of the heat equation, carried along by c."""
    k, moved = 2 * math.pi, x - mean * t
    phi, slope = torch.full_like(x, 2.0), torch.zeros_like(x)
    for n, weight in ((1, 1.5), (2, 0.2)):
        decay = weight * math.exp(-problem.nu * (n * k) ** 2 * t)
        phi = phi + decay * torch.cos(n * k * moved)
        slope = slope - n * k * decay * torch.sin(n * k * moved)
    return (mean - 2 * problem.nu * slope / phi)[None, None]


@pytest.mark.parametrize("mean", [0.0, 0.4])
def test_the_solution_is_that_of_cole_and_hopf(mean: float) -> None:
    problem = Burgers(nu=0.05, T=0.5, N=128, dt=2e-3)
    x = problem.grid(128).axis(0)
    times = [0.1, 0.5, 2.0]
    exact = torch.stack([cole_hopf(problem, x, t, mean) for t in times], dim=1)
    found = problem.trajectory(cole_hopf(problem, x, 0.0, mean), times)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-9)
    assert (exact[:, 1] - exact[:, 0]).abs().max() > 0.05


def test_fourth_order_in_time() -> None:
    problem = Burgers(nu=0.01, T=0.4, N=64)
    u = problem.sample_inputs(problem.grid(64), 1, Generator().manual_seed(0))
    reference = replace(problem, dt=5e-4).solve(u)
    errors = [
        (replace(problem, dt=dt).solve(u) - reference).abs().max() for dt in (0.01, 0.005, 0.0025)
    ]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 3.7, orders


def test_the_data_do_not_depend_on_the_points_of_the_solver() -> None:
    """Spectral convergence: shocks of the default viscosity are resolved."""
    problem = Burgers(T=0.4)
    coarse, usual, fine = (
        resample(
            replace(problem, N=n).pairs([Generator().manual_seed(2)], n)[1], (128,), "periodic"
        )
        for n in (128, 512, 768)
    )
    assert (usual - fine).abs().max() < 3e-6
    assert (coarse - fine).abs().max() > 1e-3


def test_no_value_passes_the_extremes_of_the_beginning() -> None:
    problem = Burgers(T=0.5, N=256)
    u = problem.sample_inputs(problem.grid(256), 3, Generator().manual_seed(1))
    later = problem.trajectory(u, [0.1, 0.3, 0.5])
    assert (later.amax((1, 2, 3)) <= u.amax((1, 2)) + 1e-3).all()
    assert (later.amin((1, 2, 3)) >= u.amin((1, 2)) - 1e-3).all()


def test_what_cannot_be_solved_is_refused() -> None:
    with pytest.raises(ValueError, match="do not resolve K = 5"):
        Burgers(N=8).pairs([Generator()], 8)
    with pytest.raises(ValueError, match=r"unstable; use dt=0\.00"):  # it would stay finite
        Burgers(dt=0.01).pairs([Generator()], 64)
    with pytest.raises(ValueError, match="nu is 0"):
        Burgers(nu=0.0)
