"""AdamW of many weights in one kernel; importing this file needs Triton.

PyTorch's own gives each program 65,536 numbers of few tensors at a time, which leaves most of a GPU
idle where a network has a few million.
"""

# mypy: disable-error-code="no-untyped-def"

import math

import triton
import triton.language as tl
from torch import Tensor

from torchcno.training.tables import BLOCK, TensorTable


def move(
    table: TensorTable,
    rate: Tensor,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
    factor: float,
) -> None:
    """A step of the weights of `table`: weights, gradients, averages, squares and steps in rows.

    What is read as gradients is `factor` times them; steps count this one.
    """
    columns, blocks = len(table.sizes), table.blocks.shape[1]
    shares = [1 - beta for beta in betas]
    _move[(blocks,)](
        table.addresses, table.sizes, table.blocks, rate, decay, *shares, *map(math.log, betas),
        epsilon, 1 / factor, columns, blocks, BLOCK=BLOCK,
    )  # fmt: skip


@triton.jit
def _tensor(addresses, row: tl.constexpr, column, COLUMNS):
    return tl.load(addresses + row * COLUMNS + column).to(tl.pointer_type(tl.float32))


@triton.jit
def _move(
    addresses, sizes, blocks, rate, decay, share1, share2, log1, log2, epsilon, inverse,
    COLUMNS, BLOCKS, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block; with share = 1 − β and log = ln β, which float32 holds better than it holds β."""
    program = tl.program_id(0)
    column, start = tl.load(blocks + program), tl.load(blocks + BLOCKS + program)
    at = start + tl.arange(0, BLOCK)
    mask = at < tl.load(sizes + column)
    weights = _tensor(addresses, 0, column, COLUMNS) + at
    averages = _tensor(addresses, 2, column, COLUMNS) + at
    squares = _tensor(addresses, 3, column, COLUMNS) + at
    step = tl.load(_tensor(addresses, 4, column, COLUMNS)).to(tl.float64)
    first = (1 - tl.exp(step * log1)).to(tl.float32)  # 1 − β^t
    second = (1 - tl.exp(step * log2)).to(tl.float32)
    eta = tl.load(rate).to(tl.float32)
    G = tl.load(_tensor(addresses, 1, column, COLUMNS) + at, mask=mask, other=0.0) * inverse
    m = tl.load(averages, mask=mask, other=0.0)
    v = tl.load(squares, mask=mask, other=0.0)
    w = tl.load(weights, mask=mask, other=0.0)
    m += share1 * (G - m)
    v += share2 * (G * G - v)
    tl.store(averages, m, mask=mask)
    tl.store(squares, v, mask=mask)
    w -= eta * decay * w
    w -= eta / first * m / (tl.sqrt(v / second) + epsilon)
    tl.store(weights, w, mask=mask)
