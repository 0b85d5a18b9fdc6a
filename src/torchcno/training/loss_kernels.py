"""The relative L¹ loss and its gradient in three kernels; importing this file needs Triton."""

# mypy: disable-error-code="no-untyped-def"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 2048  # numbers that a program works on at a time
PROGRAMS = 128  # among which a batch is divided, at most


def relative_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """Σ |p − v| / Σ |v| of fields in float32; only the prediction has a gradient."""
    ratio: Tensor = _RelativeL1.apply(prediction.contiguous(), target.contiguous())
    return ratio


class _RelativeL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prediction: Tensor, target: Tensor) -> Tensor:
        parts = sum_magnitudes(prediction, target)
        ctx.save_for_backward(prediction, target, parts)
        return divide_sums(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None]:
        prediction, target, parts = ctx.saved_tensors
        return ratio_gradient(prediction, target, parts, dloss), None


def sum_magnitudes(prediction: Tensor, target: Tensor) -> Tensor:
    """Parts of Σ |p − v| and of Σ |v|: (2, part)."""
    n = target.numel()
    parts = torch.empty(2, min(PROGRAMS, -(-n // BLOCK)), device=target.device)
    _sum_magnitudes[(parts.shape[1],)](prediction, target, parts, n, BLOCK=BLOCK)
    return parts


def divide_sums(parts: Tensor) -> Tensor:
    """Σ |p − v| / Σ |v| from their parts."""
    ratio = torch.empty((), device=parts.device)
    _divide_sums[(1,)](parts, ratio, parts.shape[1], BLOCK=PROGRAMS)
    return ratio


def ratio_gradient(prediction: Tensor, target: Tensor, parts: Tensor, dloss: Tensor) -> Tensor:
    """dloss · sign(p − v) / Σ |v|."""
    gradient, n = torch.empty_like(prediction), target.numel()
    _ratio_gradient[(-(-n // BLOCK),)](
        prediction, target, parts, dloss, gradient, n, parts.shape[1], PARTS=PROGRAMS, BLOCK=BLOCK
    )
    return gradient


@triton.jit
def _sum_magnitudes(prediction, target, parts, N, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    error = tl.zeros((BLOCK,), tl.float32)
    norm = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, N, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.load(prediction + at, mask=at < N, other=0.0)
        v = tl.load(target + at, mask=at < N, other=0.0)
        error += tl.abs(p - v)
        norm += tl.abs(v)
    tl.store(parts + program, tl.sum(error))
    tl.store(parts + programs + program, tl.sum(norm))


@triton.jit
def _total(parts, kind: tl.constexpr, COUNT, BLOCK: tl.constexpr):
    part = tl.arange(0, BLOCK)
    return tl.sum(tl.load(parts + kind * COUNT + part, mask=part < COUNT, other=0.0))


@triton.jit
def _divide_sums(parts, ratio, COUNT, BLOCK: tl.constexpr):
    tl.store(ratio, _total(parts, 0, COUNT, BLOCK) / _total(parts, 1, COUNT, BLOCK))


@triton.jit
def _ratio_gradient(
    prediction, target, parts, dloss, gradient, N, COUNT, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    factor = tl.load(dloss) / _total(parts, 1, COUNT, PARTS)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(prediction + at, mask=at < N, other=0.0)
    v = tl.load(target + at, mask=at < N, other=0.0)
    d = p - v
    sign = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, d))  # no number stays none
    tl.store(gradient + at, factor * sign, mask=at < N)
