"""The filtered activation on a CPU in one pass: the fine grid exists a row at a time, in the cache.

The rows of U and D hold a few taps each. A group of planes (channels of samples) is worked on side
by side, its planes the contiguous axis, so that every operation is one on vectors:

    for every row i of the fine grid:
        t = Σ_k U_r[i, k] (X[k] + b)        z = U_c t        X: (rows, columns, planes)
        Y += D_r[:, i] ⊗ D_c σ(z)

and in the backward pass, which makes z again,

        e = Σ_m D_r[m, i] dY[m]             dX += U_r[i, :] ⊗ U_cᵀ (σ'(z) ∘ D_cᵀ e)

σ is linear on either side of zero. Numba compiles the loops once a machine and keeps them on disk.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from torchcno.operators.fused.layout import memory_format
from torchcno.operators.fused.remembered import remember
from torchcno.operators.sigma import SIGMAS

TAPS = 6  # summed at once: a row of U of the paper's filter, and a vector register for each
LANES = 64  # planes side by side, at least: enough for loops over them to be worth their start

Rows = tuple[np.ndarray, np.ndarray]  # indices and values of a matrix's non-zeros, row by row
# Sums may be reordered and fused; NaN and infinity stay what they are.
FAST = {"contract", "reassoc", "nsz"}


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
def _taps(rows: Any, i: int, t: int, x: Any) -> Any:
    """Six taps of row i of M from the t-th on, and the x that each weighs."""
    index, value = rows
    v, k = value[i, t : t + TAPS], index[i, t : t + TAPS]
    values = v[0], v[1], v[2], v[3], v[4], v[5]
    return values, (x[k[0]], x[k[1]], x[k[2]], x[k[3]], x[k[4]], x[k[5]])


@compiled
def _weighed(v: Any, x: Any, lane: int) -> Any:
    """Their sum in one expression: it stays in registers, and a result is stored once."""
    first = v[0] * x[0][lane] + v[1] * x[1][lane] + v[2] * x[2][lane]
    return first + v[3] * x[3][lane] + v[4] * x[4][lane] + v[5] * x[5][lane]


@inlined
def _sum(out: Any, rows: Any, i: int, x: Any) -> None:
    """out = Σ_k M[i, k] x[k]."""
    v, x_rows = _taps(rows, i, 0, x)
    for lane in range(len(out)):
        out[lane] = _weighed(v, x_rows, lane)
    for t in range(TAPS, rows[0].shape[1], TAPS):
        v, x_rows = _taps(rows, i, t, x)
        for lane in range(len(out)):
            out[lane] += _weighed(v, x_rows, lane)


@compiled
def _multiply(out: Any, rows: Any, x: Any) -> None:
    """out = M x."""
    for i in range(len(out)):
        _sum(out[i], rows, i, x)


@compiled
def _scatter(out: Any, rows: Any, i: int, x: Any) -> None:
    """out[k] += M[i, k] x."""
    index, value = rows
    for t in range(index.shape[1]):
        tap, row = value[i, t], out[index[i, t]]
        if tap != 0:
            for lane in range(len(x)):
                row[lane] += tap * x[lane]


@inlined
def _make_fine_row(t: Any, z: Any, i: int, x_rows: Any, offset: Any, up_r: Any, up_c: Any) -> None:
    """t = Σ_k U_r[i, k] (X[k] + b) and z = U_c t."""
    (total, bias), t_row = offset, t.reshape(-1)
    _sum(t_row, up_r, i, x_rows)
    weight = total[i]
    for lane in range(len(t_row)):
        t_row[lane] += weight * bias[lane]
    _multiply(z, up_c, t)


@compiled
def _forward(
    x: Any, offset: Any, up_r: Any, up_c: Any, down_r_t: Any, down_c: Any, slopes: Any, y: Any
) -> None:
    """Y = Σ X for groups (group, rows, columns, planes)."""
    above, below = slopes
    t = np.empty(x.shape[2:], x.dtype)
    z = np.empty((len(up_c[0]), x.shape[3]), x.dtype)
    q = np.empty(y.shape[2:], x.dtype)
    z_row, q_row = z.reshape(-1), q.reshape(-1)
    for n in range(len(x)):
        x_rows, y_rows = x[n].reshape(x.shape[1], -1), y[n].reshape(y.shape[1], -1)
        y_rows.fill(0)
        for i in range(len(up_r[0])):
            _make_fine_row(t, z, i, x_rows, offset, up_r, up_c)
            for lane in range(len(z_row)):
                z_row[lane] *= above if z_row[lane] > 0 else below
            _multiply(q, down_c, z)
            _scatter(y_rows, down_r_t, i, q_row)


@compiled
def _backward(
    dy: Any,
    x: Any,
    offset: Any,
    up_r: Any,
    up_c: Any,
    up_c_t: Any,
    down_r_t: Any,
    down_c_t: Any,
    slopes: Any,
    dx: Any,
) -> None:
    """dX: the adjoint of Σ's derivative at X, applied to dY."""
    above, below = slopes
    t = np.empty(x.shape[2:], x.dtype)
    z = np.empty((len(up_c[0]), x.shape[3]), x.dtype)
    e = np.empty(dy.shape[2:], x.dtype)
    g = np.empty_like(z)
    t_row, z_row, e_row, g_row = t.reshape(-1), z.reshape(-1), e.reshape(-1), g.reshape(-1)
    for n in range(len(x)):
        x_rows, dx_rows = x[n].reshape(x.shape[1], -1), dx[n].reshape(x.shape[1], -1)
        dy_rows = dy[n].reshape(dy.shape[1], -1)
        dx_rows.fill(0)
        for i in range(len(up_r[0])):
            _make_fine_row(t, z, i, x_rows, offset, up_r, up_c)
            _sum(e_row, down_r_t, i, dy_rows)
            _multiply(g, down_c_t, e)
            for lane in range(len(z_row)):
                g_row[lane] *= above if z_row[lane] > 0 else below
            _multiply(t, up_c_t, g)
            _scatter(dx_rows, up_r, i, t_row)


def launch_forward(
    x: Tensor, bias: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], sigma: str
) -> Tensor:
    """Σ x for float32 fields in one or two dimensions."""
    (up_r, up_c), (down_r, down_c) = ([_ONE, *axes][-2:] for axes in (ups, downs))
    samples, groups, offset, slopes = _prepare(x, bias, up_r, sigma)
    y = np.empty((len(groups), len(down_r), len(down_c), groups.shape[3]), np.float32)
    matrices = _rows(up_r), _rows(up_c), _rows(down_r, transposed=True), _rows(down_c)
    fixed = (offset, *matrices, slopes)
    _in_threads(lambda part: _forward(groups[part], *fixed, y[part]), len(groups))
    return _fields(y, x, samples)


def launch_backward(
    dy: Tensor, x: Tensor, bias: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], sigma: str
) -> tuple[Tensor, Tensor]:
    """(dx, db)."""
    (up_r, up_c), (down_r, down_c) = ([_ONE, *axes][-2:] for axes in (ups, downs))
    samples, groups, offset, slopes = _prepare(x, bias, up_r, sigma)
    dy_groups, dx = _groups(dy, samples), np.empty_like(groups)
    matrices = (_rows(up_r), _rows(up_c), *(_rows(m, True) for m in (up_c, down_r, down_c)))
    fixed = (offset, *matrices, slopes)
    _in_threads(
        lambda part: _backward(dy_groups[part], groups[part], *fixed, dx[part]), len(groups)
    )
    fields = _fields(dx, x, samples)
    return fields, fields.sum((0, *range(2, x.ndim)))


_ONE = torch.ones(1, 1)  # U and D of rows, where a line is a plane of one row


def _prepare(
    x: Tensor, bias: Tensor, up_r: Tensor, sigma: str
) -> tuple[int, np.ndarray, tuple[np.ndarray, ...], tuple[np.float32, ...]]:
    """Samples of a group, the groups, what the bias adds to t, and σ's slopes above and below zero.

    The bias adds a product: of Σ_k U_r[i, k] for fine row i, and of b for a row of t.
    """
    # As many samples make a group as fill the lanes and divide their number.
    most = max(1, LANES // x.shape[1])
    samples = next(n for n in range(most, 0, -1) if len(x) % n == 0)
    groups = _groups(x, samples)
    offset = up_r.sum(1).numpy(), np.tile(bias.detach().numpy(), samples * groups.shape[2])
    slopes = SIGMAS[sigma].slopes or (np.nan, np.nan)
    return samples, groups, offset, tuple(map(np.float32, slopes))


def _groups(x: Tensor, samples: int) -> np.ndarray:
    """Fields as (group, rows, columns, planes of a group), contiguous."""
    x = x.detach()
    planes = (x if x.ndim == 4 else x.unsqueeze(2)).unflatten(0, (-1, samples))
    groups: np.ndarray = planes.permute(0, 3, 4, 1, 2).flatten(3).contiguous().numpy()
    return groups


def _fields(groups: np.ndarray, like: Tensor, samples: int) -> Tensor:
    """The inverse of `_groups`, in the memory format of `like`."""
    planes = torch.from_numpy(groups).unflatten(3, (samples, -1))
    # Samples come apart, which may copy, while the channels of each are still neighbours.
    fields = planes.permute(0, 3, 1, 2, 4).flatten(0, 1).permute(0, 3, 1, 2)
    if like.ndim == 3:
        return fields.squeeze(2).contiguous()
    return fields.contiguous(memory_format=memory_format(like))


def _in_threads(work: Callable[[slice], None], groups: int) -> None:
    """`work` on all groups, shared out among as many threads as torch uses, this one of them."""
    threads = max(1, min(torch.get_num_threads(), groups))
    edges = [groups * i // threads for i in range(threads + 1)]
    first, *others = [slice(*edge) for edge in pairwise(edges)]
    running = [_pool(len(others)).submit(work, part) for part in others]
    work(first)
    for one in running:
        one.result()


_pool = lru_cache(maxsize=1)(ThreadPoolExecutor)


def _rows(matrix: Tensor, transposed: bool = False) -> Rows:
    """The non-zeros of a matrix (or of its transpose), as many a row as the fullest has.

    Up to a multiple of `TAPS`, zeros follow, at the place of the row's first tap.
    """

    def make() -> Rows:
        dense = (matrix.T if transposed else matrix).numpy()
        most = max(1, int((dense != 0).sum(1).max()))
        order = np.argsort(dense == 0, axis=1, kind="stable")[:, :most]
        padding = (0, 0), (0, -most % TAPS)
        value = np.pad(np.take_along_axis(dense, order, axis=1), padding)
        index = np.where(value == 0, order[:, :1], np.pad(order, padding))
        # Unsigned: none of them counts from the end, and nothing has to look whether it does.
        return index.astype(np.uintp), value

    return remember(make, ("rows", transposed), matrix)
