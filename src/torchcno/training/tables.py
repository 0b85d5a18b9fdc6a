"""Where many tensors lie, for a program that works on all of them."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 2048  # numbers that a program works on
_HAS_TRITON = importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class TensorTable:
    """Tensors in columns, cut into blocks. It holds addresses: they are to stay where they are."""

    addresses: Tensor  # (row, column)
    sizes: Tensor  # (column,): of the first row
    blocks: Tensor  # (2, block): the column, and where in its tensors the block begins


def make_table(*rows: Sequence[Tensor]) -> TensorTable:
    """The table of rows of tensors; those of a column are alike in memory."""
    sizes = torch.tensor([tensor.numel() for tensor in rows[0]])
    counts = -(-sizes // BLOCK)
    columns = torch.arange(len(sizes)).repeat_interleave(counts)
    starts = torch.arange(len(columns)) - (counts.cumsum(0) - counts)[columns]
    device = rows[0][0].device
    return TensorTable(
        addresses=torch.tensor([places(row) for row in rows]).to(device),
        sizes=sizes.to(device),
        blocks=torch.stack([columns, BLOCK * starts]).to(device),
    )


def places(tensors: Sequence[Tensor]) -> list[int]:
    """The addresses of the tensors."""
    return [tensor.data_ptr() for tensor in tensors]


def lie_alike(*tensors: Tensor) -> bool:
    """Whether a table can have a column of them: float32 on CUDA, in the same order, no gaps."""
    first = tensors[0]
    return _HAS_TRITON and all(
        tensor.is_cuda
        and tensor.dtype in (torch.float32, torch.complex64)
        and tensor.stride() == first.stride()
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        for tensor in tensors
    )
