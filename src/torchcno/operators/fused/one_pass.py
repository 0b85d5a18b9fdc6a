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
    keep = torch.is_grad_enabled() and learns
    filters = list(ups), list(downs), sigma
    y: Tensor
    if choice.runs_on_cpu(x, sigma) and not torch.compiler.is_compiling():
        y = _OnCpu.apply(x, bias, *filters) if keep else _launch(x, bias, *filters)[0]
        return y
    if bias is None:
        bias = x.new_zeros(x.shape[1])
    y, _ = torch.ops.torchcno.filtered_activation(x, bias, *filters, keep)
    return y


def _launch(x: Tensor, bias: Tensor | None, *given: Any) -> tuple[Tensor, Tensor]:
    from torchcno.operators.fused import cpu_activation  # Numba is for a CPU alone

    return cpu_activation.launch_forward(x, bias, *given)


class _OnCpu(torch.autograd.Function):
    """Y of x, b, U, D and σ, with gradients.

    The operator that compilers see does the same. Its bookkeeping takes longer than a small field.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, *filters: Any) -> Tensor:
        y, signs = _launch(x, bias, *filters, True)
        ctx.save_for_backward(x, bias, signs)
        ctx.filters = filters
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        from torchcno.operators.fused import cpu_activation, kernels

        x, bias, signs = ctx.saved_tensors
        # A gradient that is to be differentiated again is made of operations that can be.
        if torch.is_grad_enabled():
            zeros = x.new_zeros(x.shape[1]) if bias is None else bias
            dx, dbias = kernels.dense_backward(dy, x, zeros, *ctx.filters)
            return dx, None if bias is None else dbias, *[None] * 3
        dx = cpu_activation.launch_backward(dy, x, signs, *ctx.filters)
        return dx, None if bias is None else cpu_activation.bias_gradient(dx), *[None] * 3
