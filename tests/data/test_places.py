"""A force in a fixed place shows in the mean of the outputs, and nothing else does."""

import math

import pytest
import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.places import PlaceDependence, outputs_know_places
from torchcno.data.statistics import merge_moments
from torchcno.grids import Grid

N = 32
GRID = Grid((N, N), "periodic", ((0.0, 1.0), (0.0, 1.0)))


def waves(samples: int, seed: int, modes: int = 3) -> Tensor:
    """Smooth random fields, alike everywhere: phases are uniform."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.arange(N, dtype=torch.float64) / N
    u = torch.zeros(samples, 1, N, N, dtype=torch.float64)
    for ky in range(modes):
        for kx in range(1, modes):
            phase = 2 * math.pi * torch.rand(samples, 1, 1, generator=generator)
            size = torch.rand(samples, 1, 1, generator=generator)
            u[:, 0] += size * torch.cos(2 * math.pi * (ky * x[:, None] + kx * x) + phase)
    return u


def measure(u: Tensor) -> float:
    found = PlaceDependence()
    for block in u.split(7):
        found.add(block)
    return found.result()


def force() -> Tensor:
    x = torch.arange(N, dtype=torch.float64) / N
    return torch.sin(2 * math.pi * (x[:, None] + x))


@pytest.mark.parametrize("samples", [16, 64, 256])
@pytest.mark.parametrize("modes", [2, 3, 8])
def test_the_measure_is_about_one_where_no_place_differs(samples, modes):
    measured = [measure(waves(samples, seed, modes)) for seed in range(20)]
    assert 0.5 < sum(measured) / len(measured) < 2


def test_blocks_make_the_measure_of_the_whole():
    u = waves(40, 3) + force()
    mean, variance = u.flatten(2).mean(0), u.flatten(2).var(0)
    whole = (mean - mean.mean()).square().mean() / (variance.mean() / 40)
    assert measure(u) == pytest.approx(float(whole))


@pytest.mark.parametrize("samples", [32, 128])
def test_a_force_in_a_fixed_place_is_found_and_an_equivariant_map_is_not(samples):
    u = waves(samples, 0)
    moved = u.roll((3, 5), (2, 3)).square() - u
    assert not outputs_know_places(Fields(u, moved, GRID))
    assert outputs_know_places(Fields(u, moved + 2 * force(), GRID))


def test_inputs_that_differ_by_place_themselves_say_nothing():
    u = waves(64, 0) + force()
    assert not outputs_know_places(Fields(u, 2 * u, GRID))


def test_constants_and_single_samples_are_no_sign():
    one = torch.ones(8, 1, N, N)
    assert not outputs_know_places(Fields(one, one, GRID))
    assert not outputs_know_places(Fields(waves(1, 0), waves(1, 1), GRID))


def test_moments_of_two_blocks_are_those_of_both_together():
    u = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def moments(block):
        return len(block), block.mean(0), (block - block.mean(0)).square().sum(0)

    for merged, whole in zip(
        merge_moments(moments(u[:5]), moments(u[5:])), moments(u), strict=True
    ):
        torch.testing.assert_close(merged, whole)
