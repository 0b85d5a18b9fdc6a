import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems import PROBLEMS, SPLITS, Problem
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.problems.vorticity import Vorticity
from torchcno.spectral import resample

# Where solving takes long, a short time will do: what is tested does not depend on it.
BRIEF: dict[str, dict[str, object]] = {
    "navier-stokes": {"T": 0.01, "N": 64},
    "vorticity": {"T": 0.05},
    "allen-cahn": {"steps": 40},
    "burgers": {"T": 0.01, "N": 64},
    "taylor-green": {"T": 0.02, "N": 16},
    "darcy": {"refinement": 1},
    "discontinuous-transport": {"edges": "exact"},  # sampled ones are other disks on every grid
}
ALL = pytest.mark.parametrize("name", sorted(set(PROBLEMS) - {"airfoil"}))


def brief(name: str, split: str = "train") -> Problem:
    return replace(PROBLEMS[name]().for_split(split), **BRIEF.get(name, {}))


def generators(*seeds: int) -> list[Generator]:
    return [Generator().manual_seed(seed) for seed in seeds]


def points(problem: Problem) -> int:
    """A resolution that takes no time, in any dimension."""
    return 12 if len(problem.extent) == 3 else 40


@ALL
@pytest.mark.parametrize("split", ["train", "ood"])
def test_a_sample_depends_on_its_generator_alone(name: str, split: str) -> None:
    problem = brief(name, split)
    many = problem.pairs(generators(1, 2, 3), points(problem))
    for i, seed in enumerate((1, 2, 3)):
        alone = problem.pairs(generators(seed), points(problem))
        for fields, field in zip(many, alone, strict=True):
            assert torch.equal(fields[i], field[0])
    assert not torch.equal(many[0][0], many[0][1])


@ALL
def test_a_generator_stands_for_a_function(name: str) -> None:
    """The same draw on two grids that share points has the same values there."""
    problem = brief(name)
    coarse, fine = (129, 257) if problem.layout == "inclusive" else (128, 256)
    if len(problem.extent) == 3:
        coarse, fine = 16, 32
    on_coarse, on_fine = (
        problem.sample_inputs(problem.grid(n), 1, Generator().manual_seed(4))
        for n in (coarse, fine)
    )
    if name == "navier-stokes":  # not band-limited: the coarse grid has its projection
        projected = resample(on_fine, (coarse, coarse), "periodic")
        torch.testing.assert_close(projected, on_coarse, atol=1e-5, rtol=0)
    else:
        shared = (..., *[slice(None, None, 2)] * len(problem.extent))
        torch.testing.assert_close(on_fine[shared], on_coarse, atol=1e-12, rtol=0)


@ALL
def test_out_of_distribution_differs_and_the_other_splits_do_not(name: str) -> None:
    problem = PROBLEMS[name]()
    assert set(problem.samples) == set(SPLITS)
    for split in ("train", "val", "test"):
        assert problem.for_split(split) == problem
    assert problem.for_split("ood") != problem


@pytest.mark.gpu
@ALL
def test_devices_agree(name: str) -> None:
    problem = brief(name)
    for here, there in zip(
        problem.pairs(generators(1, 2), points(problem)),
        problem.pairs(generators(1, 2), points(problem), device="cuda"),
        strict=True,
    ):
        torch.testing.assert_close(here, there, rtol=0, atol=1e-9 * here.abs().max().item())


@ALL
def test_bad_states_are_refused(name: str) -> None:
    problem = brief(name)
    c, space = problem.state_channels, problem.solver_grid(32).shape
    good = torch.ones(1, c, *space, dtype=torch.float64)
    bad = good.clone()
    bad[0, 0, 3] = float("nan")
    refused = [
        (good[0], "states of shape"),
        (good[:0], "states of shape"),
        (torch.ones(1, c + 1, *space), "states of shape"),
        (torch.ones(1, c, *space, dtype=torch.int64), "floating-point"),
        (bad, "NaN or infinite"),
    ]
    if len(space) > 1:
        refused.append((torch.ones(1, c, *space[:-1], space[-1] + 1), "square grids"))
    for inputs, message in refused:
        with pytest.raises(ValueError, match=message):
            problem.solve(inputs)


def test_paper_sizes() -> None:
    """Section 3 and the supplement: samples for training, validation, testing in and out."""
    sizes = {name: tuple(PROBLEMS[name].samples[split] for split in SPLITS) for name in PROBLEMS}
    assert sizes["poisson"] == (1024, 128, 256, 256)
    assert sizes["wave"] == (512, 128, 256, 256)
    assert sizes["smooth-transport"] == sizes["discontinuous-transport"] == (512, 256, 256, 256)
    assert sizes["allen-cahn"] == sizes["darcy"] == (256, 128, 128, 128)
    assert sizes["navier-stokes"] == (750, 128, 128, 128)


# Section 3, the supplement and the published samples: constants, and those that differ for ood.
CONSTANTS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "poisson": ({"K": 16, "r": -0.5}, {"K": 20}),
    "wave": ({"K": 24, "r": 1.0, "c": 0.1, "T": 5.0}, {"K": 32, "r": 0.85}),
    "smooth-transport": (
        {"velocity": (0.2, 0.2), "T": 1.0, "centre": (0.2, 0.4), "variance": (0.003, 0.009)},
        {"centre": (0.4, 0.6)},
    ),
    "discontinuous-transport": (
        {"velocity": (0.2, 0.2), "T": 1.0, "centre": (0.2, 0.4), "radius": (0.1, 0.2)},
        {"centre": (0.4, 0.6)},
    ),
    "allen-cahn": (
        {"K": 24, "r": (1.0, 1.0), "amplitude": 1 / math.pi, "epsilon": 220.0, "steps": 373},
        {"K": 16, "r": (0.85, 1.15)},
    ),
    "navier-stokes": (
        {"rho": 0.1, "delta": 0.025, "p": 10, "T": 1.0, "N": 128, "epsilon": 0.05},
        {"rho": 0.09, "centre": 0.45},
    ),
    "darcy": ({"variance": 0.1, "length": 0.224, "high": 12.0, "low": 3.0}, {"length": 0.158}),
    "airfoil": ({"bumps": 10}, {"bumps": 15}),
    "vorticity": (
        {"tau": 7.0, "scale": 686.0, "alpha": 2.5, "nu": 1e-3, "forcing": 0.1, "T": 30.0},
        {"tau": 10.0, "scale": 2000.0},
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_paper_constants(name: str) -> None:
    problem = PROBLEMS[name]()
    within, beyond = CONSTANTS[name]
    found = {field: getattr(problem, field) for field in within}
    assert found == within
    assert dict(problem.ood) == beyond
    outside = problem.for_split("ood")
    assert {field: getattr(outside, field) for field in beyond} == dict(problem.ood)


def test_unknown_split_lists_the_splits() -> None:
    with pytest.raises(ValueError, match="ood, test, train, val"):
        Poisson().for_split("validation")


@pytest.mark.parametrize("problem", [NavierStokes(), Vorticity()])
def test_flows_are_solved_on_their_own_grid(problem: NavierStokes | Vorticity) -> None:
    for resolution in (32, 64, 256):
        assert problem.solver_grid(resolution).shape == (problem.N, problem.N)


@dataclass(frozen=True)
class Heat(Problem):
    """Heat equation on a box with one side of length 1, 2, … per axis, by its first mode."""

    axes: int = 1
    T: float = 0.01

    name: ClassVar = "heat"
    layout: ClassVar = "periodic"
    boundary: ClassVar = "periodic"
    square: ClassVar = False

    @property
    def extent(self) -> tuple[tuple[float, float], ...]:
        return tuple((0.0, 1.0 + i) for i in range(self.axes))

    def solver_grid(self, resolution: int | tuple[int, ...]) -> Grid:
        grid = self.grid(resolution)
        return grid.resized(*(2 * n for n in grid.shape))

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        sides = [b - a for a, b in grid.extent]
        waves = [torch.cos(2 * math.pi * x / L) for x, L in zip(grid.mesh(), sides, strict=True)]
        amplitude = torch.rand(n, *[1] * (1 + len(sides)), generator=generator).double()
        return amplitude * math.prod(waves)

    def solve(self, inputs: Tensor) -> Tensor:
        rate = sum((2 * math.pi / (b - a)) ** 2 for a, b in self.extent)
        return math.exp(-rate * self.T) * self.checked(inputs)


@pytest.mark.parametrize("resolution", [(12,), 12, (12, 20), (6, 8, 10), 8])
def test_a_problem_may_have_any_dimension_and_shape(resolution: int | tuple[int, ...]) -> None:
    axes = len(resolution) if isinstance(resolution, tuple) else 3
    problem = Heat(axes)
    grid = problem.grid(resolution)
    assert len(grid.shape) == axes
    inputs, outputs = problem.pairs(generators(1, 2), resolution)
    assert inputs.shape == (2, 1, *grid.shape)
    # The modes of a box are its own: a restriction keeps the first, and the solver damps it.
    torch.testing.assert_close(inputs[:1], problem.sample_inputs(grid, 1, *generators(1)))
    rate = sum((2 * math.pi / side) ** 2 for side in range(1, axes + 1))
    torch.testing.assert_close(outputs, math.exp(-0.01 * rate) * inputs)


def test_a_grid_is_square_where_the_solver_needs_it() -> None:
    assert Poisson().grid((8, 8)) == Poisson().grid(8)
    with pytest.raises(ValueError, match=r"poisson solves on square grids, not \(8, 9\)"):
        Poisson().grid((8, 9))
