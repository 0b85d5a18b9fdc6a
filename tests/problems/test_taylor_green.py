import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.taylor_green import TaylorGreen, sum_vortices


def derivative(u: Tensor, axis: int) -> Tensor:
    """∂u along an axis of the torus, by FFT."""
    n = u.shape[axis]
    k = 2j * math.pi * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    k[n // 2] = 0
    shape = [1] * u.ndim
    shape[axis] = n
    return torch.fft.ifft(k.view(shape) * torch.fft.fft(u, dim=axis), dim=axis).real


def divergence(velocity: Tensor) -> Tensor:
    return sum(derivative(velocity.select(-4, i), -1 - i) for i in range(3))


def draw(problem: TaylorGreen, n: int = 1) -> Tensor:
    return problem.sample_inputs(problem.grid(problem.N), n, Generator().manual_seed(0))


@pytest.mark.parametrize("normal", [0, 1, 2])
def test_plane_vortices_decay_as_taylor_has_it(normal: int) -> None:
    """Without a third direction the vortex is steady but for the rate 8π²ν."""
    problem = TaylorGreen(N=12, T=0.7, nu=0.02)
    phases = [2 * math.pi * axis for axis in reversed(problem.grid(12).mesh())]
    a, b = ((normal + 1) % 3, (normal + 2) % 3)
    u = torch.zeros(1, 3, 12, 12, 12, dtype=torch.float64)
    u[:, a] = phases[a].sin() * phases[b].cos()
    u[:, b] = -phases[a].cos() * phases[b].sin()
    decay = math.exp(-8 * math.pi**2 * problem.nu * problem.T)
    torch.testing.assert_close(problem.solve(u), decay * u, rtol=0, atol=1e-12)


def test_flows_that_know_no_z_are_those_of_the_plane() -> None:
    """The plane solver, by another scheme, makes the same flow."""
    n, nu = 16, 0.01
    plane = NavierStokes(N=n, epsilon=nu * n, T=0.2, cfl=0.1, viscosity="smooth")
    y, x = (2 * math.pi * axis for axis in plane.grid(n).mesh())
    u = torch.stack([torch.sin(x) * torch.cos(y) + 0.5 * torch.cos(2 * y), -torch.cos(x) * y.sin()])
    box = torch.zeros(1, 3, n, n, n, dtype=torch.float64)
    box[:, :2] = u[None, :, None]
    solved = TaylorGreen(N=n, nu=nu, T=0.2, dt=2e-3).solve(box)
    # On 16 points m_N = 4 is below 2π: the spectral viscosity is the full one from |k| = 1 on.
    torch.testing.assert_close(solved[:, :2, 3], plane.solve(u[None]), rtol=0, atol=1e-5)
    assert solved[:, 2].abs().max() < 1e-14


def test_fourth_order_in_time() -> None:
    problem = TaylorGreen(N=12, T=0.4)
    u = draw(problem)
    reference = replace(problem, dt=2.5e-3).solve(u)
    errors = [(replace(problem, dt=dt).solve(u) - reference).abs().max() for dt in (0.04, 0.02)]
    assert math.log2(errors[0] / errors[1]) > 3.7


def test_the_flow_stays_divergence_free_and_loses_the_energy_that_viscosity_takes() -> None:
    """dE/dt = −ν ∫ |∇u|²: to the order of the central difference in time."""
    problem = TaylorGreen(N=20, nu=0.01)
    h = 5e-3
    states = problem.trajectory(draw(problem), [0.3 - h, 0.3, 0.3 + h])
    assert divergence(states).abs().max() < 1e-12
    before, _, after = problem.invariants(states)["energy"][0].tolist()
    u = states[0, 1]
    gradients = sum(derivative(u, axis).square() for axis in (-3, -2, -1))
    dissipation = problem.nu * gradients.sum(0).mean().item()
    assert (before - after) / (2 * h) == pytest.approx(dissipation, rel=1e-4)


def test_without_viscosity_energy_stays() -> None:
    problem = TaylorGreen(N=12, nu=0.0, T=0.3, dt=2.5e-3)
    u = draw(problem)
    energies = problem.invariants(problem.trajectory(u, [0.0, 0.3]))["energy"][0]
    assert energies[1] == pytest.approx(float(energies[0]), rel=1e-8)


def test_three_vortices_break_up_and_are_resolved() -> None:
    """The finest scales of the default flow are a thousandth of it."""
    problem = TaylorGreen(T=0.5, dt=0.02)
    coarse, fine = (
        replace(problem, N=n).pairs([Generator().manual_seed(0)], 12)[1] for n in (20, 28)
    )
    scale = fine.square().mean().sqrt()
    assert (coarse - fine).square().mean().sqrt() < 2e-3 * scale
    one = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    alone = sum_vortices(problem.grid(16), one, torch.zeros(1, 3, 3, dtype=torch.float64))
    assert alone[:, 2].abs().max() == 0  # a flow in planes of z = const, at first
    later = replace(problem, N=16).solve(alone)
    assert later[:, 2].abs().max() > 0.05


def test_steps_that_are_too_long_are_refused() -> None:
    problem = TaylorGreen(N=16)
    with pytest.raises(ValueError, match=r"unstable; use dt=0\.00"):
        problem.solve(10 * draw(problem))
