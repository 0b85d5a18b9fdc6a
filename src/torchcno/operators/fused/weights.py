"""Copies of a network's weights for one step: in the type of its fields, and turned round.

The adjoint of a convolution that goes on periodically, or by zeros, is the same kind of convolution
with the kernel k turned round, channels in and out exchanged:

    (Kᵀ g)_i (x) = Σ_o Σ_m k_oi(−z_m) g_o(x − z_m)

So gradients of fields go by the library's programs for convolutions, which are faster than those
for their adjoints, and no margin has to be folded back. All copies are made by one program.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torchcno.operators.fused.layout import weight_format

BLOCK = 32  # channels in and out that a program copies at a time
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@dataclass
class Copies:
    """Copies of weights, by the weights' `id`. They stay where they are from step to step."""

    straight: dict[int, Tensor]
    turned: dict[int, Tensor]  # (in, out, *kernel), for planes with channels last


@dataclass
class CopyTable:
    """Where weights and their copies lie, for the program."""

    addresses: Tensor  # (3, weight): of the weights, their copies, the turned ones
    sizes: Tensor  # (3, weight): channels out and in, taps
    tiles: Tensor  # (4, tile): the weight, the tap, the first channels out and in


def copy_weights(weights: Sequence[Tensor], dtype: torch.dtype) -> Copies:
    """Copies of the weights as they are now."""
    planes = [weight for weight in weights if _has_program(weight)]
    table, copies = _find_table(planes, dtype) if planes else (None, Copies({}, {}))
    if table is None:
        planes, copies = [], Copies({}, {})
    else:
        _launch(table, dtype)
    others = [w for w in weights if id(w) not in copies.straight and w.dtype != dtype]
    if not others:
        return copies
    # As they lie: all go by one kernel.
    rounded = [torch.empty_like(weight, dtype=dtype) for weight in others]
    with torch.no_grad():
        torch._foreach_copy_(rounded, others)
    more = {id(w): copy for w, copy in zip(others, rounded, strict=True)}
    return Copies({**copies.straight, **more}, copies.turned)


def _has_program(weight: Tensor) -> bool:
    last = weight_format(weight) == torch.channels_last
    dense = weight.is_contiguous(memory_format=torch.channels_last) if last else False
    return _HAS_TRITON and weight.is_cuda and weight.dtype == torch.float32 and dense


def _find_table(weights: list[Tensor], dtype: torch.dtype) -> tuple[CopyTable | None, Copies]:
    """The table for these weights, and the copies that it fills; no table while it cannot be made.

    That is while a graph is captured: nothing comes from the host then.
    """
    # All are kept: a graph that was captured before may still write to them.
    known: dict[Any, tuple[CopyTable, Copies]] = _known.setdefault(weights[0], {})
    key = (dtype, *(weight.data_ptr() for weight in weights))
    if key not in known:
        if weights[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return None, Copies({}, {})
        known[key] = make_table(weights, dtype)
    return known[key]


def make_table(weights: Sequence[Tensor], dtype: torch.dtype) -> tuple[CopyTable, Copies]:
    """A table of weights for planes, channels last, and empty copies of them."""
    device, last = weights[0].device, torch.channels_last
    turned = [
        torch.empty(
            (w.shape[1], w.shape[0], *w.shape[2:]), dtype=dtype, device=device, memory_format=last
        )
        for w in weights
    ]
    straight = [w if w.dtype == dtype else torch.empty_like(w, dtype=dtype) for w in weights]
    sizes = [(*w.shape[:2], w.shape[2:].numel()) for w in weights]
    tiles = [
        (n, tap, o, i)
        for n, (outputs, inputs, taps) in enumerate(sizes)
        for tap in range(taps)
        for o in range(0, outputs, BLOCK)
        for i in range(0, inputs, BLOCK)
    ]
    addresses = [[tensor.data_ptr() for tensor in some] for some in (weights, straight, turned)]
    table = CopyTable(
        addresses=torch.tensor(addresses).to(device),
        sizes=torch.tensor(sizes).T.contiguous().to(device),
        tiles=torch.tensor(tiles).T.contiguous().to(device),
    )
    keys = [id(weight) for weight in weights]
    rounded = {} if weights[0].dtype == dtype else dict(zip(keys, straight, strict=True))
    return table, Copies(rounded, dict(zip(keys, turned, strict=True)))


def _launch(table: CopyTable, dtype: torch.dtype) -> None:
    import triton.language as tl

    from torchcno.operators.fused import triton_weights

    types = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
    count, tiles = table.sizes.shape[1], table.tiles.shape[1]
    with torch.cuda.device_of(table.tiles):
        triton_weights.copy_and_turn[(tiles,)](
            table.addresses, table.sizes, table.tiles, count, tiles,
            TYPE=types[dtype], STRAIGHT=dtype != torch.float32, BLOCK=BLOCK,
        )  # fmt: skip
