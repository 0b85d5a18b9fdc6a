import math

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.torus_flow import torus_flow


def band_limited(n: int, k_max: int, seed: int = 0) -> Tensor:
    """A random real field on n² periodic points with modes |k|∞ ≤ k_max."""
    small = torch.randn(
        2 * k_max + 1, 2 * k_max + 1, dtype=torch.float64, generator=Generator().manual_seed(seed)
    )
    flow = torus_flow(2 * k_max + 1, torch.device("cpu"))
    return flow.values(flow.coefficients(small), n)


@pytest.mark.parametrize("n", [16, 17])
def test_coefficients_and_values_are_inverse(n: int) -> None:
    flow = torus_flow(n, torch.device("cpu"))
    field = band_limited(n, flow.K)
    torch.testing.assert_close(flow.values(flow.coefficients(field), n), field)
    finer = flow.values(flow.coefficients(field), 3 * n)
    torch.testing.assert_close(finer[::3, ::3], field)


def test_velocity_and_vorticity_are_inverse() -> None:
    flow = torus_flow(16, torch.device("cpu"))
    psi_hat = flow.coefficients(band_limited(16, 7))
    k_x, k_y = flow.k
    u, v = flow.values(1j * k_y * psi_hat, 16) + 0.3, flow.values(-1j * k_x * psi_hat, 16) - 0.1
    velocity = torch.stack([u, v])[None]
    torch.testing.assert_close(flow.velocity(*flow.vorticity(velocity), 16), velocity)


def test_leray_projection_removes_gradients_only() -> None:
    flow = torus_flow(16, torch.device("cpu"))
    k_x, k_y = flow.k
    phi_hat = flow.coefficients(band_limited(16, 7))
    gradient = torch.stack([flow.values(1j * k * phi_hat, 16) for k in (k_x, k_y)])[None]
    projected = flow.velocity(*flow.vorticity(gradient), 16)
    assert projected.abs().max() < 1e-12 * gradient.abs().max()


@pytest.mark.parametrize("n", [16, 17])
def test_self_advection_is_free_of_aliasing(n: int) -> None:
    """−u·∇ω formed on so many points that no product folds back, then cut to the band."""
    flow = torus_flow(n, torch.device("cpu"))
    omega_hat = flow.coefficients(band_limited(n, flow.K))[None]
    omega_hat[:, 0, 0] = 0
    mean = torch.tensor([[0.4, -0.2]], dtype=torch.complex128)
    m = 4 * n
    u, v = flow.velocity(omega_hat, mean, m).unbind(1)
    k_x, k_y = flow.k
    omega_x, omega_y = (flow.values(1j * k * omega_hat, m) for k in (k_x, k_y))
    expected = flow.coefficients(-(u * omega_x + v * omega_y))
    found = flow.self_advection(flow.velocity(omega_hat, mean, flow.M))
    torch.testing.assert_close(found, expected, atol=1e-10 * expected.abs().max().item(), rtol=0)


def test_self_advection_conserves_energy_and_enstrophy() -> None:
    flow = torus_flow(32, torch.device("cpu"))
    omega_hat = flow.coefficients(band_limited(32, 15))[None]
    omega_hat[:, 0, 0] = 0
    rate = flow.self_advection(flow.velocity(omega_hat, torch.zeros(1, 2) + 0j, flow.M))
    omega, omega_t = flow.values(omega_hat, 32), flow.values(rate, 32)
    psi = flow.values(omega_hat / flow.k_squared, 32)
    size = (omega.abs() * omega_t.abs()).mean()
    assert abs((omega * omega_t).mean()) < 1e-13 * size
    assert abs((psi * omega_t).mean()) < 1e-13 * size


def test_too_few_points_are_refused() -> None:
    with pytest.raises(ValueError, match="3 or more"):
        torus_flow(2, torch.device("cpu"))


def test_wavenumbers_are_angular() -> None:
    flow = torus_flow(8, torch.device("cpu"))
    assert flow.k[0, 0, 1].real.item() == pytest.approx(2 * math.pi)
    assert flow.k_squared[-1, 3].real.item() == pytest.approx(4 * math.pi**2 * 10)
