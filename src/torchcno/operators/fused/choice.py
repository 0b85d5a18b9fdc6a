"""Which form computes: every decision is made here, and one against a fused form has a reason.

Decisions go by metadata alone (device, type, size, σ), so that compilers can trace them.
"""

import importlib.util
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from torchcno.operators.sigma import SIGMAS
from torchcno.tracing import is_traced

Arithmetic = Literal["fp32", "tf32", "fp16", "bf16"]
PerAxis = Sequence[Tensor]  # one matrix per axis

# Points per axis that fit on chip, by dimension; exact products hold every factor in two parts.
LARGEST = {1: 256, 2: 128}
LARGEST_EXACT = {1: 256, 2: 32}
# Beyond, only planes that cannot go row by row are taken whole: at 128² that is the slower way.
LARGEST_PREFERRED = {1: 256, 2: 64}
LARGEST_STREAMED = 2048  # points per axis of a plane that goes through the chip row by row
DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})

# Triton comes with CUDA builds of torch. It is imported when the first kernel is launched.
HAS_TRITON = importlib.util.find_spec("triton") is not None


def why_not_in_one_pass(
    x: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, local: bool
) -> str | None:
    """Why D σ(U (x + b)) goes by matrix products; None: it goes in one pass (`kernels.py`).

    `local` says that the matrices are mostly zeros, which the CPU's program lives on.
    """
    if x.ndim != 2 + len(ups):
        return "x is no batch of fields with channels"
    if any(matrix.requires_grad for matrix in [*ups, *downs]):
        return "the filters learn, and the pass has no gradient for them"
    if torch._C._are_functorch_transforms_active():
        return "torch.func transforms matrix products, and no programs"
    if is_traced():
        return "what is traced runs without this package"
    if x.is_cuda:
        return _why_not_on_cuda(x, ups, downs, sigma, local)
    if x.device.type != "cpu" or x.dtype is not torch.float32 or x.ndim > 4:
        return "programs are for CUDA, and on a CPU for float32 in one or two dimensions"
    if not local:
        return "a filter without end is a full matrix, for which products are faster on a CPU"
    return None if SIGMAS[sigma].slopes else "the CPU's program knows σ of two slopes alone"


def _why_not_on_cuda(
    x: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, local: bool
) -> str | None:
    if not HAS_TRITON:
        return "Triton is not installed"
    if x.dtype not in DTYPES:
        return f"no program computes in {x.dtype}"
    if not SIGMAS[sigma].on_chip:
        return f"no program knows the activation {sigma}"
    streams = local and len(ups) == 2 and _longest(ups, downs) <= LARGEST_STREAMED
    return None if streams or fits_on_chip(x, ups, downs) else "the grid does not fit on chip"


def runs_on_cpu(x: Tensor, sigma: str) -> bool:
    """Whether `cpu_activation` has a program for these fields."""
    on_cpu = x.device.type == "cpu" and x.dtype is torch.float32
    return on_cpu and x.ndim <= 4 and SIGMAS[sigma].slopes is not None


def fits_on_chip(x: Tensor, ups: PerAxis, downs: PerAxis) -> bool:
    """Whether whole planes, or lines, fit on chip, in the arithmetic that is set now."""
    largest = LARGEST_EXACT if arithmetic_of(x) == "fp32" else LARGEST
    return _longest(ups, downs) <= largest.get(len(ups), 0)


def is_whole(x: Tensor, ups: PerAxis, downs: PerAxis, local: bool) -> bool:
    """Whether planes, or lines, are taken whole, and may be normalised on the way."""
    preferred = not local or _longest(ups, downs) <= LARGEST_PREFERRED.get(len(ups), 0)
    return preferred and fits_on_chip(x, ups, downs)


def _longest(ups: PerAxis, downs: PerAxis) -> int:
    return max(*(up.shape[1] for up in ups), *(down.shape[0] for down in downs))


def why_not_plain_batch_norm(x: Tensor, norm: nn.Module) -> str | None:
    """Why `norm` cannot be a scale and a shift inside another program; None: it can."""
    if type(norm) is not nn.BatchNorm2d:  # and not one over several processes
        return f"the norm is {type(norm).__name__}, and not BatchNorm2d"
    if not (norm.affine and norm.track_running_stats and norm.momentum is not None):
        return "batch norm is not as it is built by default"
    if norm.weight.dtype is not torch.float32:
        return f"batch norm has parameters in {norm.weight.dtype}"
    return None if x.numel() > x.shape[1] else "a single value has no variance"


def is_watched(*parts: nn.Module) -> bool:
    """Whether someone has a hook in one of the parts, and is to see it at work."""
    return any(
        part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
        for part in parts
    )


def arithmetic_of(x: Tensor) -> Arithmetic:
    """How products of the values of x are made."""
    if x.dtype == torch.bfloat16:
        return "bf16"
    return "tf32" if x.dtype == torch.float16 or _is_tf32() else "fp32"


def _is_tf32() -> bool:
    """Whether products of float32 are to be rounded.

    PyTorch's older switch cannot be read where a program has set the newer one alone.
    """
    matmul = torch.backends.cuda.matmul
    try:
        return matmul.allow_tf32
    except RuntimeError:
        return bool(matmul.fp32_precision == "tf32")


# Else torch.compile would have to follow the exception. `torch.compiler.assume_constant_result`
# sets the same, and imports the compiler for it: two seconds for whoever wants a network alone.
_is_tf32.__dict__["_dynamo_marked_constant"] = True
