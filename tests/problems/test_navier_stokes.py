import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.navier_stokes import NavierStokes
from torchcno.spectral import resample


def divergence(velocity: Tensor) -> Tensor:
    """∂_x u + ∂_y v by FFT."""
    n = velocity.shape[-1]
    k = 2j * math.pi * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    u_hat, v_hat = torch.fft.fft2(velocity).unbind(-3)
    return torch.fft.ifft2(k * u_hat + k[:, None] * v_hat).real


def energy(velocity: Tensor) -> Tensor:
    return velocity.square().mean((-2, -1)).sum(-1)


def shear_layers(problem: NavierStokes, n: int = 1) -> Tensor:
    return problem.sample_inputs(problem.grid(problem.N), n, Generator().manual_seed(0))


def test_third_order_in_time() -> None:
    problem = NavierStokes(N=24, rho=0.5, T=0.3)
    inputs = shear_layers(problem)

    def solve(cfl: float) -> Tensor:
        return replace(problem, cfl=cfl).solve(inputs)

    reference = solve(0.05)
    errors = [(solve(cfl) - reference).abs().max() for cfl in (0.8, 0.4, 0.2)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) > 2.8, orders


def test_taylor_green_vortices_are_kept() -> None:
    problem = NavierStokes(N=32)
    y, x = problem.grid(32).mesh()
    u = torch.sin(2 * math.pi * x) * torch.cos(2 * math.pi * y)
    v = -torch.cos(2 * math.pi * x) * torch.sin(2 * math.pi * y)
    velocity = torch.stack([u, v])[None]
    torch.testing.assert_close(problem.solve(velocity), velocity, atol=1e-10, rtol=0)


def test_mean_flow_carries_vortices_along() -> None:
    """Galilean invariance: Taylor-Green vortices in a wind are where the wind has brought them."""
    problem = NavierStokes(N=16, T=0.5, cfl=0.2)
    y, x = problem.grid(16).mesh()

    def vortices(x: Tensor) -> Tensor:
        u = torch.sin(2 * math.pi * x) * torch.cos(2 * math.pi * y)
        v = -torch.cos(2 * math.pi * x) * torch.sin(2 * math.pi * y)
        return torch.stack([u + 0.7, v])[None]

    torch.testing.assert_close(
        problem.solve(vortices(x)), vortices(x - 0.7 * problem.T), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(("unit", "factor"), [("integer", 1.0), ("angular", 4 * math.pi**2)])
def test_viscosity_acts_beyond_root_n(unit: str, factor: float) -> None:
    """A shear flow sin(2πky) is steady but for the rate ε_N (k² − N), times 4π² if angular."""
    problem = NavierStokes(N=128, T=0.02, cfl=0.4, viscosity_wavenumbers=unit)
    assert problem.epsilon / problem.N == pytest.approx(4e-4, rel=0.03)
    y, _ = problem.grid(128).mesh()
    for k, rate in ((11, 0.0), (40, 0.05 / 128 * (40**2 - 128) * factor)):
        u = torch.sin(2 * math.pi * k * y)
        velocity = torch.stack([u, torch.zeros_like(u)])[None]
        decay = math.exp(-rate * problem.T)
        torch.testing.assert_close(problem.solve(velocity), decay * velocity, atol=1e-6, rtol=0)


def test_flow_stays_divergence_free_and_loses_energy() -> None:
    problem = NavierStokes(N=64)
    inputs = shear_layers(problem, 2)
    flow = problem.trajectory(inputs, [0.1 * i for i in range(1, 11)])
    assert divergence(inputs).abs().max() < 1e-12
    assert divergence(flow).abs().max() < 1e-12
    energies = torch.cat([energy(inputs)[:, None], energy(flow)], dim=1)
    assert (energies.diff(dim=1) <= 0).all()
    assert energies[:, -1].min() > 0.5 * energies[:, 0].max()


def test_low_modes_do_not_depend_on_the_resolution_of_the_solver() -> None:
    low_modes = []
    for n in (128, 256):
        problem = NavierStokes(N=n, T=0.04)
        velocity = problem.solve(shear_layers(problem))
        low_modes.append(resample(velocity, (11, 11), "periodic"))
    torch.testing.assert_close(*low_modes, atol=5e-5, rtol=0)


def test_trajectory_ends_where_the_solution_does() -> None:
    problem = NavierStokes(N=32, rho=0.4, T=0.3, cfl=0.5)
    inputs = shear_layers(problem, 2)
    trajectory = problem.trajectory(inputs, [0.0, 0.13, 0.3])
    torch.testing.assert_close(trajectory[:, 0], inputs)
    torch.testing.assert_close(trajectory[:, -1], problem.solve(inputs), atol=1e-4, rtol=0)


def test_a_sample_chooses_its_own_steps() -> None:
    problem = NavierStokes(N=32, T=0.2)
    inputs = shear_layers(problem, 3) * torch.tensor([1.0, 3.0, 0.1]).view(-1, 1, 1, 1)
    together = problem.solve(inputs)
    for i in range(3):
        alone = problem.solve(inputs[i : i + 1])[0]
        torch.testing.assert_close(alone, together[i], atol=1e-12, rtol=0)


def test_layers_lie_where_stated() -> None:
    problem = NavierStokes(delta=0.0).for_split("ood")
    u = problem.observe(shear_layers(problem))[0, 0, :, 0]
    y = problem.grid(128).axis(0)
    crossings = y[:-1][(u[:-1] * u[1:]) < 0]
    torch.testing.assert_close(crossings, torch.tensor([0.3, 0.7]).double(), atol=1 / 128, rtol=0)
    inside = torch.tanh(2 * math.pi * (y[64] - 0.3) / 0.09)
    torch.testing.assert_close(u[64], inside, atol=1e-4, rtol=0)


def test_input_reaches_the_range_of_the_published_data() -> None:
    # ±1.4308 over 750 samples: what displaced and projected layers have
    problem = NavierStokes()
    peak = problem.observe(shear_layers(problem, 48)).abs().max()
    assert 1.35 < peak < 1.45


def test_components_are_what_networks_see() -> None:
    generators = [Generator().manual_seed(5)]
    one = NavierStokes(N=32, T=0.05).pairs(generators, 16)
    both = NavierStokes(N=32, T=0.05, components="uv").pairs([Generator().manual_seed(5)], 16)
    for u, uv in zip(one, both, strict=True):
        assert uv.shape == (1, 2, 16, 16)
        assert torch.equal(u, uv[:, :1])


@pytest.mark.parametrize(
    ("field", "choices"),
    [("components", "u, uv"), ("viscosity_wavenumbers", "angular, integer")],
)
def test_unknown_choices_list_what_there_is(field: str, choices: str) -> None:
    problem = NavierStokes()
    object.__setattr__(problem, field, "w")  # past the type checker that runs with the tests
    with pytest.raises(ValueError, match=choices):
        problem.__post_init__()


def test_wrong_grids_and_times_are_refused() -> None:
    problem = NavierStokes()
    with pytest.raises(ValueError, match="N=64"):
        problem.solve(torch.zeros(1, 2, 64, 64))
    for times in ([0.2, 0.1], [-0.1], []):
        with pytest.raises(ValueError, match="increase from 0"):
            problem.trajectory(torch.zeros(1, 2, 128, 128), times)


def test_divergence_is_an_error() -> None:
    problem = NavierStokes(N=32, cfl=8.0)
    with pytest.raises(ValueError, match="smaller cfl"):
        problem.solve(shear_layers(problem))
