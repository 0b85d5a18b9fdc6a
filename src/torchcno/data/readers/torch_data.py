"""Datasets and DataLoaders of PyTorch whose items are pairs (input, output)."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from torchcno.data.arrays import as_real_tensor


def read_pairs(source: Dataset[Any] | DataLoader[Any]) -> tuple[Tensor, Tensor]:
    """All pairs: (sample, channel, *space) of inputs and of outputs.

    A DataLoader is gone through once, in its order and by its own collation.
    """
    batched = isinstance(source, DataLoader) and source.batch_size is not None
    items: Any = source
    if not isinstance(source, DataLoader | IterableDataset):
        items = (source[i] for i in range(len(source)))  # type: ignore[arg-type]
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(
                f"item {number} of {type(source).__name__} is {_kind(item)}; give pairs (input, "
                "output)."
            )
        for parts, part, what in ((inputs, item[0], "input"), (outputs, item[1], "output")):
            parts.append(as_real_tensor(part, f"the {what} of item {number}"))
    if not inputs:
        raise ValueError(f"{type(source).__name__} is empty; give at least one pair.")
    join = torch.cat if batched else torch.stack
    try:
        return join(inputs), join(outputs)
    except RuntimeError as error:
        raise ValueError(
            f"the items of {type(source).__name__} differ in shape; give all on one grid."
        ) from error


def _kind(item: Any) -> str:
    if isinstance(item, tuple | list):
        return f"a {type(item).__name__} of {len(item)}"
    return f"of type {type(item).__name__}"
