"""What is made of matrices is made once: they are constants that live as long as a model."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")

_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def remember(make: Callable[[], Made], what: Hashable, *matrices: Tensor) -> Made:
    """make(), or what it made before under the name `what` of these matrices in their state.

    It goes with the first of the matrices.
    """
    first = matrices[0]
    known: dict[Any, tuple[Made, list[Tensor]]] = _known.setdefault(first, {})
    # `_version` counts changes in place; inference tensors have none.
    versions = (0 if matrix.is_inference() else matrix._version for matrix in matrices)
    key = (what, *map(id, matrices), *versions)
    if key not in known:
        # The other matrices are kept, so that no new ones come to have their addresses.
        made = make(), [matrix for matrix in matrices if matrix is not first]
        # What is made while a graph is captured holds nothing until that graph runs.
        if first.is_cuda and torch.cuda.is_current_stream_capturing():
            return made[0]
        known[key] = made
    return known[key][0]
