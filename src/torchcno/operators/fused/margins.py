"""Both axes of a plane extended beyond the edge by one program, and its adjoint by another."""

import importlib.util
from typing import Any

import torch
from torch import Tensor

from torchcno.operators.boundary import BOUNDARIES
from torchcno.operators.fused.layout import memory_format

BLOCK = 1024  # values a program
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def is_supported(x: Tensor) -> bool:
    """Whether there is a program for the margins of x: on CUDA, for planes, outside compilers."""
    transformed = torch._C._are_functorch_transforms_active()
    return (
        _HAS_TRITON
        and x.is_cuda
        and x.ndim == 4
        and x.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and not transformed
        and not torch.compiler.is_compiling()
    )


def extend_plane(x: Tensor, margin: int, boundaries: tuple[str, ...]) -> Tensor:
    """x with `margin` points of its continuation on all sides; a boundary an axis."""
    y: Tensor = _ExtendPlane.apply(x, margin, boundaries)
    return y


class _ExtendPlane(torch.autograd.Function):
    """E x, and Eᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, margin: int, boundaries: tuple[str, ...]) -> Tensor:
        ctx.how = margin, boundaries
        return launch("extend", x, margin, boundaries)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        margin, boundaries = ctx.how
        dx: Tensor = _FoldPlane.apply(dy, margin, boundaries)
        return dx, None, None


class _FoldPlane(torch.autograd.Function):
    """Eᵀ y, and E: a gradient may be differentiated again."""

    @staticmethod
    def forward(ctx: Any, dy: Tensor, margin: int, boundaries: tuple[str, ...]) -> Tensor:
        ctx.how = margin, boundaries
        return launch("fold", dy, margin, boundaries)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor, None, None]:
        y: Tensor = _ExtendPlane.apply(dx, *ctx.how)
        return y, None, None


def launch(program: str, x: Tensor, margin: int, boundaries: tuple[str, ...]) -> Tensor:
    """E x ("extend") or Eᵀ x ("fold") by a Triton program, in the memory format of x."""
    from torchcno.operators.fused import triton_margins

    layout = memory_format(x)
    x = x.contiguous(memory_format=layout)
    more = 2 * margin if program == "extend" else -2 * margin
    *outer, rows, columns = x.shape
    y = torch.empty(
        (*outer, rows + more, columns + more), dtype=x.dtype, device=x.device, memory_format=layout
    )
    inner = min(rows, rows + more), min(columns, columns + more)
    by_row, by_column = (BOUNDARIES[name] for name in boundaries)
    grid = (-(-y.numel() // BLOCK),)
    with torch.cuda.device_of(x):
        getattr(triton_margins, program)[grid](
            x, y, y.numel(), H=inner[0], W=inner[1], C=x.shape[1], MARGIN=margin,
            CHANNELS_LAST=layout == torch.channels_last,
            SIGN_H=by_row.sign, REFLECTED_H=by_row.reflected,
            SIGN_W=by_column.sign, REFLECTED_W=by_column.reflected, BLOCK=BLOCK,
            WIDE=max(x.numel(), y.numel()) + BLOCK >= 2**31,
        )  # fmt: skip
    return y
