"""Networks that have learnt: batch norm is a part of their weights, and everything is prepared."""

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from torchcno.operators.activation import Activation
from torchcno.operators.block import NOTHING
from torchcno.operators.conditioning import is_conditioned
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused.block import fold
from torchcno.operators.fused.prepared import PreparedActivation, PreparedConvolution

Network = TypeVar("Network", bound=nn.Module)

_FOLDED = (_BatchNorm, nn.Identity)  # norms that are a scale and a shift in evaluation mode


def for_inference(network: Network) -> Network:
    """A copy that computes what `network` does in evaluation mode, to rounding, and faster.

    It does not learn, and later changes of `network` do not reach it. In evaluation mode batch norm
    is a scale and a shift s, which the convolution before can have:

        Σ(s (K f − μ) + β + b) = Σ(K' f),   s = γ / √(v + ε)

    A module names the parts of its blocks in `BLOCKS`: (convolution, norm, activation), each None
    where there is none. Where scalars scale and shift fields after the norm, the bias of Σ stays
    behind them.
    """
    prepared = copy.deepcopy(network).eval().requires_grad_(False)
    conditioned = any(map(is_conditioned, prepared.modules()))
    for module in list(prepared.modules()):
        for convolution, norm, activation in getattr(module, "BLOCKS", ()):
            if norm is not None and not isinstance(getattr(module, norm), _FOLDED):
                norm = activation = None  # the field itself decides what this norm does
            elif norm is not None and conditioned:
                activation = None
            _prepare(module, convolution, norm, activation)
        if isinstance(module, nn.Sequential):
            _fold_neighbours(module)
    return prepared


@torch.no_grad()
def _prepare(module: nn.Module, convolution: str, norm: str | None, activation: str | None) -> None:
    kernel = getattr(module, convolution)
    if not isinstance(kernel, Convolution):
        return
    weight, bias = kernel.weight.detach(), kernel.bias.detach()
    if norm is not None:
        weight, bias = fold(kernel, getattr(module, norm))
        setattr(module, norm, NOTHING)
    if activation is not None and isinstance(sigma := getattr(module, activation), Activation):
        bias = bias + sigma.bias
        sigma.bias.zero_()
        setattr(module, activation, PreparedActivation(sigma))
    setattr(module, convolution, PreparedConvolution(weight, bias, kernel.boundaries))


def _fold_neighbours(sequence: nn.Sequential) -> None:
    """PyTorch's own convolutions with the batch norms that follow them."""
    for i in range(len(sequence) - 1):
        first, second = sequence[i], sequence[i + 1]
        if isinstance(first, nn.Conv2d | nn.ConvTranspose2d) and type(second) is nn.BatchNorm2d:
            transposed = isinstance(first, nn.ConvTranspose2d)
            sequence[i] = fuse_conv_bn_eval(first, second, transposed)
            sequence[i + 1] = NOTHING
