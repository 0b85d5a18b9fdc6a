import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from torchcno.problems.allen_cahn import AllenCahn

# Fronts that a coarse grid resolves, from data large enough to form them early
RESOLVED = AllenCahn(K=2, r=(0.0, 0.0), epsilon=12.0, T=0.01)


def test_first_order_in_time() -> None:
    def solve(steps: int) -> torch.Tensor:
        problem = replace(RESOLVED, steps=steps)
        return problem.solve(problem.sample_inputs(problem.grid(17), 2, Generator().manual_seed(1)))

    reference = solve(3200)
    errors = [(solve(steps) - reference).abs().max() for steps in (50, 100, 200)]
    # against a reference of 1/16 the step, the ratio of first order is 63/31 and 31/15
    assert errors[0] / errors[1] == pytest.approx(63 / 31, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(31 / 15, rel=0.05)


def test_second_order_in_space() -> None:
    problem = replace(RESOLVED, steps=2000)

    def solve(n: int) -> torch.Tensor:
        u = problem.solve(problem.sample_inputs(problem.grid(n), 2, Generator().manual_seed(1)))
        return u[..., :: (n - 1) // 8, :: (n - 1) // 8]

    reference = solve(129)
    errors = [(solve(n) - reference).abs().max() for n in (17, 33, 65)]
    # against a reference of 1/8, 1/4, 1/2 the spacing, second order is 63/15 and 15/3
    assert errors[0] / errors[1] == pytest.approx(63 / 15, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(15 / 3, rel=0.1)


def test_phases_separate_and_stay_within_bounds() -> None:
    problem = AllenCahn()
    _, u = problem.pairs([Generator().manual_seed(i) for i in range(2)], 64)
    assert 0.999 < u.abs().max() <= 1.0
    assert u[..., 0, :].abs().max() == 0.0


def test_out_of_distribution_draws_a_decay_a_sample(generator: Generator) -> None:
    problem = AllenCahn().for_split("ood")
    f = problem.sample_inputs(problem.grid(64), 64, generator)
    ratio = f.std((1, 2, 3)) / AllenCahn(K=16).sample_inputs(
        problem.grid(64), 64, Generator().manual_seed(0)
    ).std((1, 2, 3))
    # same a_ij; r below 1 raises and r above 1 lowers every amplitude, at most by (2·16²)^0.15
    assert ratio.min() < 1.0 < ratio.max()
    assert ratio.max() < 512**0.15


def test_the_amplitude_is_a_factor_of_the_initial_data_and_not_of_the_solution() -> None:
    printed, small = AllenCahn(), AllenCahn(amplitude=math.pi / 100)
    pairs = [p.pairs([Generator().manual_seed(0)], 64) for p in (printed, small)]
    (f, u), (f_small, u_small) = pairs
    torch.testing.assert_close(f_small, f / 100)
    assert u_small.abs().mean() > 0.02 * u.abs().mean()  # u saturates where f is large


def test_unstable_steps_are_refused(generator: Generator) -> None:
    problem = AllenCahn()
    inputs = problem.sample_inputs(problem.grid(1025), 1, generator)
    with pytest.raises(ValueError, match="use steps="):
        problem.solve(inputs)
