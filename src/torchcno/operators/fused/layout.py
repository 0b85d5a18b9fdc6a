"""How fields and weights lie in memory."""

import torch
from torch import Tensor, nn


def memory_format(x: Tensor) -> torch.memory_format:
    """The format of what is made from `x`: channels last where `x` is so, else contiguous."""
    if x.ndim == 4 and not x.is_contiguous():
        last = torch.channels_last
        return last if x.is_contiguous(memory_format=last) else torch.contiguous_format
    return torch.contiguous_format


def weight_format(weight: Tensor) -> torch.memory_format:
    """The format of a convolution's fields: channels last where its weights are so.

    By their strides, since weights of a single channel are contiguous either way.
    """
    last = weight.ndim == 4 and weight.stride(1) == 1
    return torch.channels_last if last else torch.contiguous_format


def lay_channels_last(model: nn.Module, last: bool = True) -> None:
    """Lay the weights for planes with channels last in memory, or with channels first.

    Fields take the memory format of the weights that they meet.
    """
    for weight in model.parameters():
        if weight.ndim == 4:
            # A clone: with one channel in, a weight is `contiguous` both ways, as it is.
            layout = torch.channels_last if last else torch.contiguous_format
            weight.data = weight.data.clone(memory_format=layout)
