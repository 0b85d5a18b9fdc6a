"""Muon's matrices together, in few kernels; importing this file needs Triton.

Matrices of unlike sizes lie in one frame of zeros, `(matrix, row, column)` in float16, so that the
products of `orthogonalized` are one batched product each. Zeros stay zeros under them. Lines of
a matrix are its rows in memory, whichever way its kernels lie there: the order of columns counts
neither for XXᵀ nor for the result. A matrix with more rows than columns lies transposed.
"""

# mypy: disable-error-code="no-untyped-def"

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

WASTE = 3.0  # how much larger than its matrices a frame may be
BLOCK = 1024  # columns that a program works on at a time
TILE = 64  # rows and columns of a square that a program makes


@dataclass(frozen=True)
class Frame:
    """Matrices that are moved together, and the memory for it."""

    members: tuple[int, ...]  # their places in the list of all
    addresses: Tensor  # (3, matrix): of weights, averages and gradients
    sizes: Tensor  # (2, matrix): rows and columns in memory
    squares: Tensor  # (matrix, row): the sum of squares of every row
    x: Tensor  # (matrix, row, column): float16, zero beyond the matrices


def make_frames(
    weights: Sequence[Tensor], averages: Sequence[Tensor], gradients: Sequence[Tensor]
) -> list[Frame]:
    """Frames for these matrices, the largest first, each with as many as leave little of it empty.

    They hold addresses: the tensors are to stay where they are.
    """
    sizes = [(len(w), w.numel() // len(w)) for w in weights]
    left = sorted(range(len(weights)), key=lambda i: -weights[i].numel())
    frames = []
    while left:
        members, shape = list[int](), (0, 0)
        for i in list(left):
            wider = max(shape[0], min(sizes[i])), max(shape[1], max(sizes[i]))
            inside = sum(weights[j].numel() for j in [*members, i])
            if wider[0] * wider[1] * (len(members) + 1) <= WASTE * inside:
                members.append(i)
                shape = wider
                left.remove(i)
        device = weights[0].device
        addresses = [[t[i].data_ptr() for i in members] for t in (weights, averages, gradients)]
        rows = max(sizes[i][0] for i in members)
        frames.append(
            Frame(
                members=tuple(members),
                addresses=torch.tensor(addresses).to(device),
                sizes=torch.tensor([sizes[i] for i in members]).T.contiguous().to(device),
                squares=torch.zeros(len(members), rows, device=device),
                x=torch.zeros(len(members), *shape, dtype=torch.float16, device=device),
            )
        )
    return frames


def average_and_look_ahead(frame: Frame, momentum: float, factor: float = 1.0) -> None:
    """M ← μM + (1 − μ)G, and X = (μM + (1 − μ)G) / ‖…‖ for every matrix of the frame.

    What is read as gradients is `factor` times G.
    """
    grid = frame.squares.shape
    tables = (frame.addresses, frame.sizes, frame.squares)
    _average[grid](*tables, momentum, 1 / factor, len(frame.members), grid[1], BLOCK=BLOCK)
    _look_ahead[grid](
        *tables, frame.x, momentum, 1 / factor, len(frame.members), grid[1], *frame.x.shape[1:],
        BLOCK=BLOCK, ROWS=triton.next_power_of_2(grid[1]),
    )  # fmt: skip


def move(frame: Frame, directions: Tensor, rate: Tensor, decay: float, length: float) -> None:
    """W ← (1 − ηw)W − η · length · √max(m, n) · O for every matrix of the frame."""
    _move[frame.squares.shape](
        frame.addresses, frame.sizes, directions.contiguous(), rate, decay, length,
        len(frame.members), *frame.x.shape[1:], BLOCK=BLOCK,
    )  # fmt: skip


def polynomial(square: Tensor, a: float, b: float, c: float) -> Tensor:
    """aI + bS + cS² of square matrices S that are symmetric, in one kernel."""
    number, rows, _ = square.shape
    square, result = square.contiguous(), torch.empty_like(square)
    tiles = triton.cdiv(rows, TILE)
    _polynomial[(number, tiles, tiles)](square, result, rows, a, b, c, TILE=TILE)
    return result


@triton.jit
def _polynomial(square, result, ROWS, a, b, c, TILE: tl.constexpr):
    """One tile."""
    base = tl.program_id(0).to(tl.int64) * ROWS * ROWS
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    column = tl.program_id(2) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, ROWS, TILE):
        k = start + tl.arange(0, TILE)
        left = _tile(square + base, row, k, ROWS)
        total += tl.dot(left, _tile(square + base, k, column, ROWS), input_precision="ieee")
    there = _tile(square + base, row, column, ROWS).to(tl.float32)
    total = c * total + b * there + tl.where(row[:, None] == column[None, :], a, 0.0)
    at = result + base + row[:, None] * ROWS + column[None, :]
    mask = (row[:, None] < ROWS) & (column[None, :] < ROWS)
    tl.store(at, total.to(result.dtype.element_ty), mask=mask)


@triton.jit
def _tile(square, row, column, ROWS):
    mask = (row[:, None] < ROWS) & (column[None, :] < ROWS)
    return tl.load(square + row[:, None] * ROWS + column[None, :], mask=mask, other=0.0)


@triton.jit
def _matrix(addresses, kind: tl.constexpr, i, count):
    """Where the entries of matrix i begin: of weights (0), averages (1) or gradients (2)."""
    return tl.load(addresses + kind * count + i).to(tl.pointer_type(tl.float32))


@triton.jit
def _average(
    addresses, sizes, squares, momentum, inverse, count, most_rows, BLOCK: tl.constexpr
):  # fmt: skip
    """A row of M ← M + (1 − μ)(G − M), and the sum of squares of G + μ(M − G)."""
    i, row = tl.program_id(0), tl.program_id(1)
    m, n = tl.load(sizes + i), tl.load(sizes + count + i)
    if row < m:
        averages = _matrix(addresses, 1, i, count) + row * n
        gradients = _matrix(addresses, 2, i, count) + row * n
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            G = tl.load(gradients + column, mask=column < n, other=0.0) * inverse
            M = tl.load(averages + column, mask=column < n, other=0.0)
            M += (1 - momentum) * (G - M)
            tl.store(averages + column, M, mask=column < n)
            ahead = G + momentum * (M - G)
            total += ahead * ahead
        tl.store(squares + i * most_rows + row, tl.sum(total))


@triton.jit
def _look_ahead(
    addresses, sizes, squares, x, momentum, inverse, count, most_rows, X_ROWS, X_COLUMNS,
    BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A row of X = (G + μ(M − G)) / ‖G + μ(M − G)‖; zero where that is zero."""
    i, row = tl.program_id(0), tl.program_id(1)
    m, n = tl.load(sizes + i), tl.load(sizes + count + i)
    if row < m:
        rows = tl.arange(0, ROWS)
        sums = tl.load(squares + i * most_rows + rows, mask=rows < m, other=0.0)
        norm = tl.maximum(tl.sqrt(tl.sum(sums)), 1e-30)
        averages = _matrix(addresses, 1, i, count) + row * n
        gradients = _matrix(addresses, 2, i, count) + row * n
        x += i.to(tl.int64) * X_ROWS * X_COLUMNS
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            G = tl.load(gradients + column, mask=column < n, other=0.0) * inverse
            M = tl.load(averages + column, mask=column < n, other=0.0)
            ahead = (G + momentum * (M - G)) / norm
            at = tl.where(m > n, column * X_COLUMNS + row, row * X_COLUMNS + column)
            tl.store(x + at, ahead.to(tl.float16), mask=column < n)


@triton.jit
def _move(
    addresses, sizes, directions, rate, decay, length, count, X_ROWS, X_COLUMNS,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A row of W ← (1 − ηw)W − η · length · √max(m, n) · O."""
    i, row = tl.program_id(0), tl.program_id(1)
    m, n = tl.load(sizes + i), tl.load(sizes + count + i)
    if row < m:
        eta = tl.load(rate)
        factor = eta * length * tl.sqrt(tl.maximum(m, n).to(tl.float32))
        weights = _matrix(addresses, 0, i, count) + row * n
        directions += i.to(tl.int64) * X_ROWS * X_COLUMNS
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            at = tl.where(m > n, column * X_COLUMNS + row, row * X_COLUMNS + column)
            O = tl.load(directions + at, mask=column < n, other=0.0).to(tl.float32)  # noqa: E741
            W = tl.load(weights + column, mask=column < n, other=0.0)
            tl.store(weights + column, W * (1 - eta * decay) - factor * O, mask=column < n)
