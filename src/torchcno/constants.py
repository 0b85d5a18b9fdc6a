"""Tensors that are made once and kept."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")

_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@contextmanager
def constants() -> Iterator[None]:
    """Within it tensors are made that suit any later use, whatever the first one happens in.

    Neither the default device, nor inference mode, nor a transformation of `torch.func` leaves its
    mark on them, nor `torch.export`, whose tensors hold no numbers, nor `torch.jit.trace`.
    """
    tracing = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        with (
            _disable_current_modes(),
            torch.device("cpu"),
            torch.inference_mode(False),
            torch._C._DisableFuncTorch(),
        ):
            yield
    finally:
        torch._C._set_tracing_state(tracing)  # type: ignore[attr-defined]


def remember(make: Callable[[], Made], what: Hashable, *matrices: Tensor) -> Made:
    """make(), or what it made before under the name `what` of these matrices in their state.

    It goes with the first of the matrices.
    """
    first = matrices[0]
    known: dict[Any, tuple[Made, list[Tensor]]] = _known.setdefault(first, {})
    # `_version` counts changes in place; inference tensors have none.
    versions = (0 if matrix.is_inference() else matrix._version for matrix in matrices)
    key = (what, *map(id, matrices), *versions)
    if key not in known:
        # The other matrices are kept, so that no new ones come to have their addresses.
        made = make(), [matrix for matrix in matrices if matrix is not first]
        # What is made while a graph is captured holds nothing until that graph runs.
        if first.is_cuda and torch.cuda.is_current_stream_capturing():
            return made[0]
        known[key] = made
    return known[key][0]
