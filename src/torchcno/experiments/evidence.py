"""What a finished run keeps of its evaluation, small enough to be published with its result.

errors.npz     relative L1 of every sample, by split and space
examples.npz   some samples of each split: input, output and the prediction's error
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from torchcno.experiments.evaluate import Evaluation
from torchcno.training.checkpoint import write_atomically

EXAMPLES = 2  # samples of each split
SPACES = ("normalized", "physical")


@dataclass(frozen=True)
class Examples:
    """The first samples of a split, in physical values."""

    input: Float[Tensor, "sample in_channel *space"]
    output: Float[Tensor, "sample out_channel *space"]
    prediction: Float[Tensor, "sample out_channel *space"]


def save_evidence(evaluations: Sequence[Evaluation], folder: Path) -> None:
    """Write errors.npz and examples.npz."""
    _write(
        folder / "errors.npz",
        {
            f"{e.split}/{space}": e.errors["relative_l1"][space].float().cpu().numpy()
            for e in evaluations
            for space in SPACES
        },
    )
    _write(
        folder / "examples.npz",
        {
            f"{e.split}/{name}": values
            for e in evaluations
            for name, field in _example_fields(e).items()
            for name, values in _halved(name, field).items()
        },
    )


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


def _example_fields(evaluation: Evaluation) -> dict[str, Tensor]:
    fields = evaluation.fields
    u, v = fields.inputs[:EXAMPLES], fields.outputs[:EXAMPLES]
    # The error and not the prediction: the rounding of the latter may exceed the former.
    return {"input": u, "output": v, "error": evaluation.prediction[:EXAMPLES].to(v) - v}


def _halved(name: str, field: Tensor) -> dict[str, NDArray[Any]]:
    """A field in half precision, scaled to its range, and the scale."""
    scale = float(field.abs().max()) or 1.0
    return {name: (field / scale).half().cpu().numpy(), f"{name}_scale": np.array(scale)}


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)
