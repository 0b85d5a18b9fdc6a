"""Arrays of any kind as tensors that a network can be trained on."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_real_tensor(array: Any, what: str) -> Tensor:
    """An array, tensor or nested list of real numbers as a floating-point tensor.

    Byte order, strides and the kind of number make no difference. Nothing is lost in silence: masks
    and imaginary parts are refused. `what` names the array in errors.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise ValueError(
            f"{what} have {int(np.ma.count_masked(array))} masked values, which no network takes; "
            "fill them (array.filled(0)), or open them by Fields.open(..., mask='missing'), which "
            "leaves them out of loss and errors."
        )
    if not isinstance(array, Tensor):
        array = _as_native(np.asarray(array), what)
        return torch.from_numpy(array)
    if array.is_complex():
        raise ValueError(_complex(what))
    if array.layout != torch.strided:
        raise ValueError(f"{what} are a sparse tensor; give array.to_dense().")
    array = array.detach()
    if array.dtype in (torch.float32, torch.float64, torch.bfloat16):
        return array
    return array.to(torch.float64 if array.dtype == torch.int64 else torch.float32)


def _as_native(array: NDArray[Any], what: str) -> NDArray[Any]:
    """The same numbers as float32 or float64, in this machine's byte order, contiguous."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "c":
        raise ValueError(_complex(what))
    if kind not in "fiub":
        named = "objects" if kind == "O" else str(array.dtype)
        raise ValueError(f"{what} hold {named}, not numbers; give an array of real numbers.")
    exact = np.float32 if (kind == "f" and size <= 4) or size <= 2 else np.float64
    native = np.ascontiguousarray(array, dtype=exact)
    # torch warns of memory that it could not write to, such as a file's.
    return native if native.flags.writeable else native.copy()


def _complex(what: str) -> str:
    return f"{what} are complex; give real and imaginary part as channels."
