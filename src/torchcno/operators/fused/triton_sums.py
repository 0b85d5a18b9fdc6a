"""Triton programs for sums over all points of a batch; importing this file needs Triton.

Each program sums over a share of the points and writes its part; the parts are added up afterwards,
in the same order every time. Fields with channels last are matrices (point, channel).
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from torchcno.operators.fused.triton_margins import store_with_margins


@triton.jit
def _shares(parts, kind: tl.constexpr, programs, c, C: tl.constexpr, NB: tl.constexpr):
    """What all programs, at most NB, left of one kind, past the nearest cache.

    That knows nothing of what other multiprocessors store.
    """
    share = tl.arange(0, NB)[:, None]
    mask = (share < programs) & (c < C)[None, :]
    at = parts + (kind * programs + share) * C + c[None, :]
    return tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def _join(parts, n, programs, c, C: tl.constexpr, NB: tl.constexpr):
    """Mean and sum of squared deviations of all n values, from those of shares."""
    mean = _shares(parts, 0, programs, c, C, NB)
    squares = _shares(parts, 1, programs, c, C, NB)
    number = _shares(parts, 2, programs, c, C, NB)
    mu = tl.sum(mean * number, axis=0) / n
    away = mean - mu[None, :]
    return mu, tl.sum(squares + number * away * away, axis=0)


@triton.jit
def moments(
    x, parts, counter, mean, variance, running_mean, running_variance, momentum, POINTS, TILES,
    C: tl.constexpr, PB: tl.constexpr, CB: tl.constexpr, NB: tl.constexpr,
):  # fmt: skip
    """Mean and variance of CB channels, and the running ones moved towards them.

    Every program leaves mean, sum of squared deviations and number of a share of the points, and
    the one that is the last to do so joins the shares. Deviations d are from the first value: sums
    of squares are Σ d² − (Σ d)² / n, which loses no digits under a large mean.

    As in PyTorch, running variances are of a sample (n − 1), and those that normalise are not.
    `counter` has a zero for each block of channels, before and after.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    inside = c < C
    pivot = tl.load(x + (program * PB).to(tl.int64) * C + c, mask=inside, other=0.0).to(tl.float32)
    first = tl.zeros((PB, CB), tl.float32)
    second = tl.zeros((PB, CB), tl.float32)
    number = 0.0
    for tile in range(program, TILES, programs):
        p = tile * PB + tl.arange(0, PB)
        mask = (p[:, None] < POINTS) & inside[None, :]
        values = tl.load(x + p[:, None].to(tl.int64) * C + c[None, :], mask=mask, other=0.0)
        away = tl.where(mask, values.to(tl.float32) - pivot[None, :], 0.0)
        first += away
        second += away * away
        number += tl.minimum(POINTS - tile * PB, PB).to(tl.float32)
    sums = tl.sum(first, axis=0)
    squares = tl.sum(second, axis=0) - sums * (sums / number)
    at = parts + program * C + c
    tl.store(at, pivot + sums / number, mask=inside)
    tl.store(at + programs * C, squares, mask=inside)
    tl.store(at + 2 * programs * C, tl.zeros((CB,), tl.float32) + number, mask=inside)
    tl.debug_barrier()  # all of this program is stored before it counts itself
    before = tl.atomic_add(counter + tl.program_id(1), 1, sem="acq_rel", scope="gpu")
    if before == programs - 1:
        tl.store(counter + tl.program_id(1), 0)
        every = POINTS.to(tl.float32)
        joint, sum_of_squares = _join(parts, every, programs, c, C, NB)
        tl.store(mean + c, joint, mask=inside)
        tl.store(variance + c, sum_of_squares / every, mask=inside)
        before_mean = tl.load(running_mean + c, mask=inside)
        tl.store(running_mean + c, before_mean + momentum * (joint - before_mean), mask=inside)
        before_variance = tl.load(running_variance + c, mask=inside)
        moved = before_variance + momentum * (sum_of_squares / (every - 1) - before_variance)
        tl.store(running_variance + c, moved, mask=inside)


@triton.jit
def normalise(
    x, plus, y, wide, mean, variance, weight, shift, eps, ROWS, H: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, MARGIN: tl.constexpr, RB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Y = γ (X − μ) / √(v + ε) + β for matrices (point, channel), and `plus` where it is given.

    `wide`, where it is given, becomes Y with periodic margins.
    """
    row = tl.program_id(0) * RB + tl.arange(0, RB)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    inside = c < C
    mu = tl.load(mean + c, mask=inside, other=0.0)
    factor = tl.rsqrt(tl.load(variance + c, mask=inside, other=1.0) + eps)
    factor *= tl.load(weight + c, mask=inside, other=0.0)
    beta = tl.load(shift + c, mask=inside, other=0.0)
    mask = (row[:, None] < ROWS) & inside[None, :]
    at = row[:, None].to(tl.int64) * C + c[None, :]
    X = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    Y = (X - mu[None, :]) * factor[None, :] + beta[None, :]
    if plus is not None:
        Y += tl.load(plus + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + at, Y.to(y.dtype.element_ty), mask=mask)
    if wide is not None:
        store_with_margins(wide, Y, mask, row, c, H, W, C, MARGIN)


@triton.jit
def gradient_sums(
    g, x, parts, mean, variance, eps, POINTS, TILES,
    C: tl.constexpr, PB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Σ G and Σ G (X − μ) / √(v + ε) over a share of the points, for CB channels: (2, share, C)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    inside = c < C
    mu = tl.load(mean + c, mask=inside, other=0.0)
    inverse = tl.rsqrt(tl.load(variance + c, mask=inside, other=1.0) + eps)
    shift = tl.zeros((CB,), tl.float32)
    scale = tl.zeros((CB,), tl.float32)
    for tile in range(program, TILES, programs):
        p = tile * PB + tl.arange(0, PB)
        mask = (p[:, None] < POINTS) & inside[None, :]
        at = p[:, None].to(tl.int64) * C + c[None, :]
        G = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
        X = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        shift += tl.sum(G, axis=0)
        scale += tl.sum(G * ((X - mu[None, :]) * inverse[None, :]), axis=0)
    at = parts + program * C + c
    tl.store(at, shift, mask=inside)
    tl.store(at + programs * C, scale, mask=inside)


@triton.jit
def normalisation_backward(
    g, dx, wide, x, sums, totals, mean, variance, weight, eps, share, ROWS, COLUMNS, BATCH,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, MARGIN: tl.constexpr, LAST: tl.constexpr,
    NB: tl.constexpr, RB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """dX = γ / √(v + ε) (G − (dβ + X̂ dγ) / n); `share` is 1/n, and dX may take the place of G.

    `sums` are BATCH parts of dβ and dγ, (2, BATCH, C), and `totals` become dβ, dγ, and dβ
    once more. `wide`, where it is given, becomes dX with periodic margins, for channels last.
    Fields are matrices: (point, channel) with channels last, else (plane, point).
    """
    row = tl.program_id(0) * RB + tl.arange(0, RB)
    column = tl.program_id(1) * CB + tl.arange(0, CB)
    if LAST:
        c, inside, first = column, column < COLUMNS, tl.program_id(0) == 0
    else:
        c, inside, first = row % C, row < ROWS, (tl.program_id(1) == 0) & (row < C)
    # Read first: they are on their way while the parts are added up.
    mask = (row[:, None] < ROWS) & (column[None, :] < COLUMNS)
    at = row[:, None].to(tl.int64) * COLUMNS + column[None, :]
    X = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    G = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
    shift = tl.zeros_like(c).to(tl.float32)
    scale = tl.zeros_like(c).to(tl.float32)
    for start in range(0, BATCH, NB):
        n = start + tl.arange(0, NB)[:, None]
        there = (n < BATCH) & inside[None, :]
        part = sums + n * C + c[None, :]
        shift += tl.sum(tl.load(part, mask=there, other=0.0), axis=0)
        scale += tl.sum(tl.load(part + BATCH * C, mask=there, other=0.0), axis=0)
    tl.store(totals + c, shift, mask=inside & first)
    tl.store(totals + C + c, scale, mask=inside & first)
    tl.store(totals + 2 * C + c, shift, mask=inside & first)
    mu = tl.load(mean + c, mask=inside, other=0.0)
    inverse = tl.rsqrt(tl.load(variance + c, mask=inside, other=1.0) + eps)
    factor = tl.load(weight + c, mask=inside, other=0.0) * inverse
    if LAST:
        shift, scale, mu = shift[None, :], scale[None, :], mu[None, :]
        inverse, factor = inverse[None, :], factor[None, :]
    else:
        shift, scale, mu = shift[:, None], scale[:, None], mu[:, None]
        inverse, factor = inverse[:, None], factor[:, None]
    X = (X - mu) * inverse
    G = (G - share * (shift + X * scale)) * factor
    tl.store(dx + at, G.to(dx.dtype.element_ty), mask=mask)
    if wide is not None:
        store_with_margins(wide, G, mask, row, column, H, W, C, MARGIN)


@triton.jit
def products_with_windows(
    many, few, parts, POINTS, TILES, ROWS, COLUMNS, H, W, stride_n, stride_s, stride_h, stride_w,
    C: tl.constexpr, S: tl.constexpr, K: tl.constexpr, LINES: tl.constexpr, PAD: tl.constexpr,
    BACKWARDS: tl.constexpr, PRECISION: tl.constexpr,
    PB: tl.constexpr, CB: tl.constexpr, TB: tl.constexpr,
):  # fmt: skip
    """Σ_p many_c(p) few_s(p + i − PAD) over a share of the points p, for CB of C channels.

    BACKWARDS, the taps i come in the opposite order.

    `many` has ROWS × COLUMNS points, channels last; `few` has H × W points, and is zero beyond. A
    program takes LINES of the K lines of taps i, and so LINES · K · S windows, channels last.
    """
    program, line = tl.program_id(0), tl.program_id(2) * LINES
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    t = tl.arange(0, TB)
    s, i, j = t % S, line + t // (S * K), t // S % K
    if BACKWARDS:
        i, j = K - 1 - i, K - 1 - j
    i, j = i - PAD, j - PAD
    window = i * stride_h + j * stride_w + s * stride_s
    result = tl.zeros((CB, TB), tl.float32)
    for tile in range(program, TILES, tl.num_programs(0)):
        p = tile * PB + tl.arange(0, PB)
        inside = (p < POINTS)[:, None]
        mask = inside & (c[None, :] < C)
        a = tl.load(many + p[:, None].to(tl.int64) * C + c[None, :], mask=mask, other=0.0)
        n, row, column = p // (ROWS * COLUMNS), p // COLUMNS % ROWS, p % COLUMNS
        at = n.to(tl.int64) * stride_n + row.to(tl.int64) * stride_h + column * stride_w
        y, x = row[:, None] + i[None, :], column[:, None] + j[None, :]
        mask = inside & (t < LINES * K * S)[None, :] & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        b = tl.load(few + at[:, None] + window[None, :], mask=mask, other=0.0)
        result += tl.dot(tl.trans(a), b, input_precision=PRECISION)
    first = (program * tl.num_programs(2) + tl.program_id(2)) * C
    tl.store(parts + (first + c[:, None]) * TB + t[None, :], result, mask=(c < C)[:, None])
