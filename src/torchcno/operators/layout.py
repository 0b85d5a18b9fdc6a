"""How fields lie in memory."""

import torch
from torch import Tensor


def memory_format(x: Tensor) -> torch.memory_format:
    """The format of what is made from `x`: channels last where `x` is so, else contiguous."""
    if x.ndim == 4 and not x.is_contiguous():
        last = torch.channels_last
        return last if x.is_contiguous(memory_format=last) else torch.contiguous_format
    return torch.contiguous_format
