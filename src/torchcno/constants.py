"""Tensors that are made once and kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def constants() -> Iterator[None]:
    """Within it tensors are made that suit any later use, whatever the first one happens in.

    Neither the default device, nor inference mode, nor a transformation of `torch.func` leaves its
    mark on them.
    """
    with torch.device("cpu"), torch.inference_mode(False), torch._C._DisableFuncTorch():
        yield
