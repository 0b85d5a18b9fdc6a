"""Triton programs for sums over all points of a batch; importing this file needs Triton.

Each program sums over a share of the points and writes its part; the parts are added up afterwards,
in the same order every time. Fields with channels last are matrices (point, channel).
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def moments(x, parts, POINTS, TILES, C: tl.constexpr, PB: tl.constexpr, CB: tl.constexpr):
    """Mean, sum of squared deviations and number of a share of the points, for CB channels.

    Shares are joined by the formula of Chan et al. (1979), which loses no digits under a large
    mean:

        μ = μ_a + δ n_b / n,   S = S_a + S_b + δ² n_a n_b / n,   δ = μ_b − μ_a
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    mean = tl.zeros((CB,), tl.float32)
    squares = tl.zeros((CB,), tl.float32)
    number = 0.0
    for tile in range(program, TILES, programs):
        p = tile * PB + tl.arange(0, PB)
        mask = (p[:, None] < POINTS) & (c[None, :] < C)
        values = tl.load(x + p[:, None].to(tl.int64) * C + c[None, :], mask=mask, other=0.0)
        values = values.to(tl.float32)
        count = tl.minimum(POINTS - tile * PB, PB).to(tl.float32)
        there = tl.sum(values, axis=0) / count
        away = tl.where(mask, values - there[None, :], 0.0)
        total = number + count
        further = there - mean
        mean += further * (count / total)
        squares += tl.sum(away * away, axis=0) + further * further * (number * count / total)
        number = total
    at = parts + program * C + c
    tl.store(at, mean, mask=c < C)
    tl.store(at + programs * C, squares, mask=c < C)
    tl.store(at + 2 * programs * C, tl.zeros((CB,), tl.float32) + number, mask=c < C)


@triton.jit
def join_moments(
    parts, mean, variance, running_mean, running_variance, momentum, POINTS, PROGRAMS,
    C: tl.constexpr, PB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Mean and variance of CB channels from those of PROGRAMS shares, and the running ones moved.

    As in PyTorch, running variances are of a sample (n − 1), and those that normalise are not.
    """
    program = tl.arange(0, PB)[:, None]
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    mask = (program < PROGRAMS) & (c[None, :] < C)
    at = parts + program * C + c[None, :]
    there = tl.load(at, mask=mask, other=0.0)
    squares = tl.load(at + PROGRAMS * C, mask=mask, other=0.0)
    number = tl.load(at + 2 * PROGRAMS * C, mask=mask, other=0.0)
    n = POINTS.to(tl.float32)
    mu = tl.sum(there * number, axis=0) / n
    away = there - mu[None, :]
    total = tl.sum(squares + number * away * away, axis=0)
    inside = c < C
    tl.store(mean + c, mu, mask=inside)
    tl.store(variance + c, total / n, mask=inside)
    before = tl.load(running_mean + c, mask=inside)
    tl.store(running_mean + c, before + momentum * (mu - before), mask=inside)
    before = tl.load(running_variance + c, mask=inside)
    tl.store(running_variance + c, before + momentum * (total / (n - 1) - before), mask=inside)


@triton.jit
def normalise(
    x, plus, y, mean, variance, weight, shift, eps, ROWS,
    C: tl.constexpr, RB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Y = γ (X − μ) / √(v + ε) + β for matrices (point, channel), and `plus` where it is given."""
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
    g, dx, x, sums, totals, mean, variance, weight, eps, share, ROWS, COLUMNS, BATCH,
    C: tl.constexpr, LAST: tl.constexpr, NB: tl.constexpr, RB: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """dX = γ / √(v + ε) (G − (dβ + X̂ dγ) / n); `share` is 1/n, and dX may take the place of G.

    `sums` are BATCH parts of dβ and dγ, (2, BATCH, C), and `totals` become dβ, dγ, and dβ
    once more.
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


@triton.jit
def products_with_windows(
    many, few, parts, POINTS, TILES, ROWS, COLUMNS, H, W, stride_n, stride_s, stride_h, stride_w,
    C: tl.constexpr, S: tl.constexpr, K: tl.constexpr, PAD: tl.constexpr, PRECISION: tl.constexpr,
    PB: tl.constexpr, CB: tl.constexpr, TB: tl.constexpr,
):  # fmt: skip
    """Σ_p many_c(p) few_s(p + i − PAD) over a share of the points p, for C channels and S·K² taps.

    `many` has ROWS × COLUMNS points, channels last; `few` has H × W points, and is zero beyond.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    t = tl.arange(0, TB)
    s, i, j = t // (K * K), t // K % K - PAD, t % K - PAD
    result = tl.zeros((CB, TB), tl.float32)
    for tile in range(program, TILES, programs):
        p = tile * PB + tl.arange(0, PB)
        inside = (p < POINTS)[:, None]
        mask = inside & (c[None, :] < C)
        a = tl.load(many + p[:, None].to(tl.int64) * C + c[None, :], mask=mask, other=0.0)
        n = p // (ROWS * COLUMNS)
        y = (p // COLUMNS % ROWS)[:, None] + i[None, :]
        x = (p % COLUMNS)[:, None] + j[None, :]
        mask = inside & (t < S * K * K)[None, :] & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        at = n[:, None].to(tl.int64) * stride_n + s[None, :] * stride_s + y * stride_h
        b = tl.load(few + at + x * stride_w, mask=mask, other=0.0)
        result += tl.dot(tl.trans(a), b, input_precision=PRECISION)
    at = (program * C + c[:, None]) * TB + t[None, :]
    tl.store(parts + at, result, mask=(c < C)[:, None] & (t >= 0)[None, :])
