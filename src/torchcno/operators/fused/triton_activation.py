"""The Triton programs behind `torchcno.operators.fused.kernels`; importing this file needs Triton.

A plane is one channel of one sample. With U_r, U_c the matrices that upsample rows and columns and
D_r, D_c those that downsample them, a program walks over blocks f, g of the fine grid's rows and
columns, so that the fine grid exists one block at a time, on chip:

    T_f = U_r[f] (X + b)        Y  = Σ_f D_r[:, f] Σ_g σ(T_f U_c[g]ᵀ) D_c[:, g]ᵀ
    E_f = D_r[:, f]ᵀ dY         dX = Σ_f U_r[f]ᵀ Σ_g (σ'(T_f U_c[g]ᵀ) ∘ E_f D_c[:, g]) U_c[g]

A program holds P planes: side by side, (rows, P · columns), in the products over rows, and as
(rows · P, columns) in those over columns. That is the same numbers in the same order, so that all
products are plain matrix products, tall enough for the matrix units where a plane is only 8 × 8.

Blocks are powers of two and reach beyond the edges of a plane. The matrices are given with zeros
there, as whole blocks, which multiply whatever the padded rows and columns of a plane hold.

Float16 has the significand of TF32, 11 bits, at twice the speed and in half the memory, but a small
range. So a plane is multiplied by a power of two, which is exact: 2^k brings its largest value to
[32, 64). From there the rows of U, D and their transposes, whose absolute values add up to a few
units, stay far below 65504; and what is down to 2^-20 of the largest value keeps all its bits.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from torchcno.operators import sigma

sigma.tl = tl
_sigma, _sigma_slope = triton.jit(sigma.value_on_chip), triton.jit(sigma.slope_on_chip)


@triton.jit
def _power(k):
    """2^k for integers |k| ≤ 126."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _exponent(largest, ARITHMETIC: tl.constexpr):
    """k such that 2^k brings a value `largest` ≥ 0 to [32, 64) where the range is small, else 0.

    Zero and the smallest numbers get the largest k that has a reciprocal, infinity and NaN stay
    what they are under any.
    """
    k = tl.zeros_like(largest).to(tl.int32)
    if ARITHMETIC == "fp16":
        k = tl.minimum(132 - (largest.to(tl.int32, bitcast=True) >> 23), 126)
    return k


@triton.jit
def _raised_sigma(z, k, SIGMA: tl.constexpr, ARITHMETIC: tl.constexpr):
    """2^k σ(2^-k z), which is σ(z) for the two that are linear on either side of zero."""
    if ARITHMETIC != "fp16" or SIGMA == "leaky_relu" or SIGMA == "relu":
        y = _sigma(z, SIGMA)
    else:
        y = _power(k) * _sigma(_power(-k) * z, SIGMA)
    return y


@triton.jit
def _raised_slope(z, k, SIGMA: tl.constexpr, ARITHMETIC: tl.constexpr):
    """σ'(2^-k z)."""
    if ARITHMETIC != "fp16" or SIGMA == "leaky_relu" or SIGMA == "relu":
        y = _sigma_slope(z, SIGMA)
    else:
        y = _sigma_slope(_power(-k) * z, SIGMA)
    return y


@triton.jit
def _operand(a, ARITHMETIC: tl.constexpr):
    """`a` as a factor of a product in this arithmetic."""
    if ARITHMETIC == "fp16":
        a = a.to(tl.float16)
    elif ARITHMETIC == "bf16":
        a = a.to(tl.bfloat16)
    elif ARITHMETIC == "tf32":
        # The matrix units drop the last 13 bits. Half of what they drop, added before, makes that
        # a rounding; without it each of the four products would shrink by 0.03 % a factor.
        a = (a.to(tl.float32).to(tl.int32, bitcast=True) + 0x1000).to(tl.float32, bitcast=True)
    else:
        tl.static_assert(ARITHMETIC == "fp32")
        a = a.to(tl.float32)
    return a


@triton.jit
def _product(a, b, ARITHMETIC: tl.constexpr):
    """a b of two operands, accumulated in float32; three TF32 products make a float32 one."""
    PRECISION: tl.constexpr = "tf32x3" if ARITHMETIC == "fp32" else "tf32"
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _lines(pointer, rows, columns, ROWS, COLUMNS: tl.constexpr):
    """The entries (rows, columns) of contiguous lines, zero where there are none."""
    mask = (rows < ROWS) & (columns < COLUMNS)
    return tl.load(pointer + rows * COLUMNS + columns, mask=mask, other=0.0)


@triton.jit
def _plane_offsets(
    plane,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    """Offsets and mask of the P planes from `plane` on, the axis contiguous in memory last.

    (BH, P, BW) as planes lie one after the other, (BH, BW, P) with channels last, where the P
    planes are neighbouring channels of one sample.
    """
    plane = plane.to(tl.int64)
    h = tl.arange(0, BH)[:, None, None]
    if CHANNELS_LAST:
        w = tl.arange(0, BW)[None, :, None]
        p = tl.arange(0, P)[None, None, :]
        offsets = plane // C * (H * W * C) + plane % C + (h * W + w) * C + p
    else:
        p = tl.arange(0, P)[None, :, None]
        w = tl.arange(0, BW)[None, None, :]
        offsets = plane * (H * W) + p * (H * W) + h * W + w
    return offsets, (h < H) & (w < W) & (p >= 0)


@triton.jit
def _load_planes(
    pointer,
    plane,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    """P planes as (BH, P, BW)."""
    offsets, mask = _plane_offsets(plane, H, W, C, BH, BW, P, CHANNELS_LAST)
    block = tl.load(pointer + offsets, mask=mask, other=0.0)
    if CHANNELS_LAST:
        block = tl.permute(block, (0, 2, 1))
    return block


@triton.jit
def _read_planes(
    x,
    bias,
    mean,
    variance,
    weight,
    shift,
    eps,
    plane,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    """X + b of P planes as (BH, P, BW); X is normalised first where there is a `mean`."""
    c = (plane + tl.arange(0, P)) % C
    b = tl.load(bias + c).to(tl.float32)
    X = _load_planes(x, plane, H, W, C, BH, BW, P, CHANNELS_LAST).to(tl.float32)
    if mean is not None:
        scale = tl.load(weight + c) * tl.rsqrt(tl.load(variance + c) + eps)
        X = (X - tl.load(mean + c)[None, :, None]) * scale[None, :, None]
        b += tl.load(shift + c)
    return X + b[None, :, None]


@triton.jit
def _store_planes(
    pointer,
    block,
    plane,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
):
    """The inverse of `_load_planes`, from (BH, P, BW)."""
    offsets, mask = _plane_offsets(plane, H, W, C, BH, BW, P, CHANNELS_LAST)
    if CHANNELS_LAST:
        block = tl.permute(block, (0, 2, 1))
    tl.store(pointer + offsets, block.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _raised_planes(
    X, BH: tl.constexpr, BW: tl.constexpr, P: tl.constexpr, ARITHMETIC: tl.constexpr
):
    """Planes (BH, P, BW) side by side, as a factor of products, each times 2^k; and k (P,)."""
    k = _exponent(tl.max(tl.max(tl.abs(X), axis=2), axis=0), ARITHMETIC)
    X = X * _power(k)[None, :, None]
    return _operand(tl.reshape(X, (BH, P * BW)), ARITHMETIC), k


@triton.jit
def _raised_lines(X, ARITHMETIC: tl.constexpr):
    """Lines (P, BW) as a factor of products, each times 2^k; and k (P, 1)."""
    k = _exponent(tl.max(tl.abs(X), axis=1)[:, None], ARITHMETIC)
    return _operand(X * _power(k), ARITHMETIC), k


@triton.jit
def _columns_forward(
    t,
    k,
    up,
    down,
    ROWS: tl.constexpr,
    FINE: tl.constexpr,
    BW: tl.constexpr,
    BG: tl.constexpr,
    BW_OUT: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """Σ_g σ(T U_c[g]ᵀ) D_c[:, g]ᵀ for T (ROWS, BW) times 2^k, k (ROWS, 1): (ROWS, BW_OUT)."""
    w = tl.arange(0, BW)[:, None]
    w_out = tl.arange(0, BW_OUT)[None, :]
    y = tl.zeros((ROWS, BW_OUT), tl.float32)
    for start in range(0, FINE, BG):
        g = start + tl.arange(0, BG)
        u = tl.load(up + g[None, :] * BW + w)
        d = tl.load(down + w_out * FINE + g[:, None])
        a = _raised_sigma(_product(t, u, ARITHMETIC), k, SIGMA, ARITHMETIC)
        y += _product(_operand(a, ARITHMETIC), d, ARITHMETIC)
    return y


@triton.jit
def _columns_backward(
    t,
    e,
    k,
    up,
    down,
    ROWS: tl.constexpr,
    FINE: tl.constexpr,
    BW: tl.constexpr,
    BG: tl.constexpr,
    BW_OUT: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """Σ_g (σ'(T U_c[g]ᵀ) ∘ E D_c[:, g]) U_c[g] for T (ROWS, BW), E (ROWS, BW_OUT): (ROWS, BW).

    T comes times 2^k, k (ROWS, 1).
    """
    w = tl.arange(0, BW)
    w_out = tl.arange(0, BW_OUT)[:, None]
    dx = tl.zeros((ROWS, BW), tl.float32)
    for start in range(0, FINE, BG):
        g = start + tl.arange(0, BG)
        u = tl.load(up + g[:, None] * BW + w[None, :])
        d = tl.load(down + w_out * FINE + g[None, :])
        a = _raised_slope(_product(t, tl.trans(u), ARITHMETIC), k, SIGMA, ARITHMETIC)
        a *= _product(e, d, ARITHMETIC)
        dx += _product(_operand(a, ARITHMETIC), u, ARITHMETIC)
    return dx


@triton.jit
def forward_2d(
    x,
    bias,
    mean,
    variance,
    weight,
    shift,
    eps,
    up_rows,
    up_columns,
    down_rows,
    down_columns,
    y,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    H_FINE: tl.constexpr,
    W_FINE: tl.constexpr,
    H_OUT: tl.constexpr,
    W_OUT: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    BF: tl.constexpr,
    BG: tl.constexpr,
    BH_OUT: tl.constexpr,
    BW_OUT: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """Y of P planes."""
    plane = tl.program_id(0) * P
    X = _read_planes(
        x, bias, mean, variance, weight, shift, eps, plane, H, W, C, BH, BW, P, CHANNELS_LAST
    )
    X, k = _raised_planes(X, BH, BW, P, ARITHMETIC)
    k_rows = tl.reshape(tl.broadcast_to(k[None, :], (BF, P)), (BF * P, 1))
    h = tl.arange(0, BH)[None, :]
    h_out = tl.arange(0, BH_OUT)[:, None]
    Y = tl.zeros((BH_OUT, P * BW_OUT), tl.float32)
    for start in range(0, H_FINE, BF):
        f = start + tl.arange(0, BF)
        u = tl.load(up_rows + f[:, None] * BH + h)
        t = tl.reshape(_operand(_product(u, X, ARITHMETIC), ARITHMETIC), (BF * P, BW))
        z = _columns_forward(
            t, k_rows, up_columns, down_columns, BF * P, W_FINE, BW, BG, BW_OUT,
            SIGMA, ARITHMETIC,
        )  # fmt: skip
        d = tl.load(down_rows + h_out * H_FINE + f[None, :])
        z = tl.reshape(_operand(z, ARITHMETIC), (BF, P * BW_OUT))
        Y += _product(d, z, ARITHMETIC)
    Y = tl.reshape(Y, (BH_OUT, P, BW_OUT)) * _power(-k)[None, :, None]
    _store_planes(y, Y, plane, H_OUT, W_OUT, C, BH_OUT, BW_OUT, P, CHANNELS_LAST)


@triton.jit
def backward_2d(
    dy,
    x,
    bias,
    mean,
    variance,
    weight,
    shift,
    eps,
    up_rows,
    up_columns,
    down_rows,
    down_columns,
    dx,
    sums,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    H_FINE: tl.constexpr,
    W_FINE: tl.constexpr,
    H_OUT: tl.constexpr,
    W_OUT: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    BF: tl.constexpr,
    BG: tl.constexpr,
    BH_OUT: tl.constexpr,
    BW_OUT: tl.constexpr,
    P: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """The gradient G of P planes of X + b, and sums over each plane: its part of db, and of dγ.

    For a normalised X, G is that of γ X̂ + β + b, and dγ = Σ G ∘ X̂.
    """
    plane = tl.program_id(0) * P
    X = _read_planes(
        x, bias, mean, variance, weight, shift, eps, plane, H, W, C, BH, BW, P, CHANNELS_LAST
    )
    X, k = _raised_planes(X, BH, BW, P, ARITHMETIC)
    k_rows = tl.reshape(tl.broadcast_to(k[None, :], (BF, P)), (BF * P, 1))
    dY = _load_planes(dy, plane, H_OUT, W_OUT, C, BH_OUT, BW_OUT, P, CHANNELS_LAST)
    dY, k_dy = _raised_planes(dY.to(tl.float32), BH_OUT, BW_OUT, P, ARITHMETIC)
    h = tl.arange(0, BH)[None, :]
    h_out = tl.arange(0, BH_OUT)[None, :]
    dX = tl.zeros((BH, P * BW), tl.float32)
    for start in range(0, H_FINE, BF):
        f = start + tl.arange(0, BF)[:, None]
        u = tl.load(up_rows + f * BH + h)
        d = tl.load(down_rows + h_out * H_FINE + f)
        t = tl.reshape(_operand(_product(u, X, ARITHMETIC), ARITHMETIC), (BF * P, BW))
        e = tl.reshape(_operand(_product(d, dY, ARITHMETIC), ARITHMETIC), (BF * P, BW_OUT))
        z = _columns_backward(
            t, e, k_rows, up_columns, down_columns, BF * P, W_FINE, BW, BG, BW_OUT,
            SIGMA, ARITHMETIC,
        )  # fmt: skip
        z = tl.reshape(_operand(z, ARITHMETIC), (BF, P * BW))
        dX += _product(tl.trans(u), z, ARITHMETIC)
    dX = tl.reshape(dX, (BH, P, BW)) * _power(-k_dy)[None, :, None]
    _store_planes(dx, dX, plane, H, W, C, BH, BW, P, CHANNELS_LAST)
    at = plane + tl.arange(0, P)
    tl.store(sums + at, tl.sum(tl.sum(dX, axis=2), axis=0))
    if mean is not None:
        # Read again, from the cache: registers are what there is too little of.
        X = _load_planes(x, plane, H, W, C, BH, BW, P, CHANNELS_LAST).to(tl.float32)
        dX *= X - tl.load(mean + at % C)[None, :, None]
        dweight = tl.sum(tl.sum(dX, axis=2), axis=0) * tl.rsqrt(tl.load(variance + at % C) + eps)
        tl.store(sums + tl.num_programs(0) * P + at, dweight)


@triton.jit
def normalisation_backward(
    dx,
    x,
    sums,
    mean,
    variance,
    weight,
    eps,
    share,
    SIZE,
    C: tl.constexpr,
    SPACE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dX = γ / √(v + ε) (G − (dβ + X̂ dγ) / n) in the place of G; `sums` are dβ, dγ, `share` 1/n."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < SIZE
    c = i % C if CHANNELS_LAST else i // SPACE % C
    inverse = tl.rsqrt(tl.load(variance + c) + eps)
    X = (tl.load(x + i, mask=mask, other=0.0).to(tl.float32) - tl.load(mean + c)) * inverse
    G = tl.load(dx + i, mask=mask, other=0.0).to(tl.float32)
    G -= share * (tl.load(sums + c) + X * tl.load(sums + C + c))
    G *= tl.load(weight + c) * inverse
    tl.store(dx + i, G.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def forward_1d(
    x,
    bias,
    up,
    down,
    y,
    LINES,
    C: tl.constexpr,
    W: tl.constexpr,
    W_FINE: tl.constexpr,
    W_OUT: tl.constexpr,
    BW: tl.constexpr,
    BG: tl.constexpr,
    BW_OUT: tl.constexpr,
    P: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """Y of P lines (a line: one channel of one sample)."""
    line = tl.program_id(0) * P + tl.arange(0, P)
    w = tl.arange(0, BW)[None, :]
    w_out = tl.arange(0, BW_OUT)[None, :]
    rows = line[:, None].to(tl.int64)
    X = _lines(x, rows, w, LINES, W).to(tl.float32)
    X, k = _raised_lines(X + tl.load(bias + line % C).to(tl.float32)[:, None], ARITHMETIC)
    Y = _columns_forward(X, k, up, down, P, W_FINE, BW, BG, BW_OUT, SIGMA, ARITHMETIC) * _power(-k)
    mask = (rows < LINES) & (w_out < W_OUT)
    tl.store(y + rows * W_OUT + w_out, Y.to(y.dtype.element_ty), mask=mask)


@triton.jit
def backward_1d(
    dy,
    x,
    bias,
    up,
    down,
    dx,
    dbias,
    LINES,
    C: tl.constexpr,
    W: tl.constexpr,
    W_FINE: tl.constexpr,
    W_OUT: tl.constexpr,
    BW: tl.constexpr,
    BG: tl.constexpr,
    BW_OUT: tl.constexpr,
    P: tl.constexpr,
    SIGMA: tl.constexpr,
    ARITHMETIC: tl.constexpr,
):
    """dX of P lines, and its sum over each line."""
    line = tl.program_id(0) * P + tl.arange(0, P)
    w = tl.arange(0, BW)[None, :]
    w_out = tl.arange(0, BW_OUT)[None, :]
    rows = line[:, None].to(tl.int64)
    X = _lines(x, rows, w, LINES, W).to(tl.float32)
    X, k = _raised_lines(X + tl.load(bias + line % C).to(tl.float32)[:, None], ARITHMETIC)
    dY, k_dy = _raised_lines(_lines(dy, rows, w_out, LINES, W_OUT).to(tl.float32), ARITHMETIC)
    dX = _columns_backward(X, dY, k, up, down, P, W_FINE, BW, BG, BW_OUT, SIGMA, ARITHMETIC)
    dX *= _power(-k_dy)
    tl.store(dx + rows * W + w, dX.to(dx.dtype.element_ty), mask=(rows < LINES) & (w < W))
    tl.store(dbias + line, tl.sum(dX, axis=1), mask=line < LINES)
