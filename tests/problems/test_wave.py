from collections.abc import Callable
from copy import copy

import pytest
import torch
from torch import Generator, Tensor
from torch.func import jvp

from torchcno.problems.wave import Wave


# torch's own forward-mode rules are still scripted
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("split", ["train", "ood"])
def test_solution_satisfies_the_equation(
    split: str, generator: Generator, odd_laplacian: Callable[[Tensor], Tensor]
) -> None:
    problem = Wave().for_split(split)
    f = problem.sample_inputs(problem.grid(64), 2, generator)

    def u(time: Tensor) -> Tensor:
        at_time = copy(problem)
        object.__setattr__(at_time, "T", time)  # a number that can be differentiated by
        return at_time.solve(f)

    def u_t(time: Tensor) -> Tensor:
        return jvp(u, (time,), (torch.ones_like(time),))[1]

    now = torch.tensor(problem.T, dtype=torch.float64)
    u_tt = jvp(u_t, (now,), (torch.ones_like(now),))[1]
    residual = u_tt - problem.c**2 * odd_laplacian(u(now))
    assert residual.abs().max() < 1e-10 * u_tt.abs().max()
    torch.testing.assert_close(u(torch.zeros_like(now)), f)
    assert u_t(torch.zeros_like(now)).abs().max() < 1e-14


def test_wave_comes_back_after_its_period() -> None:
    # sin(3πx) sin(4πy) oscillates with frequency 5cπ
    problem = Wave(c=0.1, T=2 / (0.1 * 5))
    y, x = problem.grid(33).mesh()
    f = (torch.sin(3 * torch.pi * x) * torch.sin(4 * torch.pi * y))[None, None]
    torch.testing.assert_close(problem.solve(f), f, atol=1e-12, rtol=0)
