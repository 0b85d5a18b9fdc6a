"""The Triton programs behind `torchcno.operators.fused.few`; importing this file needs Triton.

With K² taps z of the kernel k, and fields that go on beyond their edges by repetition with a sign,

    y_o(p) = b_o + Σ_i Σ_z k_oi(z) x_i(p + z),    or turned    y_i(p) = Σ_o Σ_z k_oi(−z) x_o(p + z).

The field of many channels, C, is a matrix (point, channel); that of few, S, lies as it lies. H and
W are constants of a program, since divisions by other numbers take longer than the memory does.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from torchcno.operators.fused.triton_margins import _source


@triton.jit
def _neighbour(
    p, i, j, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    SIGN_H: tl.constexpr, SIGN_W: tl.constexpr,
):  # fmt: skip
    """Row and column that the tap (i, j) of the point p reads, and its sign; 0 is no point."""
    h, above = _source(p // W % H + i, H, K // 2, False)
    w, aside = _source(p % W + j, W, K // 2, False)
    sign = tl.where(above, SIGN_H, 1) * tl.where(aside, SIGN_W, 1)
    return h, w, sign


@triton.jit
def spread(
    x, weight, bias, y, POINTS, x_n, x_s, x_h, x_w, weight_c, weight_s, weight_i, weight_j,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
    TURNED: tl.constexpr, SIGN_H: tl.constexpr, SIGN_W: tl.constexpr,
    PB: tl.constexpr, CB: tl.constexpr, TB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Many channels of few: windows (point, tap) times weights (tap, channel)."""
    p = tl.program_id(0) * PB + tl.arange(0, PB)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    t = tl.arange(0, TB)
    s, i, j = t // (K * K), t // K % K, t % K
    there, inside = (t < S * K * K)[None, :], c < C
    h, w, sign = _neighbour(p[:, None], i[None, :], j[None, :], H, W, K, SIGN_H, SIGN_W)
    mask = (p < POINTS)[:, None] & there & (sign != 0)
    at = (p // (H * W))[:, None].to(tl.int64) * x_n + s[None, :] * x_s + h * x_h + w * x_w
    windows = tl.load(x + at, mask=mask, other=0.0) * sign
    if TURNED:
        i, j = K - 1 - i, K - 1 - j
    at = (s * weight_s + i * weight_i + j * weight_j)[:, None] + (c * weight_c)[None, :]
    k = tl.load(weight + at, mask=(t < S * K * K)[:, None] & inside[None, :], other=0.0)
    kind = y.dtype.element_ty
    Y = tl.dot(windows.to(kind), k.to(kind), input_precision=PRECISION)
    if bias is not None:
        Y += tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)[None, :]
    at = p[:, None].to(tl.int64) * C + c[None, :]
    tl.store(y + at, Y.to(kind), mask=(p < POINTS)[:, None] & inside[None, :])


@triton.jit
def gather(
    x, weight, bias, y, POINTS, x_n, x_c, x_h, x_w, weight_c, weight_s, weight_i, weight_j,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
    TURNED: tl.constexpr, SIGN_H: tl.constexpr, SIGN_W: tl.constexpr,
    PB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Few channels of many: products (point, channel) for one tap after the other, then one sum."""
    p = tl.program_id(0) * PB + tl.arange(0, PB)
    first = (p // (H * W)).to(tl.int64) * x_n
    kind = y.dtype.element_ty
    for s in tl.static_range(S):
        total = tl.zeros((PB, CB), tl.float32)
        for start in range(0, C, CB):
            c = start + tl.arange(0, CB)
            inside = c < C
            for t in tl.static_range(K * K):
                i, j = t // K, t % K
                h, w, sign = _neighbour(p, i, j, H, W, K, SIGN_H, SIGN_W)
                mask = ((p < POINTS) & (sign != 0))[:, None] & inside[None, :]
                at = (first + h.to(tl.int64) * x_h + w * x_w)[:, None] + (c * x_c)[None, :]
                values = tl.load(x + at, mask=mask, other=0.0).to(kind).to(tl.float32)
                if SIGN_H < 0 or SIGN_W < 0:
                    values *= sign[:, None]
                tap = (K - 1 - i) * weight_i + (K - 1 - j) * weight_j if TURNED else (
                    i * weight_i + j * weight_j
                )  # fmt: skip
                k = tl.load(weight + c * weight_c + s * weight_s + tap, mask=inside, other=0.0)
                total += values * k.to(kind).to(tl.float32)[None, :]
        Y = tl.sum(total, axis=1)
        if bias is not None:
            Y += tl.load(bias + s).to(tl.float32)
        tl.store(y + p.to(tl.int64) * S + s, Y.to(kind), mask=p < POINTS)
