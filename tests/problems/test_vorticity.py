import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Generator

from torchcno.problems.vorticity import Vorticity


def test_second_order_in_time() -> None:
    problem = Vorticity(N=32, k_max=8, T=2.0, scale=400.0)
    inputs = problem.sample_inputs(problem.grid(32), 1, Generator().manual_seed(0))
    reference = replace(problem, dt=1 / 256).solve(inputs)
    errors = [
        (replace(problem, dt=dt).solve(inputs) - reference).abs().max()
        for dt in (1 / 8, 1 / 16, 1 / 32)
    ]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 1.9, orders


def test_a_single_mode_decays_to_the_forced_state() -> None:
    """cos φ + sin φ with φ = 2π(x + y) is steady for advection: ω_t = −νκω + f, κ = 8π²."""
    problem = Vorticity(N=16, k_max=2, T=2.0, nu=5e-3, dt=1e-2)
    y, x = problem.grid(16).mesh()
    phi = 2 * math.pi * (x + y)
    shape = (phi.sin() + phi.cos())[None, None]
    rate = problem.nu * 8 * math.pi**2
    decay = math.exp(-rate * problem.T)
    expected = (decay * 0.7 + (1 - decay) * problem.forcing / rate) * shape
    torch.testing.assert_close(problem.solve(0.7 * shape), expected, atol=1e-6, rtol=0)


def test_vorticity_keeps_zero_mean() -> None:
    problem = Vorticity(N=16, k_max=4, T=1.0, dt=0.05)
    inputs = problem.sample_inputs(problem.grid(16), 2, Generator().manual_seed(0)) + 0.5
    assert problem.solve(inputs).mean((-2, -1)).abs().max() < 1e-14


def test_unstable_steps_are_refused() -> None:
    problem = Vorticity(N=32, k_max=8, T=500.0, dt=2.0, nu=1e-7, forcing=1.0)
    inputs = problem.sample_inputs(problem.grid(32), 1, Generator().manual_seed(0))
    with pytest.raises(ValueError, match="use dt=1"):
        problem.solve(inputs)
