"""Σ ∘ norm, the filtered activation of a normalised field, without that field in memory.

    Y = Σ(γ x̂ + β),   x̂ = (x − μ) / √(v + ε)

With the mean μ and the variance v of a channel at hand, normalisation is a scale and a shift, which
the activation's program applies as it reads x. Its gradient G of γ x̂ + β comes with the sums over
all n values of a channel that batch norm's own gradient needs:

    dβ = Σ G,   dγ = Σ G x̂,   dx = γ / √(v + ε) (G − (dβ + x̂ dγ) / n)

one more pass in place of two. Running statistics do not depend on x: 1/n becomes 0, and the
activation's program itself leaves dx.
"""

from typing import Any

import torch
from torch import Tensor, nn

from torchcno.operators.activation import Activation
from torchcno.operators.fused import choice, kernels
from torchcno.operators.fused.batch_norm import dense_normalisation, find_statistics
from torchcno.operators.fused.choice import PerAxis
from torchcno.operators.fused.kernels import Normalisation


def normalise_and_activate(x: Tensor, norm: nn.Module, activation: nn.Module) -> Tensor:
    """activation(norm(x)) by one program, where `block.why_not_fused` has nothing against it."""
    if not (isinstance(norm, nn.BatchNorm2d) and isinstance(activation, Activation)):
        raise TypeError(f"{type(norm).__name__} and {type(activation).__name__} have no program.")
    mean, variance, share = find_statistics(x, norm)
    parameters = (activation.bias, norm.weight, norm.bias)
    matrices = (activation.ups, activation.downs)
    y: Tensor = _NormalisedActivation.apply(
        x, *parameters, mean, variance, norm.eps, share, *matrices, activation.sigma
    )
    return y


class _NormalisedActivation(torch.autograd.Function):
    """Y of x, b, γ, β, μ, v, ε, `share` (as in `Normalisation`), U, D and σ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, *arguments: Any) -> Tensor:
        weight, shift, mean, variance, eps, share, *matrices_and_sigma = arguments
        norm = Normalisation(mean, variance, weight, shift, eps, share)
        ctx.save_for_backward(x, bias, mean, variance, weight, shift)
        ctx.constants = eps, share, matrices_and_sigma
        given = (x, bias, *matrices_and_sigma, norm)
        y: Tensor = kernels.or_dense(kernels.launch_forward, _dense, *given)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, bias, mean, variance, weight, shift = ctx.saved_tensors
        eps, share, matrices_and_sigma = ctx.constants
        norm = Normalisation(mean, variance, weight, shift, eps, share)
        given = (dy, x, bias, *matrices_and_sigma, norm)
        # To be differentiated again: by operations that can be. So also where the arithmetic has
        # changed since, and planes that fitted on chip do not.
        if torch.is_grad_enabled() or not choice.fits_on_chip(x, *matrices_and_sigma[:2]):
            gradients = _dense_backward(*given)
        else:
            gradients = kernels.or_dense(kernels.launch_backward, _dense_backward, *given)
        return *gradients, *[None] * 7


def _dense(
    x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, norm: Normalisation
) -> Tensor:
    return kernels.dense_activation(dense_normalisation(x, norm), bias, ups, downs, sigma)


def _dense_backward(
    dy: Tensor,
    x: Tensor,
    bias: Tensor,
    ups: PerAxis,
    downs: PerAxis,
    sigma: str,
    norm: Normalisation,
) -> tuple[Tensor, ...]:
    def forward(x: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
        return _dense(x, bias, ups, downs, sigma, norm._replace(weight=weight))

    dx, dbias, dweight = torch.func.vjp(forward, x, bias, norm.weight)[1](dy)
    return dx, dbias, dweight, dbias
