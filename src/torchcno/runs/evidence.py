"""What a finished run keeps of its predictions: enough for pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from torchcno.evaluation.resolution import Evaluation
from torchcno.metrics import Mask, filled

KEPT = 2  # samples of each split


@dataclass(frozen=True)
class Examples:
    """The first samples of a split, in physical values."""

    input: Float[Tensor, "sample in_channel *space"]
    output: Float[Tensor, "sample out_channel *space"]
    prediction: Float[Tensor, "sample out_channel *space"]

    @classmethod
    def first_of(cls, evaluation: Evaluation, mask: Mask | None) -> "Examples":
        """The first samples, with 1 where outputs do not count, as the errors are taken."""
        u, v = evaluation.fields[:KEPT]
        counts = mask and mask(u)
        return cls(u, filled(v, counts), filled(evaluation.prediction[:KEPT].to(v), counts))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Fields in half precision, each scaled to its range, and the scales.

        The error and not the prediction, as the rounding of the latter may exceed the former.
        """
        arrays: dict[str, NDArray[Any]] = {}
        parts = {"input": self.input, "output": self.output, "error": self.prediction - self.output}
        for name, field in parts.items():
            scale = float(field.abs().max()) or 1.0
            arrays[name] = (field / scale).half().cpu().numpy()
            arrays[f"{name}_scale"] = np.array(scale)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Examples":
        """The inverse of `to_arrays`, up to the rounding."""
        u, v, error = (
            torch.from_numpy(arrays[name].astype(np.float32)) * float(arrays[f"{name}_scale"])
            for name in ("input", "output", "error")
        )
        return cls(u, v, v + error)
