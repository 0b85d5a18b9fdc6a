"""A march of many like steps on a GPU, each as one launch.

A multigrid cycle is some five thousand kernels of a few microseconds. Launched one by one they wait
for the host unless the batch is large; captured in a CUDA graph they do not.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from torchcno.capture import capturing, reason

March = Callable[[Tensor, float | Tensor], Tensor]  # a state, and the CFL number -> the next state


class Replayed:
    """A march, captured in a CUDA graph at its second call and replayed from then on.

    The first call runs eagerly, and leaves what the march computes once and keeps outside the
    graph. States have the same shape in every call. A march that cannot be captured runs eagerly,
    and a warning says why.
    """

    def __init__(self, march: March) -> None:
        self._eager = march  # a graph knows addresses alone: the march owns the memory behind them
        self._next: March | None = None

    def __call__(self, state: Tensor, cfl: float | Tensor) -> Tensor:
        """The next state, in memory of its own."""
        if self._next is None:
            self._next = self._capture_and_go_on
            return self._eager(state, cfl)
        return self._next(state, cfl)

    def _capture_and_go_on(self, state: Tensor, cfl: float | Tensor) -> Tensor:
        try:
            self._next = _capture(self._eager, state)
        except RuntimeError as error:
            self._next = self._eager
            warnings.warn(f"flows are computed without a CUDA graph: {reason(error)}", stacklevel=3)
        return self._next(state, cfl)


def _capture(march: March, like: Tensor) -> March:
    """`march` as a graph, with the memory that it reads from and writes to."""
    graph, state, cfl = torch.cuda.CUDAGraph(), torch.empty_like(like), like.new_empty(())
    with torch.cuda.device(state.device), capturing(graph):
        result = march(state, cfl)

    def replay(now: Tensor, number: float | Tensor) -> Tensor:
        state.copy_(now)
        cfl.fill_(number)
        graph.replay()
        return result.clone()  # the next replay overwrites it

    return replay
