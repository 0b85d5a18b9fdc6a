"""Errors of rollouts against time."""

import math
from dataclasses import replace

import pytest
import torch

from torchcno.data.trajectories import Trajectories
from torchcno.evaluation.rollout import (
    compare_rollouts,
    correlated_times,
    correlation,
    measure_rollout,
    persist,
    roll_out_linearly,
    vrmse,
)
from torchcno.grids import Grid

GRID = Grid((16,), "periodic")


def moving(n: int, times: int = 6, seed: int = 0) -> Trajectories:
    """Random waves that move to the right and decay: a linear evolution."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.randn(n, 1, 4, generator=generator, dtype=torch.complex128)
    low[..., 0] = 0.5
    t = 0.1 * torch.arange(times, dtype=torch.float64)
    k = 2 * math.pi * torch.arange(4, dtype=torch.float64)
    modes = low[:, None] * torch.exp(-(1j * k + 0.01 * k**2) * t[:, None, None])
    states = torch.fft.irfft(torch.nn.functional.pad(modes, (0, 5)), 16) * 16
    return Trajectories(states, t, GRID)


def test_the_truth_has_no_error_and_full_correlation():
    truth = moving(4)
    (own,) = compare_rollouts({}, truth)
    assert own.metrics["relative_l1"] == (0.0,) * 6
    assert own.metrics["vrmse"] == (0.0,) * 6
    assert own.metrics["correlation"] == pytest.approx((1.0,) * 6)
    assert (own.correlated_until, own.lasting) == (pytest.approx(0.5), 1.0)


def test_spectra_hold_the_energy_of_every_time():
    truth = moving(4)
    (own,) = compare_rollouts({}, truth)
    energy = truth.states.square().sum(2).mean((0, 2))
    assert torch.allclose(torch.tensor(own.spectra, dtype=torch.float64).sum(1), energy)


def test_the_mean_value_has_vrmse_one_and_scaling_leaves_the_correlation():
    u = torch.randn(5, 2, 64, dtype=torch.float64)
    mean = u.mean(2, keepdim=True).expand_as(u)
    assert torch.allclose(vrmse(mean, u), torch.ones(5, dtype=torch.float64))
    assert torch.allclose(correlation(3 * u + 1, u), torch.ones(5, dtype=torch.float64))
    assert torch.allclose(correlation(-u, u), -torch.ones(5, dtype=torch.float64))


def test_the_time_of_lost_correlation_lies_on_the_line_between_two_times():
    times = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    rows = torch.tensor(
        [[1.0, 0.95, 0.85], [1.0, 1.0, 1.0], [0.5, 1.0, 1.0], [1.0, math.nan, 1.0]],
        dtype=torch.float64,
    )
    assert correlated_times(rows, times).tolist() == pytest.approx([1.5, 2.0, 0.0, 0.05])


def test_a_linear_map_rolls_out_a_linear_evolution_exactly():
    train, val, truth = moving(40, seed=1), moving(4, seed=2), moving(5, times=9, seed=3)
    found = roll_out_linearly(train, val, truth)
    assert (found - truth.states).abs().max() < 1e-5 * truth.states.abs().max()
    errors = measure_rollout("linear", found, truth)
    still = measure_rollout("persistence", persist(truth), truth)
    assert errors.metrics["relative_l1"][-1] < 1e-4 < still.metrics["relative_l1"][-1]


def test_invariants_are_followed_over_time():
    truth = moving(3)
    errors = measure_rollout("truth", truth.states, truth, lambda u: {"mean": u.mean((-2, -1))})
    assert errors.invariants["mean"] == pytest.approx((0.5,) * 6)


def test_rollouts_of_another_shape_are_refused():
    truth = moving(3)
    with pytest.raises(ValueError, match="cannot be compared"):
        measure_rollout("short", truth.states[:, 1:], truth)
    uneven = replace(truth, times=torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4, 0.6]))
    with pytest.raises(ValueError, match="differ"):
        roll_out_linearly(uneven, truth, truth)
