"""Batch norm in training, on CUDA with channels last: statistics, field and gradient in few passes.

    y = γ x̂ + β,   x̂ = (x − μ) / √(v + ε)

    dβ = Σ G,   dγ = Σ G x̂,   dx = γ / √(v + ε) (G − (dβ + x̂ dγ) / n)

for the gradient G of y, with sums over all n values of a channel; 1/n becomes 0 where μ and v are
running statistics. cuDNN's programs do the same, but clear a counter each time, and a graph waits
longer for that than the programs take on small fields.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcno.operators.fused import choice
from torchcno.operators.fused.kernels import (
    PROGRAMS,
    Normalisation,
    launch_normalisation_backward,
    or_dense,
    rows_of_a_program,
)
from torchcno.operators.fused.layout import memory_format
from torchcno.operators.fused.row_plans import power_of_two
from torchcno.operators.fused.streams import current_aside

JOINED = 8  # channels whose shares one program joins


def why_not_by_programs(x: Tensor, norm: nn.Module) -> str | None:
    """Why `normalise` does not take the place of `norm`; None: it does."""
    if not (x.is_cuda and choice.HAS_TRITON and x.dtype in choice.DTYPES):
        return "the programs are for CUDA"
    if not (norm.training or torch.is_grad_enabled()):
        return "without gradients it is a scale and a shift"
    if torch.compiler.is_compiling():
        return "a compiler fuses the parts on its own"
    if memory_format(x) != torch.channels_last:
        return "channels do not lie last"
    return choice.why_not_plain_batch_norm(x, norm)


def normalise(x: Tensor, norm: nn.Module, plus: Tensor | None = None) -> Tensor:
    """norm(x), and `plus` where it is given; `why_not_by_programs` has nothing against it."""
    if not isinstance(norm, nn.BatchNorm2d):
        raise TypeError(f"{type(norm).__name__} has no program.")
    if plus is not None:
        plus = plus.to(x.dtype).contiguous(memory_format=torch.channels_last)
    parameters = (norm.weight, norm.bias)
    y: Tensor = _BatchNorm.apply(x, plus, *parameters, *find_statistics(x, norm), norm.eps)
    return y


def normalise_and_add(x: Tensor, norm: nn.BatchNorm2d, bias: Tensor) -> Tensor:
    """norm(x) + b for a constant per channel, where `why_not_plain_batch_norm` is silent."""
    counter: Any = norm.num_batches_tracked
    momentum: Any = norm.momentum
    if norm.training:
        counter.add_(1)
    statistics = norm.running_mean, norm.running_var
    return F.batch_norm(
        x, *statistics, norm.weight, norm.bias + bias, norm.training, momentum, norm.eps
    )


def find_statistics(x: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, float]:
    """μ and v of each channel, and 1/n: of the batch, which `norm` remembers, or held, and 0."""
    if not norm.training:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        return norm.running_mean, norm.running_var, 0.0
    counter: Any = norm.num_batches_tracked
    beside = current_aside()
    if beside is None:
        counter.add_(1)
    else:  # at the end of the step
        beside.counted.append(counter)
    mean: Any = norm.running_mean
    variance: Any = norm.running_var
    momentum: Any = norm.momentum
    share = x.shape[1] / x.numel()
    return *batch_statistics(x.detach(), mean, variance, momentum), share


def batch_statistics(
    x: Tensor, running_mean: Tensor, running_variance: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel; the running ones move towards them by `momentum`."""
    arguments = (x, running_mean, running_variance, momentum)
    if memory_format(x) != torch.channels_last:
        return torch.batch_norm_update_stats(*arguments)
    found: tuple[Tensor, Tensor] = or_dense(
        _launch_statistics, torch.batch_norm_update_stats, *arguments
    )
    return found


def _divide(x: Tensor) -> tuple[int, int, int, tuple[int, int], dict[str, int]]:
    """Channels, points, tiles of points, the grid of programs, and the blocks of each."""
    channels = x.shape[1]
    points, block = x.numel() // channels, min(power_of_two(channels), 64)
    point_block, blocks = 4096 // block, -(-channels // block)
    tiles = -(-points // point_block)
    grid = min(tiles, PROGRAMS // blocks), blocks
    return channels, points, tiles, grid, {"C": channels, "PB": point_block, "CB": block}


def _launch_statistics(
    x: Tensor, running_mean: Tensor, running_variance: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """By two Triton programs: shares of the points, and what joins them."""
    from torchcno.operators.fused import triton_sums

    channels, points, tiles, grid, shape = _divide(x)
    parts = torch.empty(3, grid[0], channels, dtype=torch.float32, device=x.device)
    mean, variance = (torch.empty_like(running_mean) for _ in range(2))
    triton_sums.moments[grid](x, parts, points, tiles, **shape)
    triton_sums.join_moments[(-(-channels // JOINED),)](
        parts, mean, variance, running_mean, running_variance, momentum, points, grid[0],
        C=channels, PB=power_of_two(grid[0]), CB=JOINED,
    )  # fmt: skip
    for changed in (running_mean, running_variance):
        torch.autograd.graph.increment_version(changed)  # a program's writes are not seen
    return mean, variance


class _BatchNorm(torch.autograd.Function):
    """Y of x, what is added, γ, β, and of μ, v, 1/n and ε."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plus: Tensor | None, *arguments: Any) -> Tensor:
        weight, shift, mean, variance, share, eps = arguments
        ctx.save_for_backward(x, weight, shift, mean, variance)
        ctx.constants, ctx.adds = (share, eps), plus is not None
        y: Tensor = or_dense(_launch_forward, _dense, x, plus, *arguments)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        given = (dy, *ctx.saved_tensors, *ctx.constants)
        # A gradient that is to be differentiated again is made of operations that can be.
        if torch.is_grad_enabled():
            gradients = _dense_backward(*given)
        else:
            gradients = or_dense(_launch_backward, _dense_backward, *given)
        dx, *others = gradients
        return dx, dy if ctx.adds else None, *others, None, None, None, None


def _launch_forward(
    x: Tensor,
    plus: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    mean: Tensor,
    variance: Tensor,
    share: float,
    eps: float,
) -> Tensor:
    from torchcno.operators.fused import triton_sums

    channels = x.shape[1]
    rows, y = x.numel() // channels, torch.empty_like(x)
    row_block, block = rows_of_a_program(rows, channels)
    triton_sums.normalise[(-(-rows // row_block), -(-channels // block))](
        x, plus, y, mean, variance, weight, shift, eps, rows, C=channels, RB=row_block, CB=block
    )
    return y


def _launch_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    shift: Tensor,
    mean: Tensor,
    variance: Tensor,
    share: float,
    eps: float,
) -> tuple[Tensor, ...]:
    from torchcno.operators.fused import triton_sums

    dy = dy.contiguous(memory_format=torch.channels_last)
    channels, points, tiles, grid, shape = _divide(x)
    parts = torch.empty(2, grid[0], channels, dtype=torch.float32, device=x.device)
    triton_sums.gradient_sums[grid](dy, x, parts, mean, variance, eps, points, tiles, **shape)
    dx, norm = torch.empty_like(x), Normalisation(mean, variance, weight, shift, eps, share)
    dshift, dweight, _ = launch_normalisation_backward(dy, dx, x, parts, norm)
    return dx, dweight, dshift


def _dense(x: Tensor, plus: Tensor | None, weight: Tensor, shift: Tensor, *how: Any) -> Tensor:
    mean, variance, share, eps = how
    y = dense_normalisation(x, Normalisation(mean, variance, weight, shift, eps, share))
    return y if plus is None else y + plus


def dense_normalisation(x: Tensor, norm: Normalisation) -> Tensor:
    """Batch norm as PyTorch has it; statistics of a batch are made again, for their gradient."""
    mean, variance, weight, shift, eps, share = norm
    if share:
        return F.batch_norm(x, None, None, weight, shift, training=True, eps=eps)
    return F.batch_norm(x, mean, variance, weight, shift, eps=eps)


def _dense_backward(
    dy: Tensor, x: Tensor, weight: Tensor, shift: Tensor, *how: Any
) -> tuple[Tensor, ...]:
    vjp = torch.func.vjp(lambda x, *given: _dense(x, None, *given, *how), x, weight, shift)[1]
    gradients: tuple[Tensor, ...] = vjp(dy)
    return gradients
