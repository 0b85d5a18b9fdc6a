from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor


@pytest.fixture
def generator() -> Generator:
    return Generator().manual_seed(0)


@pytest.fixture
def odd_laplacian() -> Callable[[Tensor], Tensor]:
    """Δu of a sine series on the unit square, by FFT of its odd extension to the torus."""

    def apply(u: Tensor) -> Tensor:
        inner = u[..., :-1, :-1]
        for axis in (-2, -1):
            mirrored = -inner.flip(axis).roll(1, axis)
            inner = torch.cat([inner, mirrored], dim=axis)
        n = inner.shape[-1]
        k = torch.pi * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
        u_hat = torch.fft.fft2(inner)
        image = torch.fft.ifft2(-(k[:, None] ** 2 + k**2) * u_hat).real
        return image[..., : u.shape[-2], : u.shape[-1]]

    return apply
