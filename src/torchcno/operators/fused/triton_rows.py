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

U_r and D_r come as the tables of `windows.py`, whose cells have IN rows of the
input, OUT of the output and R fine ones; the table begins REACH cells before the first. A program
makes the result's rows of STRIP cells, from HALO more on either side, and the columns of one tile:
those of (FIRST + SECOND) fine columns, in one or two blocks of powers of two, because with zeros
outside the domain a fine grid has a few more columns than a power of two. Rows and columns of the
input are counted modulo the grid's, so that the programs know nothing of boundaries.
"""

# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005 (Triton adds tuples, and does not unpack them)

import triton
import triton.language as tl

from torchcno.operators.fused.triton_activation import _operand, _product, _sigma, _sigma_slope


@triton.jit
def _offsets(
    plane,
    row,
    columns,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    """Where these columns of one row of the P planes from `plane` on lie: (P, columns)."""
    p = (plane + tl.arange(0, P)[:, None]).to(tl.int64)
    if CHANNELS_LAST:
        offsets = p // C * (H * W * C) + p % C + (row * W + columns[None, :]) * C
    else:
        offsets = p * (H * W) + row * W + columns[None, :]
    return offsets


@triton.jit
def _fine_row(
    pointer,
    row,
    columns,
    plane,
    planes,
    shift,
    matrix,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """A row of the planes, plus `shift`, on the fine columns: one (P, block) a block."""
    row = (row + H) % H
    at = pointer + _offsets(plane, row, (columns + W) % W, C, H, W, P, CHANNELS_LAST)
    mask = (plane + tl.arange(0, P) < planes)[:, None]
    values = _operand(tl.load(at, mask=mask, other=0.0).to(tl.float32) + shift, ARITHMETIC)
    blocks = ()
    for b in tl.static_range(len(matrix)):
        blocks = blocks + (_product(values, matrix[b], ARITHMETIC),)
    return blocks


@triton.jit
def _coarse_row(row, matrix, ARITHMETIC: tl.constexpr):
    """A row on the fine columns, taken to the coarse ones."""
    y = _product(_operand(row[0], ARITHMETIC), matrix[0], ARITHMETIC)
    for b in tl.static_range(1, len(matrix)):
        y += _product(_operand(row[b], ARITHMETIC), matrix[b], ARITHMETIC)
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
def _zeros(COUNT: tl.constexpr, P: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """COUNT rows of zeros on the fine columns."""
    rows = ()
    for _ in tl.static_range(COUNT):
        row = (tl.zeros((P, FIRST), tl.float32),)
        if SECOND > 0:
            row = row + (tl.zeros((P, SECOND), tl.float32),)
        rows = rows + (row,)
    return rows


@triton.jit
def _to_fine(matrix, B: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """The blocks of a matrix (B, FIRST + SECOND)."""
    at = matrix + tl.arange(0, B)[:, None] * (FIRST + SECOND)
    blocks = (tl.load(at + tl.arange(0, FIRST)[None, :]),)
    if SECOND > 0:
        blocks = blocks + (tl.load(at + FIRST + tl.arange(0, SECOND)[None, :]),)
    return blocks


@triton.jit
def _to_coarse(matrix, B: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """The blocks of a matrix (FIRST + SECOND, B)."""
    at = matrix + tl.arange(0, B)[None, :]
    blocks = (tl.load(at + tl.arange(0, FIRST)[:, None] * B),)
    if SECOND > 0:
        blocks = blocks + (tl.load(at + (FIRST + tl.arange(0, SECOND)[:, None]) * B),)
    return blocks


@triton.jit
def forward(
    x,
    bias,
    up_rows,
    down_rows,
    up_columns,
    down_columns,
    y,
    planes,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    H_OUT: tl.constexpr,
    W_OUT: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    R: tl.constexpr,
    REACH: tl.constexpr,
    HALO: tl.constexpr,
    STRIP: tl.constexpr,
    X_START: tl.constexpr,
    X_STEP: tl.constexpr,
    Y_STEP: tl.constexpr,
    BX: tl.constexpr,
    BY: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """One strip and one tile of Y, for P planes.

    `up_columns` (tile, BX, fine) and `down_columns` (tile, fine, BY). A tile's columns of x begin
    at X_START + X_STEP tile, those of y are the Y_STEP from Y_STEP tile on.
    """
    FINE: tl.constexpr = FIRST + SECOND
    plane = tl.program_id(0) * P
    start = tl.program_id(1) * STRIP
    tile = tl.program_id(2)
    p = plane + tl.arange(0, P)
    b = tl.load(bias + p % C).to(tl.float32)[:, None]
    columns = X_START + X_STEP * tile + tl.arange(0, BX)
    up = _to_fine(up_columns + tile * BX * FINE, BX, FIRST, SECOND)
    down = _to_coarse(down_columns + tile * FINE * BY, BY, FIRST, SECOND)
    j = tl.arange(0, BY)
    y_columns = Y_STEP * tile + j
    y_mask = (p < planes)[:, None] & ((j < Y_STEP) & (y_columns < W_OUT))[None, :]

    window = ()
    for k in tl.static_range(2 * REACH):
        row = IN * (start - HALO) - REACH + k
        window = window + (
            _fine_row(x, row, columns, plane, planes, b, up, C, H, W, P, CHANNELS_LAST, ARITHMETIC),
        )
    sums = _zeros(OUT + 2 * REACH, P, FIRST, SECOND)
    for step in range(STRIP + 2 * HALO):
        cell = start - HALO + step
        for k in tl.static_range(IN):
            row = IN * cell + REACH + k
            window = window + (
                _fine_row(
                    x, row, columns, plane, planes, b, up, C, H, W, P, CHANNELS_LAST, ARITHMETIC
                ),
            )
        for r in tl.static_range(R):
            f = (cell + REACH) * R + r
            z = _weighted(up_rows + f * (IN + 2 * REACH), window)
            a = ()
            for i in tl.static_range(len(z)):
                a = a + (_sigma(z[i], SIGMA),)
            sums = _spread(down_rows + f * (OUT + 2 * REACH), a, sums)
        for k in tl.static_range(OUT):
            row = OUT * cell - REACH + k
            if (row >= OUT * start) & (row < min(OUT * (start + STRIP), H_OUT)):
                values = _coarse_row(sums[k], down, ARITHMETIC).to(y.dtype.element_ty)
                at = _offsets(plane, row, y_columns, C, H_OUT, W_OUT, P, CHANNELS_LAST)
                tl.store(y + at, values, mask=y_mask)
        window = window[IN:]
        sums = sums[OUT:] + _zeros(OUT, P, FIRST, SECOND)


@triton.jit
def backward(
    dy,
    x,
    bias,
    up_rows,
    down_rows,
    up_columns,
    down_columns,
    back_columns,
    dx,
    dbias,
    planes,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    H_OUT: tl.constexpr,
    W_OUT: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    R: tl.constexpr,
    REACH: tl.constexpr,
    HALO: tl.constexpr,
    STRIP: tl.constexpr,
    X_START: tl.constexpr,
    X_STEP: tl.constexpr,
    Y_START: tl.constexpr,
    Y_STEP: tl.constexpr,
    BX: tl.constexpr,
    BY: tl.constexpr,
    B: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """One strip and one tile of dX, for P planes, and the sums over it (a part of db).

    `up_columns` (tile, BX, fine), `down_columns` (tile, BY, fine) and `back_columns` (tile, fine,
    B). A tile's columns of dx are the X_STEP from X_STEP tile on.
    """
    FINE: tl.constexpr = FIRST + SECOND
    plane = tl.program_id(0) * P
    start = tl.program_id(1) * STRIP
    tile = tl.program_id(2)
    p = plane + tl.arange(0, P)
    b = tl.load(bias + p % C).to(tl.float32)[:, None]
    columns = X_START + X_STEP * tile + tl.arange(0, BX)
    y_columns = Y_START + Y_STEP * tile + tl.arange(0, BY)
    up = _to_fine(up_columns + tile * BX * FINE, BX, FIRST, SECOND)
    down = _to_fine(down_columns + tile * BY * FINE, BY, FIRST, SECOND)
    back = _to_coarse(back_columns + tile * FINE * B, B, FIRST, SECOND)
    j = tl.arange(0, B)
    dx_columns = X_STEP * tile + j
    dx_mask = (p < planes)[:, None] & ((j < X_STEP) & (dx_columns < W))[None, :]

    window = ()
    cotangents = ()
    for k in tl.static_range(2 * REACH):
        row = IN * (start - HALO) - REACH + k
        window = window + (
            _fine_row(x, row, columns, plane, planes, b, up, C, H, W, P, CHANNELS_LAST, ARITHMETIC),
        )
        row = OUT * (start - HALO) - REACH + k
        cotangents = cotangents + (
            _fine_row(
                dy, row, y_columns, plane, planes, 0.0, down, C, H_OUT, W_OUT, P, CHANNELS_LAST,
                ARITHMETIC,
            ),
        )  # fmt: skip
    sums = _zeros(IN + 2 * REACH, P, FIRST, SECOND)
    total = tl.zeros((P,), tl.float32)
    for step in range(STRIP + 2 * HALO):
        cell = start - HALO + step
        for k in tl.static_range(IN):
            row = IN * cell + REACH + k
            window = window + (
                _fine_row(
                    x, row, columns, plane, planes, b, up, C, H, W, P, CHANNELS_LAST, ARITHMETIC
                ),
            )
        for k in tl.static_range(OUT):
            row = OUT * cell + REACH + k
            cotangents = cotangents + (
                _fine_row(
                    dy, row, y_columns, plane, planes, 0.0, down, C, H_OUT, W_OUT, P,
                    CHANNELS_LAST, ARITHMETIC,
                ),
            )  # fmt: skip
        for r in tl.static_range(R):
            f = (cell + REACH) * R + r
            z = _weighted(up_rows + f * (IN + 2 * REACH), window)
            e = _weighted(down_rows + f * (OUT + 2 * REACH), cotangents)
            a = ()
            for i in tl.static_range(len(z)):
                a = a + (_sigma_slope(z[i], SIGMA) * e[i],)
            sums = _spread(up_rows + f * (IN + 2 * REACH), a, sums)
        for k in tl.static_range(IN):
            row = IN * cell - REACH + k
            if (row >= IN * start) & (row < min(IN * (start + STRIP), H)):
                values = _coarse_row(sums[k], back, ARITHMETIC)
                at = _offsets(plane, row, dx_columns, C, H, W, P, CHANNELS_LAST)
                tl.store(dx + at, values.to(dx.dtype.element_ty), mask=dx_mask)
                total += tl.sum(tl.where(dx_mask, values, 0.0), axis=1)
        window = window[IN:]
        cotangents = cotangents[OUT:]
        sums = sums[IN:] + _zeros(IN, P, FIRST, SECOND)
    part = tl.program_id(1) * tl.num_programs(2) + tile
    tl.store(dbias + part * planes + p, total, mask=p < planes)
