"""Fields that are computed again for their gradients instead of kept: less memory, more time.

Of a part of a network, its input alone is kept. The backward pass computes the part once more, by
the same operations in the same order, so that gradients are the same numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from torchcno.tracing import is_traced

AT_ONCE = 2**20  # numbers of a field whose fine grid, up to eight times as large, is made at a time

_RECOMPUTES: ContextVar[bool] = ContextVar("recomputes", default=False)


@contextmanager
def recomputing(on: bool = True) -> Iterator[None]:
    """Within the context, parts of networks keep their inputs alone."""
    token = _RECOMPUTES.set(on)
    try:
        yield
    finally:
        _RECOMPUTES.reset(token)


def recompute(part: nn.Module, compute: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """compute(*arguments), what `part` does; again in the backward pass, where that is asked for.

    `compute` draws no random numbers.
    """
    if not _is_asked():
        return compute(*arguments)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _statistics_left_alone(part)

    # The backward pass may run in another thread, where `current_aside` would not be known.
    run = copy_context().run
    result: Tensor = checkpoint(run, compute, *arguments, context_fn=contexts, **HOW)
    return result


def recompute_channels(
    compute: Callable[[Tensor, Tensor], Tensor], x: Tensor, bias: Tensor
) -> Tensor:
    """compute(x, bias), in which channels do not meet; a few at a time, where it is asked for."""
    if not _is_asked():  # asked first: what is traced must not depend on the batch
        return compute(x, bias)
    few = max(1, AT_ONCE // max(1, x[:, :1].numel()))
    if few >= x.shape[1]:
        return compute(x, bias)
    parts = zip(x.split(few, dim=1), bias.split(few), strict=True)
    return torch.cat([checkpoint(compute, *part, **HOW) for part in parts], dim=1)


HOW: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}


def _is_asked() -> bool:
    if torch.compiler.is_compiling() or is_traced():
        return False
    return _RECOMPUTES.get() and torch.is_grad_enabled()


@contextmanager
def _statistics_left_alone(part: nn.Module) -> Iterator[None]:
    """Batch norms remember the batch in copies of their statistics, which are thrown away."""
    norms = [m for m in part.modules() if isinstance(m, _BatchNorm) and m.training]
    kept = [dict(norm.named_buffers(recurse=False)) for norm in norms]
    try:
        for norm, buffers in zip(norms, kept, strict=True):
            norm._buffers.update({name: buffer.clone() for name, buffer in buffers.items()})
        yield
    finally:
        for norm, buffers in zip(norms, kept, strict=True):
            norm._buffers.update(buffers)
