"""Averages of many weights in one kernel; importing this file needs Triton.

PyTorch's operations on lists of tensors give each program 65,536 numbers, which leaves most of a
GPU idle where a network has a few million.
"""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers that a program works on


@dataclass(frozen=True)
class Table:
    """Pairs of tensors of one size, cut into blocks. It holds addresses: they are to stay."""

    addresses: Tensor  # (2, pair): of averages and weights
    sizes: Tensor  # (pair,)
    blocks: Tensor  # (2, block): the pair, and where in it the block begins


def make_table(averages: Sequence[Tensor], weights: Sequence[Tensor]) -> Table:
    """The table of averages and weights in float32, each pair alike in memory."""
    sizes = torch.tensor([average.numel() for average in averages])
    counts = -(-sizes // BLOCK)
    pairs = torch.arange(len(sizes)).repeat_interleave(counts)
    starts = torch.arange(len(pairs)) - (counts.cumsum(0) - counts)[pairs]
    addresses = [[tensor.data_ptr() for tensor in some] for some in (averages, weights)]
    device = averages[0].device
    return Table(
        addresses=torch.tensor(addresses).to(device),
        sizes=sizes.to(device),
        blocks=torch.stack([pairs, BLOCK * starts]).to(device),
    )


def move_averages(table: Table, share: Tensor) -> None:
    """a ← a + share · (w − a) for every pair; the device knows the share."""
    blocks = table.blocks.shape[1]
    _move[(blocks,)](
        table.addresses, table.sizes, table.blocks, share, len(table.sizes), blocks, BLOCK=BLOCK
    )


@triton.jit
def _move(addresses, sizes, blocks, share, PAIRS, BLOCKS, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    pair, start = tl.load(blocks + program), tl.load(blocks + BLOCKS + program)
    at = start + tl.arange(0, BLOCK)
    mask = at < tl.load(sizes + pair)
    averages = tl.load(addresses + pair).to(tl.pointer_type(tl.float32))
    weights = tl.load(addresses + PAIRS + pair).to(tl.pointer_type(tl.float32))
    a = tl.load(averages + at, mask=mask)
    w = tl.load(weights + at, mask=mask)
    tl.store(averages + at, a + tl.load(share).to(tl.float32) * (w - a), mask=mask)
