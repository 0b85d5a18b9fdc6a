"""The Triton programs for filters of a few taps; importing this file needs Triton.

Rows of U and D are nearly all zeros. A program therefore walks down the rows of P planes (a plane
is one channel of one sample) and keeps only a window of them. Columns go by matrix products, at the
rows of the coarse grids, where there are fewest:

    T_i = (x_i + b) U_cᵀ             row i of the input, on the fine grid's columns
    z_f = Σ_i U_r[f, i] T_i          a fine row, from the window of T
    A_o = Σ_f D_r[o, f] σ(z_f)       rows of the output, each complete once the window has passed
    y_o = A_o D_cᵀ

and for gradients, with E_o = dy_o D_c,

    B_i = Σ_f U_r[f, i] σ'(z_f) Σ_o D_r[o, f] E_o       dx_i = B_i U_c

Every program is compiled for one S, a `row_plans.Walk`. U_r and D_r come as the tables of
`windows.py`, whose cells have X.CELL rows of the input, Y.CELL of the output and R fine ones; the
table begins REACH cells before the first. A program makes the result's rows of STRIP cells, from
HALO more on either side, and the columns of one tile: those of (FIRST + SECOND) fine columns, in
one or two blocks of powers of two, because with zeros outside the domain a fine grid has a few more
columns than a power of two. Rows and columns of the input are counted modulo the grid's, so that
the programs know nothing of boundaries.
"""

# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005 (Triton adds tuples, and does not unpack them)

import triton
import triton.language as tl

from torchcno.operators.fused.triton_activation import _operand, _product, _sigma, _sigma_slope


@triton.jit
def _offsets(plane, row, columns, G: tl.constexpr, S: tl.constexpr):
    """Where these columns of one row of the P planes from `plane` on lie: (P, columns)."""
    p = (plane + tl.arange(0, S.P)[:, None]).to(tl.int64)
    if S.LAST:
        offsets = p // S.C * (G.H * G.W * S.C) + p % S.C + (row * G.W + columns[None, :]) * S.C
    else:
        offsets = p * (G.H * G.W) + row * G.W + columns[None, :]
    return offsets


@triton.jit
def _fine_row(
    pointer, row, columns, plane, planes, shift, matrix, G: tl.constexpr, S: tl.constexpr
):
    """A row of the planes on grid G, plus `shift`, on the fine columns: one (P, block) a block."""
    row = (row + G.H) % G.H
    at = pointer + _offsets(plane, row, (columns + G.W) % G.W, G, S)
    mask = (plane + tl.arange(0, S.P) < planes)[:, None]
    values = _operand(tl.load(at, mask=mask, other=0.0).to(tl.float32) + shift, S)
    blocks = ()
    for b in tl.static_range(len(matrix)):
        blocks = blocks + (_product(values, matrix[b], S),)
    return blocks


@triton.jit
def _fine_rows(
    COUNT: tl.constexpr, pointer, row, columns, plane, planes, shift, matrix, G: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """COUNT such rows, from `row` on."""
    rows = ()
    for k in tl.static_range(COUNT):
        rows = rows + (_fine_row(pointer, row + k, columns, plane, planes, shift, matrix, G, S),)
    return rows


@triton.jit
def _coarse_row(row, matrix, S: tl.constexpr):
    """A row on the fine columns, taken to the coarse ones."""
    y = _product(_operand(row[0], S), matrix[0], S)
    for b in tl.static_range(1, len(matrix)):
        y += _product(_operand(row[b], S), matrix[b], S)
    return y


@triton.jit
def _weighted(weights, window):
    """Σ_k w_k row_k over a window of rows, block by block."""
    total = ()
    for b in tl.static_range(len(window[0])):
        total = total + (tl.load(weights) * window[0][b],)
    for k in tl.static_range(1, len(window)):
        w = tl.load(weights + k)
        added = ()
        for b in tl.static_range(len(total)):
            added = added + (total[b] + w * window[k][b],)
        total = added
    return total


@triton.jit
def _spread(weights, row, window):
    """row_k + w_k row for every row of a window, block by block."""
    updated = ()
    for k in tl.static_range(len(window)):
        w = tl.load(weights + k)
        blocks = ()
        for b in tl.static_range(len(row)):
            blocks = blocks + (window[k][b] + w * row[b],)
        updated = updated + (blocks,)
    return updated


@triton.jit
def _zeros(COUNT: tl.constexpr, S: tl.constexpr):
    """COUNT rows of zeros on the fine columns."""
    rows = ()
    for _ in tl.static_range(COUNT):
        row = (tl.zeros((S.P, S.FIRST), tl.float32),)
        if S.SECOND > 0:
            row = row + (tl.zeros((S.P, S.SECOND), tl.float32),)
        rows = rows + (row,)
    return rows


@triton.jit
def _to_fine(matrix, B: tl.constexpr, S: tl.constexpr):
    """The blocks of a matrix (B, FIRST + SECOND)."""
    at = matrix + tl.arange(0, B)[:, None] * (S.FIRST + S.SECOND)
    blocks = (tl.load(at + tl.arange(0, S.FIRST)[None, :]),)
    if S.SECOND > 0:
        blocks = blocks + (tl.load(at + S.FIRST + tl.arange(0, S.SECOND)[None, :]),)
    return blocks


@triton.jit
def _to_coarse(matrix, B: tl.constexpr, S: tl.constexpr):
    """The blocks of a matrix (FIRST + SECOND, B)."""
    at = matrix + tl.arange(0, B)[None, :]
    blocks = (tl.load(at + tl.arange(0, S.FIRST)[:, None] * B),)
    if S.SECOND > 0:
        blocks = blocks + (tl.load(at + (S.FIRST + tl.arange(0, S.SECOND)[:, None]) * B),)
    return blocks


@triton.jit
def forward(x, bias, up_rows, down_rows, up_columns, down_columns, y, planes, S: tl.constexpr):
    """One strip and one tile of Y, for P planes.

    `up_columns` (tile, X.BLOCK, fine) and `down_columns` (tile, fine, Y.BLOCK). A tile's columns of
    x begin at X.START + X.STEP tile, those of y are the Y.STEP from Y.STEP tile on.
    """
    FINE: tl.constexpr = S.FIRST + S.SECOND
    IN: tl.constexpr = S.X.CELL
    OUT: tl.constexpr = S.Y.CELL
    REACH: tl.constexpr = S.REACH
    plane = tl.program_id(0) * S.P
    start = tl.program_id(1) * S.STRIP
    tile = tl.program_id(2)
    p = plane + tl.arange(0, S.P)
    b = tl.load(bias + p % S.C).to(tl.float32)[:, None]
    columns = S.X.START + S.X.STEP * tile + tl.arange(0, S.X.BLOCK)
    up = _to_fine(up_columns + tile * S.X.BLOCK * FINE, S.X.BLOCK, S)
    down = _to_coarse(down_columns + tile * FINE * S.Y.BLOCK, S.Y.BLOCK, S)
    j = tl.arange(0, S.Y.BLOCK)
    y_columns = S.Y.STEP * tile + j
    y_mask = (p < planes)[:, None] & ((j < S.Y.STEP) & (y_columns < S.Y.W))[None, :]

    row = IN * (start - S.HALO) - REACH
    window = _fine_rows(2 * REACH, x, row, columns, plane, planes, b, up, S.X, S)
    sums = _zeros(OUT + 2 * REACH, S)
    for step in range(S.STRIP + 2 * S.HALO):
        cell = start - S.HALO + step
        row = IN * cell + REACH
        window = window + _fine_rows(IN, x, row, columns, plane, planes, b, up, S.X, S)
        for r in tl.static_range(S.R):
            f = (cell + REACH) * S.R + r
            z = _weighted(up_rows + f * (IN + 2 * REACH), window)
            a = ()
            for i in tl.static_range(len(z)):
                a = a + (_sigma(z[i], S),)
            sums = _spread(down_rows + f * (OUT + 2 * REACH), a, sums)
        for k in tl.static_range(OUT):
            row = OUT * cell - REACH + k
            if (row >= OUT * start) & (row < min(OUT * (start + S.STRIP), S.Y.H)):
                values = _coarse_row(sums[k], down, S).to(y.dtype.element_ty)
                tl.store(y + _offsets(plane, row, y_columns, S.Y, S), values, mask=y_mask)
        window = window[IN:]
        sums = sums[OUT:] + _zeros(OUT, S)


@triton.jit
def backward(
    dy, x, bias, up_rows, down_rows, up_columns, down_columns, back_columns, dx, dbias, planes,
    S: tl.constexpr,
):  # fmt: skip
    """One strip and one tile of dX, for P planes, and the sums over it (a part of db).

    `up_columns` (tile, X.BLOCK, fine), `down_columns` (tile, Y.BLOCK, fine) and `back_columns`
    (tile, fine, BACK). A tile's columns of dx are the X.STEP from X.STEP tile on.
    """
    FINE: tl.constexpr = S.FIRST + S.SECOND
    IN: tl.constexpr = S.X.CELL
    OUT: tl.constexpr = S.Y.CELL
    REACH: tl.constexpr = S.REACH
    plane = tl.program_id(0) * S.P
    start = tl.program_id(1) * S.STRIP
    tile = tl.program_id(2)
    p = plane + tl.arange(0, S.P)
    b = tl.load(bias + p % S.C).to(tl.float32)[:, None]
    columns = S.X.START + S.X.STEP * tile + tl.arange(0, S.X.BLOCK)
    y_columns = S.Y.START + S.Y.STEP * tile + tl.arange(0, S.Y.BLOCK)
    up = _to_fine(up_columns + tile * S.X.BLOCK * FINE, S.X.BLOCK, S)
    down = _to_fine(down_columns + tile * S.Y.BLOCK * FINE, S.Y.BLOCK, S)
    back = _to_coarse(back_columns + tile * FINE * S.BACK, S.BACK, S)
    j = tl.arange(0, S.BACK)
    dx_columns = S.X.STEP * tile + j
    dx_mask = (p < planes)[:, None] & ((j < S.X.STEP) & (dx_columns < S.X.W))[None, :]

    row = IN * (start - S.HALO) - REACH
    window = _fine_rows(2 * REACH, x, row, columns, plane, planes, b, up, S.X, S)
    row = OUT * (start - S.HALO) - REACH
    cotangents = _fine_rows(2 * REACH, dy, row, y_columns, plane, planes, 0.0, down, S.Y, S)
    sums = _zeros(IN + 2 * REACH, S)
    total = tl.zeros((S.P,), tl.float32)
    for step in range(S.STRIP + 2 * S.HALO):
        cell = start - S.HALO + step
        row = IN * cell + REACH
        window = window + _fine_rows(IN, x, row, columns, plane, planes, b, up, S.X, S)
        row = OUT * cell + REACH
        cotangents = cotangents + _fine_rows(
            OUT, dy, row, y_columns, plane, planes, 0.0, down, S.Y, S
        )
        for r in tl.static_range(S.R):
            f = (cell + REACH) * S.R + r
            z = _weighted(up_rows + f * (IN + 2 * REACH), window)
            e = _weighted(down_rows + f * (OUT + 2 * REACH), cotangents)
            a = ()
            for i in tl.static_range(len(z)):
                a = a + (_sigma_slope(z[i], S) * e[i],)
            sums = _spread(up_rows + f * (IN + 2 * REACH), a, sums)
        for k in tl.static_range(IN):
            row = IN * cell - REACH + k
            if (row >= IN * start) & (row < min(IN * (start + S.STRIP), S.X.H)):
                values = _coarse_row(sums[k], back, S)
                at = _offsets(plane, row, dx_columns, S.X, S)
                tl.store(dx + at, values.to(dx.dtype.element_ty), mask=dx_mask)
                total += tl.sum(tl.where(dx_mask, values, 0.0), axis=1)
        window = window[IN:]
        cotangents = cotangents[OUT:]
        sums = sums[IN:] + _zeros(IN, S)
    part = tl.program_id(1) * tl.num_programs(2) + tile
    tl.store(dbias + part * planes + p, total, mask=p < planes)
