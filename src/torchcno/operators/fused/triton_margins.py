"""The Triton programs behind `torchcno.operators.fused.margins`; importing this file needs Triton.

An axis of n points goes on beyond its ends by the rule of its boundary, with the sign s, and
`margin` points of that are wanted at both ends. H and W are constants of a program, since divisions
by other numbers take longer than the memory does. Written with p = 0, …, n + 2 margin − 1:

    repeated    (E f)_p = s^|k| f_{p − margin − kn},             k = −1, 0, 1
    reflected   the same, with the index counted from the other end where k ≠ 0

so that f_i comes back to E f at most three times an axis, and Eᵀ adds up what stands there.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def _source(p, n, MARGIN: tl.constexpr, REFLECTED: tl.constexpr):
    """The point i that the point p of an extended axis is made of, and whether it lies beyond."""
    j = p - MARGIN
    beyond = (j < 0) | (j >= n)
    if REFLECTED:
        i = tl.where(j < 0, -1 - j, tl.where(j >= n, 2 * n - 1 - j, j))
    else:
        i = tl.where(j < 0, j + n, tl.where(j >= n, j - n, j))
    return i, beyond


@triton.jit
def _image(i, k: tl.constexpr, n, MARGIN: tl.constexpr, REFLECTED: tl.constexpr):
    """The point p of an extended axis that the point i comes back to in lap k, if there is one."""
    if REFLECTED and k != 0:
        p = tl.where(k < 0, MARGIN - 1 - i, MARGIN + 2 * n - 1 - i)
    else:
        p = MARGIN + i + k * n
    return p, (p >= 0) & (p < n + 2 * MARGIN)


@triton.jit
def _entries(BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """The numbers of the values that a program writes; of 64 bits where there are so many."""
    program = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    return program * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _points(
    i, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, CHANNELS_LAST: tl.constexpr
):  # fmt: skip
    """Plane or sample, row, column and channel of the value i; the channel is 0 with planes."""
    if CHANNELS_LAST:
        c, i = i % C, i // C
    else:
        c = i * 0
    return i // W // H, i // W % H, i % W, c


@triton.jit
def extend(
    x, y, SIZE, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, MARGIN: tl.constexpr, CHANNELS_LAST: tl.constexpr,
    SIGN_H: tl.constexpr, REFLECTED_H: tl.constexpr,
    SIGN_W: tl.constexpr, REFLECTED_W: tl.constexpr,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Y = E X with both axes of a plane extended; X has H × W points."""
    at = _entries(BLOCK, WIDE)
    plane, p, q, c = _points(at, H + 2 * MARGIN, W + 2 * MARGIN, C, CHANNELS_LAST)
    h, above = _source(p, H, MARGIN, REFLECTED_H)
    w, aside = _source(q, W, MARGIN, REFLECTED_W)
    mask = at < SIZE
    if SIGN_H == 0:
        mask &= ~above
    if SIGN_W == 0:
        mask &= ~aside
    channels = C if CHANNELS_LAST else 1
    value = tl.load(x + ((plane * H + h) * W + w) * channels + c, mask=mask, other=0.0)
    if SIGN_H < 0:
        value = tl.where(above, -value, value)
    if SIGN_W < 0:
        value = tl.where(aside, -value, value)
    tl.store(y + at, value, mask=at < SIZE)


@triton.jit
def fold(
    dy, dx, SIZE, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, MARGIN: tl.constexpr, CHANNELS_LAST: tl.constexpr,
    SIGN_H: tl.constexpr, REFLECTED_H: tl.constexpr,
    SIGN_W: tl.constexpr, REFLECTED_W: tl.constexpr,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dX = Eᵀ dY."""
    at = _entries(BLOCK, WIDE)
    plane, h, w, c = _points(at, H, W, C, CHANNELS_LAST)
    channels = C if CHANNELS_LAST else 1
    total = tl.zeros((BLOCK,), tl.float32)
    for a in tl.static_range(-1, 2):
        for b in tl.static_range(-1, 2):
            sign = (SIGN_H if a != 0 else 1) * (SIGN_W if b != 0 else 1)
            if sign != 0:
                p, there = _image(h, a, H, MARGIN, REFLECTED_H)
                q, here = _image(w, b, W, MARGIN, REFLECTED_W)
                offset = ((plane * (H + 2 * MARGIN) + p) * (W + 2 * MARGIN) + q) * channels + c
                mask = (at < SIZE) & there & here
                total += sign * tl.load(dy + offset, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx + at, total.to(dx.dtype.element_ty), mask=at < SIZE)
