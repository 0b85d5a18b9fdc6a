"""The filtered activation as one operation, by the programs of `kernels.py`."""

from typing import Any

import torch
from torch import Tensor

from torchcno.operators.fused import choice
from torchcno.operators.fused.choice import PerAxis


def activate_in_one_pass(
    x: Tensor, bias: Tensor | None, ups: PerAxis, downs: PerAxis, sigma: str
) -> Tensor:
    """D σ(U (x + b)), where `choice.why_not_in_one_pass` has nothing against it; None: b = 0."""
    learns = x.requires_grad or (bias is not None and bias.requires_grad)
    given = list(ups), list(downs), sigma, torch.is_grad_enabled() and learns
    y: Tensor
    if choice.runs_on_cpu(x, sigma) and not torch.compiler.is_compiling():
        y = _OnCpu.apply(x, bias, *given)
        return y
    if bias is None:
        bias = x.new_zeros(x.shape[1])
    y, _ = torch.ops.torchcno.filtered_activation(x, bias, *given)
    return y


class _OnCpu(torch.autograd.Function):
    """Y of x, b, U, D, σ, and whether there will be gradients.

    The operator that compilers see does the same. Its bookkeeping takes longer than a small field.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, *given: Any) -> Tensor:
        from torchcno.operators.fused import cpu_activation

        y, signs = cpu_activation.launch_forward(x, bias, *given)
        ctx.save_for_backward(x, bias, signs)
        ctx.filters = given[:3]
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        from torchcno.operators.fused import cpu_activation, kernels

        x, bias, signs = ctx.saved_tensors
        dbias = None
        # A gradient that is to be differentiated again is made of operations that can be.
        if torch.is_grad_enabled():
            zeros = x.new_zeros(x.shape[1]) if bias is None else bias
            dx, dbias = kernels.dense_backward(dy, x, zeros, *ctx.filters)
        else:
            dx = cpu_activation.launch_backward(dy, x, signs, *ctx.filters)
            if bias is not None:
                dbias = cpu_activation.bias_gradient(dx)
        return dx, None if bias is None else dbias, *[None] * 4
