from dataclasses import replace

import pytest
import torch
from scipy.stats import ncx2
from torch import Generator

from torchcno.grids import Grid
from torchcno.problems.transport import DiscontinuousTransport, SmoothTransport

EXACT = DiscontinuousTransport(edges="exact")
BOTH = [SmoothTransport(), EXACT]


@pytest.mark.parametrize(
    "problem", [SmoothTransport(), EXACT, DiscontinuousTransport(radius=(0.1, 0.12))]
)
def test_transport_by_whole_grid_steps_is_a_shift(
    problem: SmoothTransport | DiscontinuousTransport, generator: Generator
) -> None:
    step = problem.grid(64).spacing[0]
    problem = replace(problem, velocity=(6 * step, 3 * step), T=2.0)
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


def test_each_smooth_field_is_divided_by_its_own_largest_value(generator: Generator) -> None:
    problem = SmoothTransport()
    for fields in problem.pairs([Generator().manual_seed(i) for i in range(8)], 64):
        assert (fields.amax((-2, -1)) == 1).all()
    peaks = problem.sample_inputs(problem.grid(64), 1000, generator).amax((-2, -1))
    scatter = (peaks[:, 1] / peaks[:, 0] - 1).abs()
    # the mean over all shapes is 0.37 %
    assert scatter.mean() == pytest.approx(0.0037, abs=5 * scatter.std().item() / 1000**0.5)


def test_smoothed_disk_is_the_disk_convolved_with_a_gaussian(generator: Generator) -> None:
    # |x + noise|² / s² is non-central χ²: an independent formula for the radial profile
    problem = replace(EXACT, centre=(0.5, 0.5), radius=(0.17, 0.17))
    grid = Grid((41, 41), "inclusive")
    f = problem.observe(problem.sample_inputs(grid, 1, generator))[0, 0]
    y, x = grid.mesh()
    distance = ((y - 0.5) ** 2 + (x - 0.5) ** 2).numpy()
    s = problem.smoothing
    expected = torch.from_numpy(ncx2.cdf(0.17**2 / s**2, 2, distance / s**2))
    torch.testing.assert_close(f, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("problem", [EXACT, DiscontinuousTransport()])
def test_band_limited_disks_hardly_overshoot(problem: DiscontinuousTransport) -> None:
    generators = [Generator().manual_seed(i) for i in range(16)]
    for fields in problem.pairs(generators, 64):
        assert fields.min() > -0.01
        assert fields.max() < 1.01


def test_disks_are_sampled_with_both_ends_and_halved_as_if_periodic() -> None:
    problem = DiscontinuousTransport()
    j = torch.arange(128, dtype=torch.float64)
    torch.testing.assert_close(problem.solver_grid(64).axis(0), j / 127, rtol=1e-15, atol=0)
    torch.testing.assert_close(problem.grid(64).axis(0), j[::2] / 127, rtol=1e-15, atol=0)
    # a wave of the periodic grid, one that 64 points do not resolve, and what is left of both
    wave = torch.cos(2 * torch.pi * 5 * j / 128).expand(1, 1, 128, 128)
    unresolved = torch.cos(2 * torch.pi * 40 * j / 128)
    torch.testing.assert_close(problem.restrict(wave + unresolved, 64), wave[..., ::2, ::2])


def test_sampled_disks_are_zero_or_one_before_they_are_filtered(generator: Generator) -> None:
    problem = DiscontinuousTransport(centre=(0.31, 0.31), radius=(0.15, 0.15), smoothing=0.0)
    state = problem.sample_inputs(problem.solver_grid(64), 1, generator)[0]
    j = torch.arange(128, dtype=torch.float64)
    for field, centre in zip(state, (0.31, 0.51), strict=True):
        disk = (j[:, None] / 127 - centre) ** 2 + (j / 127 - centre) ** 2 <= 0.15**2
        assert torch.equal(field, disk.double())


def test_the_filter_reflects_at_the_ends_and_has_its_width(generator: Generator) -> None:
    grid = DiscontinuousTransport().solver_grid(64)
    # the ends take nothing away: a disk that they cut keeps its points
    cut = DiscontinuousTransport(centre=(0.1, 0.1))
    filtered, sampled = (
        p.sample_inputs(grid, 4, generator.manual_seed(0)).sum((-2, -1))
        for p in (cut, replace(cut, smoothing=0.0))
    )
    torch.testing.assert_close(filtered, sampled)
    # away from them the disk's variance along an axis grows by that of the filter
    inside = DiscontinuousTransport(centre=(0.3, 0.3), radius=(0.1, 0.1))
    x = grid.axis(1)
    variances = []
    for problem in (inside, replace(inside, smoothing=0.0)):
        f = problem.sample_inputs(grid, 1, generator)[0, 0]
        variances.append(((x - 0.3) ** 2 * f).sum() / f.sum())
    assert (variances[0] - variances[1]) * 127**2 == pytest.approx(1.75**2, rel=2e-3)


def test_sampled_disks_come_to_the_exact_ones_on_fine_grids(generator: Generator) -> None:
    differences = []
    for points in (64, 256, 1024):
        exact, sampled = (
            DiscontinuousTransport(edges=edges, radius=(0.1, 0.12)).sample_inputs(
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
