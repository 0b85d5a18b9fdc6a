import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.allen_cahn import AllenCahn

# Fronts that a coarse grid resolves, from data large enough to form them early
RESOLVED = AllenCahn(K=2, r=(0.0, 0.0), amplitude=7.0, epsilon=12.0)


def resolved(n_points: int, steps: int) -> Tensor:
    """The same two solutions at T = 0.01, by so many steps."""
    problem = replace(RESOLVED, steps=steps, dt=0.01 / steps)
    return problem.solve(problem.sample_inputs(problem.grid(n_points), 2, Generator()))


def initial_data(n: int, **constants: object) -> Tensor:
    problem = AllenCahn(**constants)
    return problem.sample_inputs(problem.grid(64), n, Generator().manual_seed(0))


def test_first_order_in_time() -> None:
    reference = resolved(17, 3200)
    errors = [(resolved(17, steps) - reference).abs().max() for steps in (50, 100, 200)]
    # against a reference of 1/16 the step, the ratio of first order is 63/31 and 31/15
    assert errors[0] / errors[1] == pytest.approx(63 / 31, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(31 / 15, rel=0.05)


def test_second_order_in_space() -> None:
    reference = resolved(129, 2000)[..., ::16, ::16]
    errors = [
        (resolved(n, 2000)[..., :: (n - 1) // 8, :: (n - 1) // 8] - reference).abs().max()
        for n in (17, 33, 65)
    ]
    # against a reference of 1/8, 1/4, 1/2 the spacing, second order is 63/15 and 15/3
    assert errors[0] / errors[1] == pytest.approx(63 / 15, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(15 / 3, rel=0.1)


def test_small_waves_grow_as_the_published_scheme_has_it() -> None:
    """373 steps of 5.47e-7 with Δx = 1/63: every wave on the torus of 63² points has its factor."""
    problem = AllenCahn()
    y, x = problem.grid(64).mesh()
    for k_y, k_x in ((0, 0), (1, 0), (3, 5)):
        wave = 1e-9 * torch.cos(2 * math.pi * (k_y * y + k_x * x) + 0.7)
        laplacian = -4 * 63**2 * sum(math.sin(math.pi * k / 63) ** 2 for k in (k_y, k_x))
        growth = (1 + 5.47e-7 * (laplacian + 220**2)) ** 373
        torch.testing.assert_close(problem.solve(wave[None, None])[0, 0], growth * wave)


def test_the_solver_commutes_with_translations_and_with_the_sign() -> None:
    """Both ends of an axis are one point, at which the solution is as free as elsewhere."""
    problem = AllenCahn(steps=40)

    def shifted(u: Tensor) -> Tensor:
        inner = u[..., :-1, :-1].roll((5, -8), (-2, -1))
        return torch.nn.functional.pad(inner, (0, 1, 0, 1), mode="circular")

    f = initial_data(2)
    u = problem.solve(f)
    torch.testing.assert_close(problem.solve(shifted(f)), shifted(u), rtol=1e-12, atol=0)
    assert torch.equal(problem.solve(-f), -u)


def test_the_last_row_and_column_copy_the_first_and_are_not_zero() -> None:
    f, u = AllenCahn().pairs([Generator().manual_seed(i) for i in range(2)], 64)
    assert torch.equal(u[..., 0, :], u[..., -1, :])
    assert torch.equal(u[..., 0], u[..., -1])
    assert f[..., 0, :].abs().max() < 1e-15
    assert u[..., 0, :].abs().max() > 0.1


def test_phases_separate_and_stay_within_bounds() -> None:
    _, u = AllenCahn().pairs([Generator().manual_seed(i) for i in range(2)], 64)
    assert 0.9 < u.abs().max() <= 1.0


@pytest.mark.parametrize("K", [24, AllenCahn.ood["K"]])
def test_coefficients_are_uniform_up_to_the_bound_of_the_published_data(K: int) -> None:
    k = torch.arange(1, K + 1, dtype=torch.float64)
    sines = torch.sin(math.pi * AllenCahn().grid(64).axis(0)[:, None] * k)
    coefficients = (2 / 63) ** 2 * sines.T @ initial_data(16, K=K) @ sines
    a = coefficients * (k[:, None] ** 2 + k**2) * math.pi * (K + 1) ** 2
    assert 0.999 < a.abs().max() < 1 + 1e-9
    # a mean and a variance of 16 K² draws, against five times their scatter
    assert abs(a.mean()) < 5 * (1 / 3 / a.numel()) ** 0.5
    assert abs(a.square().mean() - 1 / 3) < 5 * (4 / 45 / a.numel()) ** 0.5


def test_out_of_distribution_draws_a_decay_a_sample() -> None:
    ratio = initial_data(64, **AllenCahn.ood).std((1, 2, 3)) / initial_data(64, K=16).std((1, 2, 3))
    # same a_ij; r below 1 raises and r above 1 lowers every amplitude, at most by (2·16²)^0.15
    assert ratio.min() < 1.0 < ratio.max()
    assert ratio.max() < 512**0.15


def test_the_amplitude_is_a_factor_of_the_initial_data_and_not_of_the_solution() -> None:
    f, large_f = initial_data(1), initial_data(1, amplitude=math.pi)
    torch.testing.assert_close(large_f, math.pi**2 * f)
    u, large_u = (AllenCahn().solve(data) for data in (f, large_f))
    assert large_u.abs().mean() < 5 * u.abs().mean()  # u saturates where f is large


def test_a_step_too_long_for_the_grid_is_divided() -> None:
    problem = replace(RESOLVED, dt=1e-3, steps=5)  # nine times too long on 33 points
    f = problem.sample_inputs(problem.grid(33), 1, Generator())
    assert torch.equal(problem.solve(f), replace(problem, dt=1e-3 / 9, steps=45).solve(f))
