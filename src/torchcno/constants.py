"""Tensors that are made once and kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


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
