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


def taylor_green(y: Tensor, x: Tensor) -> Tensor:
    """Vortices of |κ|² = 8π², steady but for viscosity."""
    u = torch.sin(2 * math.pi * x) * torch.cos(2 * math.pi * y)
    v = -torch.cos(2 * math.pi * x) * torch.sin(2 * math.pi * y)
    return torch.stack([u, v])[None]


def test_taylor_green_vortices_decay_by_viscosity_alone() -> None:
    problem = NavierStokes(N=16, cfl=0.2)
    velocity = taylor_green(*problem.grid(16).mesh())
    decay = math.exp(-problem.epsilon / problem.N * 8 * math.pi**2 * problem.T)
    torch.testing.assert_close(problem.solve(velocity), decay * velocity, atol=1e-6, rtol=0)


def test_mean_flow_carries_vortices_along() -> None:
    """Galilean invariance: vortices in a wind are where the wind has brought them."""
    problem = NavierStokes(N=16, T=0.5, cfl=0.2)
    y, x = problem.grid(16).mesh()
    wind = torch.tensor([0.7, 0.0]).double().view(1, 2, 1, 1)
    still = problem.solve(taylor_green(y, x - 0.7 * problem.T))
    carried = problem.solve(taylor_green(y, x) + wind)
    torch.testing.assert_close(carried, still + wind, atol=1e-6, rtol=0)


@pytest.mark.parametrize("k", [(0, 1), (0, 2), (1, 2), (0, 11), (0, 40), (30, 40)])
def test_viscosity_is_full_from_the_second_wavenumber_on(k: tuple[int, int]) -> None:
    """A plane shear flow is steady but for the rate ν|2πk|²: ν = 3.9e-4 for |k| ≥ 2, 0 for 1."""
    problem = NavierStokes(T=0.1, cfl=0.4)
    y, x = problem.grid(128).mesh()
    k_x, k_y = k
    wave = torch.sin(2 * math.pi * (k_x * x + k_y * y)) / math.hypot(k_x, k_y)
    velocity = torch.stack([k_y * wave, -k_x * wave])[None]
    amplitude = (problem.solve(velocity) * velocity).sum() / velocity.square().sum()
    rate = -math.log(amplitude) / problem.T
    full = 3.90625e-4 * 4 * math.pi**2 * (k_x**2 + k_y**2)
    assert rate / full == pytest.approx(0 if k == (0, 1) else 1, abs=2e-3)


def test_the_former_viscosity_begins_at_root_n() -> None:
    """`integer`: the rate ε_N (k² − N)."""
    problem = NavierStokes(T=0.02, cfl=0.4, viscosity="integer")
    y, _ = problem.grid(128).mesh()
    for k, rate in ((11, 0.0), (40, 0.05 / 128 * (40**2 - 128))):
        u = torch.sin(2 * math.pi * k * y)
        velocity = torch.stack([u, torch.zeros_like(u)])[None]
        decay = math.exp(-rate * problem.T)
        torch.testing.assert_close(problem.solve(velocity), decay * velocity, atol=1e-6, rtol=0)


def test_slow_flows_are_stable() -> None:
    """Where advection allows long steps, viscosity bounds them."""
    problem = NavierStokes(N=64)
    inputs = 1e-3 * shear_layers(problem)
    noise = torch.randn(inputs.shape, generator=Generator().manual_seed(1)).double()
    assert energy(problem.solve(inputs + 1e-4 * noise)) < energy(inputs + 1e-4 * noise)


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
        problem = NavierStokes(N=n, T=0.04, epsilon=0.0)  # viscosity is the solver's own
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


@pytest.mark.parametrize(("split", "layers"), [("test", [0.25, 0.75]), ("ood", [0.20, 0.70])])
def test_layers_are_shifted_out_of_distribution_and_keep_their_distance(
    split: str, layers: list[float]
) -> None:
    problem = NavierStokes(delta=0.0).for_split(split)
    u = problem.observe(shear_layers(problem))[0, 0, :, 0]
    y = problem.grid(128).axis(0)
    before = torch.where(u * u.roll(-1) <= 0)[0][-2:]
    crossings = y[before] - u[before] / (u.roll(-1) - u)[before] / 128
    torch.testing.assert_close(crossings, torch.tensor(layers).double(), atol=1e-3, rtol=0)
    inside = torch.tanh(2 * math.pi * (y[64] - layers[0]) / problem.rho)
    torch.testing.assert_close(u[64], inside, atol=1e-4, rtol=0)


def test_input_reaches_the_range_of_the_published_data() -> None:
    # ±1.4308 over 750 samples: what displaced and projected layers have
    problem = NavierStokes()
    peak = problem.observe(shear_layers(problem, 48)).abs().max()
    assert 1.35 < peak < 1.45


def test_outputs_are_as_large_and_as_smooth_as_the_published_ones() -> None:
    """Of 100 samples, max |u(T)| is 1.48 ± 0.15 and at most 1.97, the error of |k| ≤ 7 is 1.6 %.

    Three published samples have 1.27 to 1.59; the largest of all is 2.06.
    """
    problem = NavierStokes()
    generators = [Generator().manual_seed(i) for i in range(3)]
    _, outputs = problem.pairs(generators, problem.N)
    peaks = outputs.abs().amax((1, 2, 3))
    assert peaks.mean() == pytest.approx(1.48, abs=3 * 0.15 / math.sqrt(3))
    assert peaks.max() < 2.1
    cut = resample(resample(outputs, (16, 16), "periodic"), (128, 128), "periodic")
    errors = (cut - outputs).abs().mean((1, 2, 3)) / outputs.abs().mean((1, 2, 3))
    assert errors.mean() == pytest.approx(0.016, abs=0.005)


def test_components_are_what_networks_see() -> None:
    generators = [Generator().manual_seed(5)]
    one = NavierStokes(N=32, T=0.05).pairs(generators, 16)
    both = NavierStokes(N=32, T=0.05, components="uv").pairs([Generator().manual_seed(5)], 16)
    for u, uv in zip(one, both, strict=True):
        assert uv.shape == (1, 2, 16, 16)
        assert torch.equal(u, uv[:, :1])


def test_unknown_choices_list_what_there_is() -> None:
    with pytest.raises(ValueError, match="integer, smooth"):
        NavierStokes(viscosity="sharp")
    problem = NavierStokes()
    object.__setattr__(problem, "components", "w")  # past the type checker that runs with the tests
    with pytest.raises(ValueError, match="u, uv"):
        problem.__post_init__()


def test_wrong_grids_and_times_are_refused() -> None:
    problem = NavierStokes()
    with pytest.raises(ValueError, match="N=64"):
        problem.solve(torch.zeros(1, 2, 64, 64))
    for times in ([0.2, 0.1], [-0.1], []):
        with pytest.raises(ValueError, match="increase from 0"):
            problem.trajectory(torch.zeros(1, 2, 128, 128), times)


def test_divergence_is_an_error() -> None:
    problem = NavierStokes(N=32, cfl=8.0, epsilon=0.0)
    with pytest.raises(ValueError, match="smaller cfl"):
        problem.solve(shear_layers(problem))
