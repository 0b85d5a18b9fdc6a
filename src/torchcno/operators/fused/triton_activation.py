"""The Triton programs behind `torchcno.operators.fused.kernels`; importing this file needs Triton.

A plane is one channel of one sample. With U_r, U_c the matrices that upsample rows and columns and
D_r, D_c those that downsample them, a program walks over blocks f, g of the fine grid's rows and
columns, so that the fine grid exists one block at a time, on chip:

    T_f = U_r[f] (X + b)        Y  = Σ_f D_r[:, f] Σ_g σ(T_f U_c[g]ᵀ) D_c[:, g]ᵀ
    E_f = D_r[:, f]ᵀ dY         dX = Σ_f U_r[f]ᵀ Σ_g (σ'(T_f U_c[g]ᵀ) ∘ E_f D_c[:, g]) U_c[g]

A program holds P planes: side by side, (rows, P · columns), in the products over rows, and as
(rows · P, columns) in those over columns. That is the same numbers in the same order, so that all
products are plain matrix products, tall enough for the matrix units where a plane is only 8 × 8.

Every program is compiled for one S, a `kernels.Planes`: S.X, S.Y and S.FINE are the grids of the
input, of the output and of σ, each with its rows H and columns W and the blocks BH and BW of them.

Blocks are powers of two and reach beyond the edges of a plane. The matrices are given with zeros
there, as whole blocks, which multiply whatever the padded rows and columns of a plane hold.

Float16 has the significand of TF32, 11 bits, at twice the speed and in half the memory, but a small
range. So a plane is multiplied by a power of two, which is exact: 2^k brings its largest value to
[32, 64). From there the rows of U, D and their transposes, whose absolute values add up to a few
units, stay far below 65504; and what is down to 2^-20 of the largest value keeps all its bits.
"""

# mypy: disable-error-code="no-untyped-def"

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import triton
import triton.language as tl

from torchcno.operators import sigma

sigma.tl = tl


class _Constants:
    """The fields of a dataclass, each known to Triton's compiler as a constant."""

    def __init__(self, values: Any) -> None:
        self._text = repr(values)
        for field in fields(values):
            value = getattr(values, field.name)
            constant = tl.constexpr(_Constants(value) if is_dataclass(value) else value)
            setattr(self, field.name, constant)

    def __repr__(self) -> str:
        return self._text  # a part of the key under which a program is kept


@cache
def as_constants(values: Any) -> Any:
    """A dataclass as programs read it; the interpreter takes it as it is."""
    return _Constants(values) if isinstance(forward_2d, triton.JITFunction) else values


_sigma, _sigma_slope = triton.jit(sigma.value_on_chip), triton.jit(sigma.slope_on_chip)


@triton.jit
def _power(k):
    """2^k for integers |k| ≤ 126."""
    return ((k + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _exponent(largest, S: tl.constexpr):
    """k such that 2^k brings a value `largest` ≥ 0 to [32, 64) where the range is small, else 0.

    Zero and the smallest numbers get the largest k that has a reciprocal, infinity and NaN stay
    what they are under any.
    """
    k = tl.zeros_like(largest).to(tl.int32)
    if S.ARITHMETIC == "fp16":
        k = tl.minimum(132 - (largest.to(tl.int32, bitcast=True) >> 23), 126)
    return k


@triton.jit
def _raised_sigma(z, k, S: tl.constexpr):
    """2^k σ(2^-k z), which is σ(z) for those that are linear on either side of zero."""
    if S.SCALED:
        z = _power(-k) * z
    y = _sigma(z, S)
    if S.SCALED:
        y = _power(k) * y
    return y


@triton.jit
def _raised_slope(z, k, S: tl.constexpr):
    """σ'(2^-k z)."""
    if S.SCALED:
        z = _power(-k) * z
    return _sigma_slope(z, S)


@triton.jit
def _operand(a, S: tl.constexpr):
    """`a` as a factor of a product in this arithmetic."""
    if S.ARITHMETIC == "fp16":
        a = a.to(tl.float16)
    elif S.ARITHMETIC == "bf16":
        a = a.to(tl.bfloat16)
    elif S.ARITHMETIC == "tf32":
        # The matrix units drop the last 13 bits. Half of what they drop, added before, makes that
        # a rounding; without it each of the four products would shrink by 0.03 % a factor.
        a = (a.to(tl.float32).to(tl.int32, bitcast=True) + 0x1000).to(tl.float32, bitcast=True)
    else:
        tl.static_assert(S.ARITHMETIC == "fp32")
        a = a.to(tl.float32)
    return a


@triton.jit
def _product(a, b, S: tl.constexpr):
    """a b of two operands, accumulated in float32; three TF32 products make a float32 one."""
    PRECISION: tl.constexpr = "tf32x3" if S.ARITHMETIC == "fp32" else "tf32"
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _lines(pointer, rows, columns, ROWS, COLUMNS: tl.constexpr):
    """The entries (rows, columns) of contiguous lines, zero where there are none."""
    mask = (rows < ROWS) & (columns < COLUMNS)
    return tl.load(pointer + rows * COLUMNS + columns, mask=mask, other=0.0)


@triton.jit
def _plane_offsets(plane, G: tl.constexpr, S: tl.constexpr):
    """Offsets and mask of the P planes from `plane` on, the axis contiguous in memory last.

    (BH, P, BW) as planes lie one after the other, (BH, BW, P) with channels last, where the P
    planes are neighbouring channels of one sample.
    """
    plane = plane.to(tl.int64)
    h = tl.arange(0, G.BH)[:, None, None]
    if S.LAST:
        w = tl.arange(0, G.BW)[None, :, None]
        p = tl.arange(0, S.P)[None, None, :]
        offsets = plane // S.C * (G.H * G.W * S.C) + plane % S.C + (h * G.W + w) * S.C + p
    else:
        p = tl.arange(0, S.P)[None, :, None]
        w = tl.arange(0, G.BW)[None, None, :]
        offsets = plane * (G.H * G.W) + p * (G.H * G.W) + h * G.W + w
    return offsets, (h < G.H) & (w < G.W) & (p >= 0)


@triton.jit
def _load_planes(pointer, plane, G: tl.constexpr, S: tl.constexpr):
    """P planes as (BH, P, BW)."""
    offsets, mask = _plane_offsets(plane, G, S)
    block = tl.load(pointer + offsets, mask=mask, other=0.0)
    if S.LAST:
        block = tl.permute(block, (0, 2, 1))
    return block


@triton.jit
def _read_planes(x, bias, mean, variance, weight, shift, eps, plane, S: tl.constexpr):
    """X + b of P planes as (BH, P, BW); X is normalised first where there is a `mean`."""
    c = (plane + tl.arange(0, S.P)) % S.C
    b = tl.load(bias + c).to(tl.float32)
    X = _load_planes(x, plane, S.X, S).to(tl.float32)
    if mean is not None:
        scale = tl.load(weight + c) * tl.rsqrt(tl.load(variance + c) + eps)
        X = (X - tl.load(mean + c)[None, :, None]) * scale[None, :, None]
        b += tl.load(shift + c)
    return X + b[None, :, None]


@triton.jit
def _store_planes(pointer, block, plane, G: tl.constexpr, S: tl.constexpr):
    """The inverse of `_load_planes`, from (BH, P, BW)."""
    offsets, mask = _plane_offsets(plane, G, S)
    if S.LAST:
        block = tl.permute(block, (0, 2, 1))
    tl.store(pointer + offsets, block.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _raised_planes(X, G: tl.constexpr, S: tl.constexpr):
    """Planes (BH, P, BW) side by side, as a factor of products, each times 2^k; and k (P,)."""
    k = _exponent(tl.max(tl.max(tl.abs(X), axis=2), axis=0), S)
    X = X * _power(k)[None, :, None]
    return _operand(tl.reshape(X, (G.BH, S.P * G.BW)), S), k


@triton.jit
def _raised_lines(X, S: tl.constexpr):
    """Lines (P, BW) as a factor of products, each times 2^k; and k (P, 1)."""
    k = _exponent(tl.max(tl.abs(X), axis=1)[:, None], S)
    return _operand(X * _power(k), S), k


@triton.jit
def _columns_forward(t, k, up, down, ROWS: tl.constexpr, S: tl.constexpr):
    """Σ_g σ(T U_c[g]ᵀ) D_c[:, g]ᵀ for T (ROWS, X.BW) times 2^k, k (ROWS, 1): (ROWS, Y.BW)."""
    w = tl.arange(0, S.X.BW)[:, None]
    w_out = tl.arange(0, S.Y.BW)[None, :]
    y = tl.zeros((ROWS, S.Y.BW), tl.float32)
    for start in range(0, S.FINE.W, S.FINE.BW):
        g = start + tl.arange(0, S.FINE.BW)
        u = tl.load(up + g[None, :] * S.X.BW + w)
        d = tl.load(down + w_out * S.FINE.W + g[:, None])
        a = _raised_sigma(_product(t, u, S), k, S)
        y += _product(_operand(a, S), d, S)
    return y


@triton.jit
def _columns_backward(t, e, k, up, down, ROWS: tl.constexpr, S: tl.constexpr):
    """Σ_g (σ'(T U_c[g]ᵀ) ∘ E D_c[:, g]) U_c[g] for T (ROWS, X.BW), E (ROWS, Y.BW): (ROWS, X.BW).

    T comes times 2^k, k (ROWS, 1).
    """
    w = tl.arange(0, S.X.BW)
    w_out = tl.arange(0, S.Y.BW)[:, None]
    dx = tl.zeros((ROWS, S.X.BW), tl.float32)
    for start in range(0, S.FINE.W, S.FINE.BW):
        g = start + tl.arange(0, S.FINE.BW)
        u = tl.load(up + g[:, None] * S.X.BW + w[None, :])
        d = tl.load(down + w_out * S.FINE.W + g[None, :])
        a = _raised_slope(_product(t, tl.trans(u), S), k, S)
        a *= _product(e, d, S)
        dx += _product(_operand(a, S), u, S)
    return dx


@triton.jit
def forward_2d(
    x, bias, mean, variance, weight, shift, eps, up_rows, up_columns, down_rows, down_columns, y,
    S: tl.constexpr,
):  # fmt: skip
    """Y of P planes."""
    BF: tl.constexpr = S.FINE.BH
    plane = tl.program_id(0) * S.P
    X = _read_planes(x, bias, mean, variance, weight, shift, eps, plane, S)
    X, k = _raised_planes(X, S.X, S)
    k_rows = tl.reshape(tl.broadcast_to(k[None, :], (BF, S.P)), (BF * S.P, 1))
    h = tl.arange(0, S.X.BH)[None, :]
    h_out = tl.arange(0, S.Y.BH)[:, None]
    Y = tl.zeros((S.Y.BH, S.P * S.Y.BW), tl.float32)
    for start in range(0, S.FINE.H, BF):
        f = start + tl.arange(0, BF)
        u = tl.load(up_rows + f[:, None] * S.X.BH + h)
        t = tl.reshape(_operand(_product(u, X, S), S), (BF * S.P, S.X.BW))
        z = _columns_forward(t, k_rows, up_columns, down_columns, BF * S.P, S)
        d = tl.load(down_rows + h_out * S.FINE.H + f[None, :])
        z = tl.reshape(_operand(z, S), (BF, S.P * S.Y.BW))
        Y += _product(d, z, S)
    Y = tl.reshape(Y, (S.Y.BH, S.P, S.Y.BW)) * _power(-k)[None, :, None]
    _store_planes(y, Y, plane, S.Y, S)


@triton.jit
def backward_2d(
    dy, x, bias, mean, variance, weight, shift, eps, up_rows, up_columns, down_rows, down_columns,
    dx, sums, S: tl.constexpr,
):  # fmt: skip
    """The gradient G of P planes of X + b, and sums over each plane: its part of db, and of dγ.

    For a normalised X, G is that of γ X̂ + β + b, and dγ = Σ G ∘ X̂. Where the statistics of X̂ are
    held, dX is γ / √(v + ε) G, and stored in its place.
    """
    BF: tl.constexpr = S.FINE.BH
    plane = tl.program_id(0) * S.P
    X = _read_planes(x, bias, mean, variance, weight, shift, eps, plane, S)
    X, k = _raised_planes(X, S.X, S)
    k_rows = tl.reshape(tl.broadcast_to(k[None, :], (BF, S.P)), (BF * S.P, 1))
    dY, k_dy = _raised_planes(_load_planes(dy, plane, S.Y, S).to(tl.float32), S.Y, S)
    h = tl.arange(0, S.X.BH)[None, :]
    h_out = tl.arange(0, S.Y.BH)[None, :]
    dX = tl.zeros((S.X.BH, S.P * S.X.BW), tl.float32)
    for start in range(0, S.FINE.H, BF):
        f = start + tl.arange(0, BF)[:, None]
        u = tl.load(up_rows + f * S.X.BH + h)
        d = tl.load(down_rows + h_out * S.FINE.H + f)
        t = tl.reshape(_operand(_product(u, X, S), S), (BF * S.P, S.X.BW))
        e = tl.reshape(_operand(_product(d, dY, S), S), (BF * S.P, S.Y.BW))
        z = _columns_backward(t, e, k_rows, up_columns, down_columns, BF * S.P, S)
        z = tl.reshape(_operand(z, S), (BF, S.P * S.X.BW))
        dX += _product(tl.trans(u), z, S)
    dX = tl.reshape(dX, (S.X.BH, S.P, S.X.BW)) * _power(-k_dy)[None, :, None]
    at = plane + tl.arange(0, S.P)
    if S.HELD:
        scale = tl.load(weight + at % S.C) * tl.rsqrt(tl.load(variance + at % S.C) + eps)
        _store_planes(dx, dX * scale[None, :, None], plane, S.X, S)
    else:
        _store_planes(dx, dX, plane, S.X, S)
    tl.store(sums + at, tl.sum(tl.sum(dX, axis=2), axis=0))
    if mean is not None:
        # Read again, from the cache: registers are what there is too little of.
        X = _load_planes(x, plane, S.X, S).to(tl.float32)
        dX *= X - tl.load(mean + at % S.C)[None, :, None]
        dweight = tl.sum(tl.sum(dX, axis=2), axis=0) * tl.rsqrt(tl.load(variance + at % S.C) + eps)
        tl.store(sums + tl.num_programs(0) * S.P + at, dweight)


@triton.jit
def _read_lines(x, bias, line, LINES, S: tl.constexpr):
    """X + b of P lines, as a factor of products, each times 2^k; and k."""
    X = _lines(x, line[:, None].to(tl.int64), tl.arange(0, S.X.BW)[None, :], LINES, S.X.W)
    b = tl.load(bias + line % S.C).to(tl.float32)[:, None]
    return _raised_lines(X.to(tl.float32) + b, S)


@triton.jit
def forward_1d(x, bias, up, down, y, LINES, S: tl.constexpr):
    """Y of P lines (a line: one channel of one sample)."""
    line = tl.program_id(0) * S.P + tl.arange(0, S.P)
    w_out = tl.arange(0, S.Y.BW)[None, :]
    rows = line[:, None].to(tl.int64)
    X, k = _read_lines(x, bias, line, LINES, S)
    Y = _columns_forward(X, k, up, down, S.P, S) * _power(-k)
    mask = (rows < LINES) & (w_out < S.Y.W)
    tl.store(y + rows * S.Y.W + w_out, Y.to(y.dtype.element_ty), mask=mask)


@triton.jit
def backward_1d(dy, x, bias, up, down, dx, dbias, LINES, S: tl.constexpr):
    """dX of P lines, and its sum over each line."""
    line = tl.program_id(0) * S.P + tl.arange(0, S.P)
    w = tl.arange(0, S.X.BW)[None, :]
    w_out = tl.arange(0, S.Y.BW)[None, :]
    rows = line[:, None].to(tl.int64)
    X, k = _read_lines(x, bias, line, LINES, S)
    dY, k_dy = _raised_lines(_lines(dy, rows, w_out, LINES, S.Y.W).to(tl.float32), S)
    dX = _columns_backward(X, dY, k, up, down, S.P, S) * _power(-k_dy)
    mask = (rows < LINES) & (w < S.X.W)
    tl.store(dx + rows * S.X.W + w, dX.to(dx.dtype.element_ty), mask=mask)
    tl.store(dbias + line, tl.sum(dX, axis=1), mask=line < LINES)
