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


def test_initial_data_have_the_variance_of_the_generator_of_the_fourier_neural_operator() -> None:
    """Re Σ_k √2 τ^{3/2} (4π²|k|² + τ²)^{−5/4} (ξ_k + iη_k) e^{2πikx}, ξ, η ~ N(0, 1), no mean."""
    k = torch.fft.fftfreq(17, 1 / 17, dtype=torch.float64)
    k_squared = k[:, None] ** 2 + k**2
    noise = torch.randn(4000, 17, 17, dtype=torch.complex128, generator=Generator().manual_seed(0))
    for split in ("test", "ood"):
        problem = Vorticity(N=17, k_max=8).for_split(split)
        assert isinstance(problem, Vorticity)
        power = (4 * math.pi**2 * k_squared + problem.tau**2) ** -1.25 * (k_squared > 0)
        # randn's complex numbers have real and imaginary parts of variance 1/2
        coefficients = math.sqrt(2) * problem.tau**1.5 * power * math.sqrt(2) * noise
        theirs = torch.fft.ifft2(coefficients, norm="forward").real
        ours = problem.sample_inputs(problem.grid(17), 4000, Generator().manual_seed(1))
        assert ours.var() == pytest.approx(theirs.var().item(), rel=0.05)


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


def test_initial_data_need_a_grid_that_resolves_them() -> None:
    problem = Vorticity(N=16, k_max=8)
    with pytest.raises(ValueError, match="at least 17"):
        problem.sample_inputs(problem.grid(16), 1, Generator())
