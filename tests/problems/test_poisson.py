from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from torchcno.problems.poisson import Poisson


@pytest.mark.parametrize("split", ["train", "ood"])
def test_solution_satisfies_the_equation(
    split: str, generator: Generator, odd_laplacian: Callable[[Tensor], Tensor]
) -> None:
    problem = Poisson().for_split(split)
    f = problem.sample_inputs(problem.grid(64), 4, generator)
    u = problem.solve(f)
    residual = odd_laplacian(u) + f
    assert residual.abs().max() < 1e-10 * f.abs().max()
    edges = torch.cat([u[..., 0, :], u[..., -1, :], u[..., :, 0], u[..., :, -1]])
    assert edges.abs().max() < 1e-13 * u.abs().max()


def test_source_has_the_stated_amplitudes(generator: Generator) -> None:
    # One mode only: f = π a √2 sin πx sin πy, so that f(1/2, 1/2) = π a √2 with a = first draw.
    problem = Poisson(K=1)
    a = 2 * torch.rand(1, generator=Generator().manual_seed(0), dtype=torch.float64) - 1
    f = problem.sample_inputs(problem.grid(5), 1, generator)
    torch.testing.assert_close(f[0, 0, 2, 2], (torch.pi * a * 2**0.5)[0])


def test_modes_beyond_the_grid_are_refused(generator: Generator) -> None:
    problem = replace(Poisson(), K=63)
    problem.sample_inputs(problem.grid(65), 1, generator)
    with pytest.raises(ValueError, match="at least 65"):
        problem.sample_inputs(problem.grid(64), 1, generator)
