"""What a finished run keeps of its evaluation, small enough to be published with its result.

errors.npz     relative L1 of every sample, by split and space
examples.npz   some samples of each split: input, output and the prediction's error
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from torchcno.disk import write_arrays
from torchcno.metrics import Mask, counted, filled
from torchcno.runs.evaluate import Evaluation

EXAMPLES = 2  # samples of each split
SPACES = ("normalized", "physical")


@dataclass(frozen=True)
class Examples:
    """The first samples of a split, in physical values."""

    input: Float[Tensor, "sample in_channel *space"]
    output: Float[Tensor, "sample out_channel *space"]
    prediction: Float[Tensor, "sample out_channel *space"]

    def masked(self, mask: Mask | None) -> "Examples":
        """With 1 where outputs do not count, as the errors are taken."""
        counts = counted(mask, self.input)
        return Examples(self.input, filled(self.output, counts), filled(self.prediction, counts))


def save_evidence(evaluations: Sequence[Evaluation], folder: Path, mask: Mask | None) -> None:
    """Write errors.npz and examples.npz; `mask` is that of the errors (`Problem.mask`)."""
    errors = {
        f"{e.split}/{space}": e.errors["relative_l1"][space].float().cpu().numpy()
        for e in evaluations
        for space in SPACES
    }
    write_arrays(errors, folder / "errors.npz")
    save_examples({e.split: _first(e, mask) for e in evaluations}, folder)


def save_examples(examples: Mapping[str, Examples], folder: Path) -> None:
    """Write examples.npz, by split.

    With the error and not the prediction, as the rounding of the latter may exceed the former.
    """
    arrays = {
        f"{split}/{name}": values
        for split, some in examples.items()
        for name, field in {
            "input": some.input,
            "output": some.output,
            "error": some.prediction - some.output,
        }.items()
        for name, values in _halved(name, field).items()
    }
    write_arrays(arrays, folder / "examples.npz")


def read_errors(folder: Path, split: str, space: str = "normalized") -> NDArray[Any] | None:
    """The relative L1 error of every sample, a fraction; None where there is none."""
    return _read(folder / "errors.npz").get(f"{split}/{space}")


def read_examples(folder: Path, split: str) -> Examples | None:
    """The samples that a run keeps of `split`; None where there are none."""
    arrays = _read(folder / "examples.npz")
    if f"{split}/input" not in arrays:
        return None
    u, v, error = (
        torch.from_numpy(arrays[f"{split}/{name}"].astype(np.float32))
        * float(arrays[f"{split}/{name}_scale"])
        for name in ("input", "output", "error")
    )
    return Examples(u, v, v + error)


def _first(evaluation: Evaluation, mask: Mask | None) -> Examples:
    fields = evaluation.fields
    u, v = fields.inputs[:EXAMPLES], fields.outputs[:EXAMPLES]
    return Examples(u, v, evaluation.prediction[:EXAMPLES].to(v)).masked(mask)


def _halved(name: str, field: Tensor) -> dict[str, NDArray[Any]]:
    """A field in half precision, scaled to its range, and the scale."""
    scale = float(field.abs().max()) or 1.0
    return {name: (field / scale).half().cpu().numpy(), f"{name}_scale": np.array(scale)}


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)
