"""Averages of many weights in one kernel; importing this file needs Triton.

PyTorch's operations on lists of tensors give each program 65,536 numbers, which leaves most of a
GPU idle where a network has a few million.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl
from torch import Tensor

from torchcno.training.tables import BLOCK, TensorTable


def move_averages(table: TensorTable, share: Tensor) -> None:
    """a ← a + share · (w − a) for averages and weights; the device knows the share."""
    blocks = table.blocks.shape[1]
    _move[(blocks,)](
        table.addresses, table.sizes, table.blocks, share, len(table.sizes), blocks, BLOCK=BLOCK
    )


@triton.jit
def _move(addresses, sizes, blocks, share, COLUMNS, BLOCKS, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    column, start = tl.load(blocks + program), tl.load(blocks + BLOCKS + program)
    at = start + tl.arange(0, BLOCK)
    mask = at < tl.load(sizes + column)
    averages = tl.load(addresses + column).to(tl.pointer_type(tl.float32))
    weights = tl.load(addresses + COLUMNS + column).to(tl.pointer_type(tl.float32))
    a = tl.load(averages + at, mask=mask)
    w = tl.load(weights + at, mask=mask)
    tl.store(averages + at, a + tl.load(share).to(tl.float32) * (w - a), mask=mask)
