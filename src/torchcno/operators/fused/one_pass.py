"""The filtered activation as one operator, which `kernels.py` makes known to PyTorch."""

import torch
from torch import Tensor

from torchcno.operators.fused.choice import PerAxis


def activate_in_one_pass(
    x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str
) -> Tensor:
    """D σ(U (x + b)), where `choice.why_not_in_one_pass` has nothing against it."""
    keep = torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad)
    filters = list(ups), list(downs), sigma
    y, _ = torch.ops.torchcno.filtered_activation(x, bias, *filters, keep)
    result: Tensor = y
    return result
