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

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

# σ(t) = a⁺ t for t > 0, a⁻ t otherwise
SLOPES = {"leaky_relu": (math.sqrt(2), 0.2 * math.sqrt(2)), "relu": (1.0, 0.0)}
LANES = 64  # planes side by side, at least: enough for loops over them to be worth their start

Rows = tuple[np.ndarray, np.ndarray]  # indices and values of a matrix's non-zeros, row by row
# Sums may be reordered and fused; NaN and infinity stay what they are.
compiled = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"})


@compiled
def _combine(out: Any, rows: Any, x: Any) -> None:
    """out[i] = Σ_k M[i, k] x[k]."""
    index, value = rows
    for i in range(len(index)):
        tap, row = value[i, 0], x[index[i, 0]]
        for lane in range(x.shape[1]):
            out[i, lane] = tap * row[lane]
        for t in range(1, index.shape[1]):
            tap, row = value[i, t], x[index[i, t]]
            for lane in range(x.shape[1]):
                out[i, lane] += tap * row[lane]


@compiled
def _gather(out: Any, rows: Any, i: int, x: Any) -> None:
    """out += Σ_k M[i, k] x[k]."""
    index, value = rows
    for t in range(index.shape[1]):
        tap, row = value[i, t], x[index[i, t]]
        for lane in range(len(out)):
            out[lane] += tap * row[lane]


@compiled
def _scatter(out: Any, rows: Any, i: int, x: Any) -> None:
    """out[k] += M[i, k] x."""
    index, value = rows
    for t in range(index.shape[1]):
        tap, row = value[i, t], out[index[i, t]]
        for lane in range(len(x)):
            row[lane] += tap * x[lane]


@compiled
def _forward(
    x: Any, offset: Any, up_r: Any, up_c: Any, down_r_t: Any, down_c: Any, slopes: Any, y: Any
) -> None:
    """Y += Σ X for planes (rows, columns, planes); `offset[i]` is what the bias adds to t."""
    t = np.empty(x.shape[1:], x.dtype)
    z = np.empty((len(up_c[0]), x.shape[2]), x.dtype)
    q = np.empty(y.shape[1:], x.dtype)
    t_row, z_row, q_row = t.reshape(-1), z.reshape(-1), q.reshape(-1)
    x_rows, y_rows = x.reshape(len(x), -1), y.reshape(len(y), -1)
    for i in range(len(up_r[0])):
        t[:] = offset[i]
        _gather(t_row, up_r, i, x_rows)
        _combine(z, up_c, t)
        for lane in range(len(z_row)):
            z_row[lane] *= slopes[0] if z_row[lane] > 0 else slopes[1]
        _combine(q, down_c, z)
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
    """dX += the adjoint of Σ's derivative at X, applied to dY."""
    t = np.empty(x.shape[1:], x.dtype)
    z = np.empty((len(up_c[0]), x.shape[2]), x.dtype)
    e = np.empty(dy.shape[1:], x.dtype)
    g = np.empty_like(z)
    t_row, z_row, e_row, g_row = t.reshape(-1), z.reshape(-1), e.reshape(-1), g.reshape(-1)
    x_rows, dx_rows = x.reshape(len(x), -1), dx.reshape(len(dx), -1)
    dy_rows = dy.reshape(len(dy), -1)
    for i in range(len(up_r[0])):
        t[:] = offset[i]
        _gather(t_row, up_r, i, x_rows)
        _combine(z, up_c, t)
        e_row[:] = 0
        _gather(e_row, down_r_t, i, dy_rows)
        _combine(g, down_c_t, e)
        for lane in range(len(z_row)):
            g_row[lane] *= slopes[0] if z_row[lane] > 0 else slopes[1]
        _combine(t, up_c_t, g)
        _scatter(dx_rows, up_r, i, t_row)


def launch_forward(
    x: Tensor, bias: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], sigma: str
) -> Tensor:
    """Σ x for float32 fields in one or two dimensions."""
    up_r, up_c, down_r, down_c = _axes(ups, downs)
    planes, b = _planes(x), bias.detach().numpy()
    y = np.zeros((len(x), len(down_r), len(down_c), x.shape[1]), np.float32)
    slopes = np.array(SLOPES[sigma], np.float32)
    fixed = (_rows(up_r), _rows(up_c), _rows(down_r, transposed=True), _rows(down_c), slopes)
    sums = up_r.sum(1).numpy()

    def work(samples: slice) -> None:
        x_group, y_group = _pack(planes[samples]), _pack(y[samples])
        _forward(x_group, _offset(sums, b, x_group), *fixed, y_group)
        _unpack(y_group, y[samples])

    _in_groups(work, len(x), x.shape[1])
    return _fields(y, x)


def launch_backward(
    dy: Tensor, x: Tensor, bias: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor], sigma: str
) -> tuple[Tensor, Tensor]:
    """(dx, db)."""
    up_r, up_c, down_r, down_c = _axes(ups, downs)
    planes, dy_planes, b = _planes(x), _planes(dy), bias.detach().numpy()
    dx = np.zeros_like(planes)
    slopes = np.array(SLOPES[sigma], np.float32)
    fixed = (
        _rows(up_r),
        _rows(up_c),
        _rows(up_c, transposed=True),
        _rows(down_r, transposed=True),
        _rows(down_c, transposed=True),
        slopes,
    )
    sums = up_r.sum(1).numpy()

    def work(samples: slice) -> None:
        x_group, dx_group = _pack(planes[samples]), _pack(dx[samples])
        offset = _offset(sums, b, x_group)
        _backward(_pack(dy_planes[samples]), x_group, offset, *fixed, dx_group)
        _unpack(dx_group, dx[samples])

    _in_groups(work, len(x), x.shape[1])
    return _fields(dx, x), torch.from_numpy(dx).sum((0, 1, 2))


def _axes(ups: Sequence[Tensor], downs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """U and D of rows and columns; a line is a plane of one row."""
    if len(ups) == 1:
        return _ONE, ups[0], _ONE, downs[0]
    return ups[0], ups[1], downs[0], downs[1]


_ONE = torch.ones(1, 1)


def _planes(x: Tensor) -> np.ndarray:
    """Fields as (sample, rows, columns, channel), contiguous."""
    x = x.detach()
    planes: np.ndarray = (
        (x if x.ndim == 4 else x.unsqueeze(2)).permute(0, 2, 3, 1).contiguous().numpy()
    )
    return planes


def _fields(planes: np.ndarray, like: Tensor) -> Tensor:
    """The inverse of `_planes`, in the memory format of `like`."""
    fields = torch.from_numpy(planes).permute(0, 3, 1, 2)
    if like.ndim == 3:
        return fields.squeeze(2).contiguous()
    return fields.contiguous() if like.is_contiguous() else fields


def _pack(planes: np.ndarray) -> np.ndarray:
    """The planes of some samples side by side: (rows, columns, planes); one sample is a view."""
    _, rows, columns, _ = planes.shape
    return planes.transpose(1, 2, 0, 3).reshape(rows, columns, -1)


def _unpack(group: np.ndarray, planes: np.ndarray) -> None:
    """What `_pack` copied goes back to its samples."""
    if not np.may_share_memory(group, planes):
        planes.transpose(1, 2, 0, 3)[:] = group.reshape(*group.shape[:2], len(planes), -1)


def _offset(sums: np.ndarray, bias: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Σ_k U_r[i, k] b for every fine row i and plane: what the bias adds to t."""
    return np.outer(sums, np.tile(bias, group.shape[2] // len(bias)))


def _in_groups(work: Callable[[slice], None], samples: int, channels: int) -> None:
    """`work` on groups of samples that make up enough planes, on as many threads as torch uses."""
    size = max(1, LANES // channels)
    groups = [slice(start, start + size) for start in range(0, samples, size)]
    threads = torch.get_num_threads()
    if threads == 1 or len(groups) == 1:
        for group in groups:
            work(group)
    else:
        list(_pool(threads).map(work, groups))


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _rows(matrix: Tensor, transposed: bool = False) -> Rows:
    """The non-zeros of a matrix (or of its transpose), as many a row as the fullest has."""
    cache = _known.setdefault(matrix, {})
    if transposed not in cache:
        dense = (matrix.T if transposed else matrix).numpy()
        most = max(1, int((dense != 0).sum(1).max()))
        index = np.argsort(dense == 0, axis=1, kind="stable")[:, :most]
        value = np.take_along_axis(dense, index, axis=1)
        cache[transposed] = np.ascontiguousarray(index), np.ascontiguousarray(value)
    return cache[transposed]
