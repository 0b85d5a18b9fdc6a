"""The filtered activation on a CPU in one pass: the fine grid exists a row at a time, in the cache.

σ is linear on either side of zero: a product with a mask m of two slopes. So the activation and its
adjoint are one walk over the rows i of the fine grid, with other matrices:

    Y  = D  (m ∘ U (X + b))       t = Σ_k U_r[i, k] (X[k] + b)      z = m_i ∘ U_c t     q_i = D_c z
    dX = Uᵀ (m ∘ Dᵀ dY)           Y[o] = Σ_i D_r[o, i] q_i          after the last of its q_i

The forward pass finds where m is which slope, and keeps that for the other, a bit per point. Rows
of U and D hold a few taps each. A group of planes (channels of samples) is worked on side by side,
X: (rows, columns, planes), so that every operation is one on vectors. It takes all columns at once
whose taps are the same: in the order of `Columns`, neighbouring rows of U_c and of D_c are shifts
of each other, but for the edges of the domain. Numba compiles the loops once a machine and keeps
them on disk.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from torchcno.constants import remember
from torchcno.operators.fused.layout import memory_format
from torchcno.operators.fused.windows import find_cells
from torchcno.operators.sigma import SIGMAS

TAPS = 6  # summed at once: a row of U of the paper's filter, and a vector register for each
LANES = 1024  # numbers of a row, at least: enough for loops over them to be worth their start
CACHE_LINE = 64  # bytes, and of the longest vectors
MARGIN = TAPS  # columns of zeros before and after a row t
ROUNDING = 1e-7  # of the entries of U and D, the largest of which are about 1

# Sums may be reordered and fused; NaN and infinity stay what they are.
FAST = {"contract", "reassoc", "nsz"}


class Rows(NamedTuple):
    """The non-zeros of a matrix, as many a row as the fullest has, up to a multiple of `TAPS`.

    Zeros follow those of a shorter row, at the place of its first.
    """

    place: np.ndarray
    value: np.ndarray


class Runs(NamedTuple):
    """A matrix by runs of rows, of which each is the one before, shifted by a column."""

    edges: np.ndarray  # the first row of every run, and the end
    rows: Rows  # of these


class Walk(NamedTuple):
    """The matrices of a pass; and orders of columns, empty where they are as they lie in memory."""

    up_r: Rows
    order_in: np.ndarray
    up_c: Runs
    down_c: Runs
    order_out: np.ndarray
    down_r_t: Rows


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile, and keep that on disk; where nothing can be written, compile in every process."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(nogil=True, cache=True, fastmath=FAST, **options)(function)
        except RuntimeError:  # Numba finds no folder for it
            return njit(nogil=True, fastmath=FAST, **options)(function)

    return decorate


compiled, inlined = kept(), kept(forceinline=True)


@compiled
def _taps(rows: Any, i: int, t: int, x: Any, n: int) -> Any:
    """Six taps of row i of M from the t-th on, and what each weighs: x from its n k-th on."""
    v, k, m = rows.value[i, t : t + TAPS], rows.place[i, t : t + TAPS], np.uintp(n)
    values = v[0], v[1], v[2], v[3], v[4], v[5]
    first = x[m * k[0] :], x[m * k[1] :], x[m * k[2] :]
    return values, (*first, x[m * k[3] :], x[m * k[4] :], x[m * k[5] :])


@compiled
def _weighed(v: Any, x: Any, lane: int) -> Any:
    """Their sum in one expression: it stays in registers, and a result is stored once."""
    first = v[0] * x[0][lane] + v[1] * x[1][lane] + v[2] * x[2][lane]
    return first + v[3] * x[3][lane] + v[4] * x[4][lane] + v[5] * x[5][lane]


@inlined
def _set(out: Any, rows: Any, i: int, x: Any, n: int) -> None:
    """out = Σ_k M[i, k] x[n k :] over the first taps, as many of it as fit."""
    v, x_rows = _taps(rows, i, 0, x, n)
    for lane in range(len(out)):
        out[lane] = _weighed(v, x_rows, lane)


@inlined
def _add(out: Any, rows: Any, i: int, x: Any, n: int) -> None:
    """out += the same over all further taps."""
    for t in range(TAPS, rows.place.shape[1], TAPS):
        v, x_rows = _taps(rows, i, t, x, n)
        for lane in range(len(out)):
            out[lane] += _weighed(v, x_rows, lane)


@compiled
def _multiply(out: Any, runs: Any, x: Any, planes: int) -> None:
    """out = M x, for columns of so many planes."""
    for i in range(len(runs.edges) - 1):
        run = out[planes * runs.edges[i] : planes * runs.edges[i + 1]]
        _set(run, runs.rows, i, x, planes)
        _add(run, runs.rows, i, x, planes)


@compiled
def _make_row(t: Any, i: int, x: Any, offset: Any, up_r: Any) -> None:
    """t = Σ_k U_r[i, k] (X[k] + b)."""
    (total, bias), n = offset, len(t)
    _set(t, up_r, i, x, n)
    _add(t, up_r, i, x, n)
    if len(bias):
        weight = total[i]
        for lane in range(n):
            t[lane] += weight * bias[lane]


@compiled
def _scatter(out: Any, rows: Any, i: int, q: Any) -> None:
    """out[n k :] += M[i, k] q for all k; q of n numbers."""
    n = len(q)
    for t in range(rows.place.shape[1]):
        tap, row = rows.value[i, t], out[rows.place[i, t] * n :][:n]
        if tap != 0:
            for lane in range(n):
                row[lane] += tap * q[lane]


@compiled
def _reorder(out: Any, order: Any, x: Any, planes: int) -> None:
    """out[j] = x[order[j]], for columns of so many planes."""
    for j in range(len(order)):
        column, there = x[planes * order[j] :], out[planes * j :]
        for lane in range(planes):
            there[lane] = column[lane]


@compiled
def _keep_signs(signs: Any, z: Any) -> None:
    """Bit b of signs[i] says whether z[b n + i] is above zero, for n bytes."""
    n = len(signs)
    signs.fill(0)
    for b in range(8):
        part = z[b * n : (b + 1) * n]
        for i in range(n):
            signs[i] |= np.uint8(part[i] > 0) << b


@compiled
def _multiply_slopes(z: Any, slopes: Any) -> None:
    """z = m ∘ z, by the signs of z."""
    above, below = slopes
    for i in range(len(z)):
        z[i] *= above if z[i] > 0 else below


@compiled
def _multiply_kept(z: Any, signs: Any, slopes: Any) -> None:
    """z = m ∘ z, by signs as `_keep_signs` has them."""
    n, (above, below) = len(signs), slopes
    for b in range(8):
        bit, part = np.uint8(1 << b), z[b * n : (b + 1) * n]
        for i in range(n):
            part[i] *= above if signs[i] & bit else below


@compiled
def _aligned(numbers: int) -> Any:
    """So many zeros from the start of a cache line on: no vector that is read lies across two."""
    room = np.zeros(numbers + CACHE_LINE // 4, np.float32)
    start = -room.ctypes.data % CACHE_LINE // 4
    return room[start : start + numbers]


@compiled
def _walk(x: Any, offset: Any, walk: Any, signs: Any, find: bool, slopes: Any, y: Any) -> None:
    """Y = D (m ∘ U (X + b)) for groups (group, rows, columns, planes)."""
    planes = x.shape[3]
    edge = MARGIN * planes
    wide = _aligned(x.shape[2] * planes + 2 * edge)
    t = _aligned(len(walk.order_in) * planes)
    inside = wide[edge : len(wide) - edge]
    numbers = walk.up_c.edges[-1] * planes
    z = _aligned(numbers + -numbers % 8)
    q = _aligned(y.shape[2] * planes)
    ordered = _aligned(len(walk.order_out) * planes)
    for group in range(len(x)):
        x_rows, y_rows = x[group].reshape(-1), y[group].reshape(-1)
        y_rows.fill(0)
        for i in range(len(walk.up_r.place)):
            if len(t) == 0:
                _make_row(inside, i, x_rows, offset, walk.up_r)
            else:
                _make_row(t, i, x_rows, offset, walk.up_r)
                _reorder(inside, walk.order_in, t, planes)
            _multiply(z, walk.up_c, wide, planes)
            if find:
                _keep_signs(signs[group, i], z)
                _multiply_slopes(z, slopes)
            else:
                _multiply_kept(z, signs[group, i], slopes)
            _multiply(q, walk.down_c, z, planes)
            if len(ordered) == 0:
                _scatter(y_rows, walk.down_r_t, i, q)
            else:
                _reorder(ordered, walk.order_out, q, planes)
                _scatter(y_rows, walk.down_r_t, i, ordered)


def launch_forward(
    x: Tensor,
    bias: Tensor | None,
    ups: Sequence[Tensor],
    downs: Sequence[Tensor],
    sigma: str,
    keep: bool = False,
) -> tuple[Tensor, Tensor]:
    """Σ x for float32 fields in one or two dimensions, and where its argument is above zero.

    That is empty unless it is to be kept.
    """
    (up_r, up_c), (down_r, down_c) = _both(ups), _both(downs)
    samples = _samples(x, down_c)
    groups = _groups(x, samples)
    offset = _NO_OFFSET
    if bias is not None:  # it adds a product: of Σ_k U_r[i, k] for fine row i, and of b for a row
        numbers = bias.detach().numpy()
        offset = up_r.sum(1).numpy(), np.tile(numbers, samples * groups.shape[2])
    shape = len(groups), len(down_r), len(down_c), groups.shape[3]
    y = torch.empty(shape, dtype=torch.float32)
    signs = torch.empty(signs_shape(x, ups, downs, keep), dtype=torch.uint8)
    walk = _find_walk(up_r, up_c, down_r, down_c)
    _run(groups, offset, walk, signs.numpy(), True, sigma, y.numpy())
    return _fields(y, x, samples), signs


def launch_backward(
    dy: Tensor, x: Tensor, signs: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], sigma: str
) -> Tensor:
    """dx; x is asked for its layout alone."""
    (up_r, up_c), (down_r, down_c) = _both(ups), _both(downs)
    samples = _samples(x, down_c)
    groups = _groups(dy, samples)
    shape = len(groups), up_r.shape[1], up_c.shape[1], groups.shape[3]
    dx = torch.empty(shape, dtype=torch.float32)
    walk = _find_way_back(up_r, up_c, down_r, down_c)
    _run(groups, _NO_OFFSET, walk, signs.numpy(), False, sigma, dx.numpy())
    return _fields(dx, x, samples)


def bias_gradient(dx: Tensor) -> Tensor:
    """db, since b is added to x."""
    return dx.sum((0, *range(2, dx.ndim)))


def signs_shape(
    x: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], keep: bool
) -> tuple[int, int, int]:
    """(group, fine rows, bytes for the fine columns of all planes, or none)."""
    (up_r, up_c), (_, down_c) = _both(ups), _both(downs)
    samples = _samples(x, down_c)
    numbers = up_c.shape[0] * samples * x.shape[1]
    return x.shape[0] // samples, up_r.shape[0], -(-numbers // 8) if keep else 0


_ONE = torch.ones(1, 1)  # U and D of rows, where a line is a plane of one row
_NO_OFFSET = np.empty(0, np.float32), np.empty(0, np.float32)
_AS_IT_IS = np.empty(0, np.intp)


def _both(axes: Sequence[Tensor]) -> list[Tensor]:
    return [_ONE, *axes][-2:]


def _samples(x: Tensor, down_c: Tensor) -> int:
    """As many samples make a group as fill the lanes and divide their number."""
    row = x.shape[1] * min(x.shape[-1], down_c.shape[0])
    most = max(1, -(-LANES // row))
    return next(n for n in range(most, 0, -1) if x.shape[0] % n == 0)


def _run(
    x: np.ndarray, offset: Any, walk: Walk, signs: np.ndarray, find: bool, sigma: str, y: np.ndarray
) -> None:
    """All groups, shared out among as many threads as torch uses, this one of them."""
    slopes = tuple(map(np.float32, SIGMAS[sigma].slopes or (np.nan, np.nan)))
    threads = max(1, min(torch.get_num_threads(), len(x)))
    edges = [len(x) * i // threads for i in range(threads + 1)]

    def work(part: slice) -> None:
        _walk(x[part], offset, walk, signs[part], find, slopes, y[part])

    first, *others = [slice(*edge) for edge in pairwise(edges)]
    running = [_pool(len(others)).submit(work, part) for part in others]
    work(first)
    for one in running:
        one.result()


_pool = lru_cache(maxsize=1)(ThreadPoolExecutor)


def _groups(x: Tensor, samples: int) -> np.ndarray:
    """Fields as (group, rows, columns, planes of a group), contiguous."""
    x = x.detach()
    planes = (x if x.ndim == 4 else x.unsqueeze(2)).unflatten(0, (-1, samples))
    groups: np.ndarray = planes.permute(0, 3, 4, 1, 2).flatten(3).contiguous().numpy()
    return groups


def _fields(groups: Tensor, like: Tensor, samples: int) -> Tensor:
    """The inverse of `_groups`, in the memory format of `like`."""
    planes = groups.unflatten(3, (samples, -1))
    # Samples come apart, which may copy, while the channels of each are still neighbours.
    fields = planes.permute(0, 3, 1, 2, 4).flatten(0, 1).permute(0, 3, 1, 2)
    if like.ndim == 3:
        return fields.squeeze(2).contiguous()
    return fields.contiguous(memory_format=memory_format(like))


def _find_walk(up_r: Tensor, up_c: Tensor, down_r: Tensor, down_c: Tensor) -> Walk:
    """The way forward."""

    def make() -> Walk:
        c, rows = Columns.of(up_c, down_c), (up_r.numpy(), down_r.numpy().T)
        up, down = map(_find_rows, rows)
        return Walk(up, c.inside, c.up, c.down, np.argsort(c.outside), down)

    return remember(make, "forward", up_r, up_c, down_r, down_c)


def _find_way_back(up_r: Tensor, up_c: Tensor, down_r: Tensor, down_c: Tensor) -> Walk:
    """The same with adjoints, last to first."""

    def make() -> Walk:
        c, rows = Columns.of(up_c, down_c), (down_r.numpy().T, up_r.numpy())
        down, up = map(_find_rows, rows)
        return Walk(down, c.outside, c.down_t, c.up_t, np.argsort(c.inside), up)

    return remember(make, "backward", up_r, up_c, down_r, down_c)


class Columns(NamedTuple):
    """U_c and D_c with the points of an axis in the order of their places in a cell.

    A cell is as in `windows.py`. First come the first points of all cells, then all second ones. So
    the neighbour of a point is the same point of the next cell.
    """

    inside: np.ndarray  # the order of the input's columns; empty: as they are
    outside: np.ndarray  # of the output's
    up: Runs
    down: Runs
    up_t: Runs
    down_t: Runs

    @classmethod
    def of(cls, up: Tensor, down: Tensor) -> "Columns":
        """Made once for these matrices."""

        def make() -> "Columns":
            cells = find_cells(up, down)
            periods = (1, 1, 1) if cells is None else (cells.inside, cells.fine, cells.outside)
            sizes = (up.shape[1], len(up), len(down))
            inside, fine, outside = map(_order, sizes, periods)
            u, d = up.numpy()[fine][:, inside], down.numpy()[outside][:, fine]
            runs = _runs(u, MARGIN), _runs(d, 0), _runs(u.T, 0), _runs(d.T, MARGIN)
            return cls(_or_none(inside), _or_none(outside), *runs)

        return remember(make, "columns", up, down)


def _order(n: int, period: int) -> np.ndarray:
    return np.argsort(np.arange(n) % period, kind="stable")


def _or_none(order: np.ndarray) -> np.ndarray:
    return _AS_IT_IS if (np.diff(order) == 1).all() else order


def _find_rows(dense: np.ndarray) -> Rows:
    zero = np.abs(dense) < ROUNDING
    most = max(1, int((~zero).sum(1).max(initial=0)))
    order = np.argsort(zero, axis=1, kind="stable")[:, :most]
    padding = (0, 0), (0, -most % TAPS)
    there = ~np.take_along_axis(zero, order, axis=1)
    value = np.pad(np.take_along_axis(dense, order, axis=1) * there, padding)
    index = np.where(np.pad(there, padding), np.pad(order, padding), order[:, :1])
    # Unsigned: none of them counts from the end, and nothing has to look whether it does.
    return Rows(index.astype(np.uintp), value.astype(np.float32))


def _runs(dense: np.ndarray, margin: int) -> Runs:
    """The runs of a matrix, found once for all layers that have the same one."""
    key = sha256(dense.tobytes()).digest(), dense.shape, margin
    if key not in _RUNS:
        _RUNS[key] = _find_runs(dense, margin)
    return _RUNS[key]


_RUNS: dict[tuple[bytes, tuple[int, ...], int], Runs] = {}


def _find_runs(dense: np.ndarray, margin: int) -> Runs:
    """The runs of a matrix for columns that begin, and end, with a margin of zeros."""
    padded = np.pad(dense, ((0, 0), (margin, margin)))
    starts, firsts, start = [], [], 0
    while start < len(dense):
        best = start + 1, padded[start]
        for middle in range(start, min(start + 2 * margin + 1, len(dense))):
            row = _shift(padded[middle], start - middle)
            if row is None or not _is_row(row, padded[start], margin):
                continue
            end = start + 1
            while end < len(dense):
                later = _shift(row, end - start)
                if later is None or not _is_row(later, padded[end], margin):
                    break
                end += 1
            best = max(best, (end, row), key=lambda found: found[0])
        starts.append(start)
        firsts.append(best[1])
        start = best[0]
    return Runs(np.array([*starts, len(dense)]), _find_rows(np.array(firsts)))


def _shift(row: np.ndarray, by: int) -> np.ndarray | None:
    """A row shifted by so many columns; None where taps would be lost."""
    lost = row[:-by] if by < 0 else row[len(row) - by :]
    return None if (np.abs(lost) >= ROUNDING).any() else np.roll(row, by)


def _is_row(candidate: np.ndarray, row: np.ndarray, margin: int) -> bool:
    """Whether they are the same but for what meets the margins' zeros."""
    inside = slice(margin, len(row) - margin)
    return bool((np.abs(candidate[inside] - row[inside]) < ROUNDING).all())
