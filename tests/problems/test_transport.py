from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.stats import ncx2
from torch import Generator

from torchcno.grids import Grid
from torchcno.problems.transport import DiscontinuousTransport, SmoothTransport

BOTH = [SmoothTransport(), DiscontinuousTransport()]
SAMPLED = DiscontinuousTransport(edges="sampled")


@pytest.mark.parametrize("problem", [*BOTH, SAMPLED])
def test_transport_by_whole_grid_steps_is_a_shift(
    problem: SmoothTransport | DiscontinuousTransport, generator: Generator
) -> None:
    problem = replace(problem, velocity=(6 / 63, 3 / 63), T=2.0)
    state = problem.sample_inputs(problem.grid(64), 3, generator)
    before, after = problem.observe(state), problem.solve(state)
    torch.testing.assert_close(after[..., 6:, 12:], before[..., :-6, :-12], atol=1e-12, rtol=0)


@pytest.mark.parametrize("problem", BOTH)
def test_transport_keeps_the_shape_and_moves_its_centre(
    problem: SmoothTransport | DiscontinuousTransport, generator: Generator
) -> None:
    state = problem.sample_inputs(problem.grid(128), 8, generator)
    y, x = problem.grid(128).mesh()

    def centre(u: torch.Tensor) -> torch.Tensor:
        mass = u**4  # a power whose tails stay within the square
        moments = torch.stack([(mass * x).sum((-2, -1)), (mass * y).sum((-2, -1))], dim=-1)
        return moments / mass.sum((-2, -1))[..., None]

    before, after = problem.observe(state), problem.solve(state)
    moved = centre(after) - centre(before)
    expected = torch.tensor(problem.velocity, dtype=torch.float64).expand_as(moved)
    torch.testing.assert_close(moved, expected, atol=2e-4, rtol=0)


def test_gaussian_has_its_peak_and_width(generator: Generator) -> None:
    problem = replace(SmoothTransport(), centre=(0.5, 0.5), variance=(0.004, 0.004))
    f = problem.observe(problem.sample_inputs(problem.grid(65), 1, generator))[0, 0]
    assert f[32, 32] == 1.0
    torch.testing.assert_close(
        f[32, 32 + 4], torch.tensor(-((4 / 64) ** 2) / 0.008, dtype=torch.float64).exp()
    )


def test_smoothed_disk_is_the_disk_convolved_with_a_gaussian(generator: Generator) -> None:
    # |x + noise|² / s² is non-central χ²: an independent formula for the radial profile
    problem = replace(DiscontinuousTransport(), centre=(0.5, 0.5), radius=(0.17, 0.17))
    grid = Grid((41, 41), "inclusive")
    f = problem.observe(problem.sample_inputs(grid, 1, generator))[0, 0]
    y, x = grid.mesh()
    distance = ((y - 0.5) ** 2 + (x - 0.5) ** 2).numpy()
    s = problem.smoothing
    expected = torch.from_numpy(ncx2.cdf(0.17**2 / s**2, 2, distance / s**2))
    torch.testing.assert_close(f, expected, atol=1e-9, rtol=0)


def test_band_limited_disks_hardly_overshoot() -> None:
    problem = DiscontinuousTransport()
    generators = [Generator().manual_seed(i) for i in range(16)]
    for fields in problem.pairs(generators, 64):
        assert fields.min() > -0.01
        assert fields.max() < 1.01


def test_sampled_disks_are_filtered_samples(generator: Generator) -> None:
    state = SAMPLED.sample_inputs(SAMPLED.solver_grid(64), 4, generator)
    centre_x, centre_y, radius = SAMPLED._draw(4, generator.manual_seed(0)).T[..., None, None]
    inside = slice(24, -24)  # where the filter meets no edge
    y, x = SAMPLED.grid(128).mesh()
    for channel, moved in enumerate((0.0, 0.2)):
        disk = (y - moved - centre_y) ** 2 + (x - moved - centre_x) ** 2 <= radius**2
        expected = gaussian_filter(disk.double().numpy(), (0, 1.75, 1.75), truncate=6)
        found = state[:, channel].numpy()
        np.testing.assert_allclose(
            found[:, inside, inside], expected[:, inside, inside], atol=1e-12, rtol=0
        )


def test_sampled_disks_come_to_the_exact_ones_on_fine_grids(generator: Generator) -> None:
    differences = []
    for points in (64, 256, 1024):
        exact, sampled = (
            DiscontinuousTransport(edges=edges).sample_inputs(
                Grid((points, points), "inclusive"), 1, generator.manual_seed(3)
            )
            for edges in ("exact", "sampled")
        )
        differences.append(float((exact - sampled).abs().mean()))
    assert differences[0] > 4 * differences[1] > 16 * differences[2]


def test_unknown_edges_list_what_there_is() -> None:
    problem = DiscontinuousTransport()
    object.__setattr__(problem, "edges", "round")  # past the type checker that runs with the tests
    with pytest.raises(ValueError, match="exact, sampled"):
        problem.__post_init__()
