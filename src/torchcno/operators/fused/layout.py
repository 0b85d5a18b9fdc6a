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


def laid_out(model: nn.Module) -> nn.Module:
    """`model` with its weights as it is fastest: channels last, in a plane, where it says so.

    Fields take the memory format of the weights that they meet.
    """
    if getattr(model, "CHANNELS_LAST", False):
        for weight in model.parameters():
            if weight.ndim == 4:
                # A clone: with one channel in, a weight is `contiguous` both ways, as it is.
                weight.data = weight.data.clone(memory_format=torch.channels_last)
    return model
