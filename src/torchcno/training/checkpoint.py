"""Tensors on disk: without pickle, and never half written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from torchcno.disk import write_atomically
from torchcno.training.sharding import share


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any] | None = None
) -> None:
    """Tensors by name, with a JSON `note`, as one safetensors file.

    Complex tensors are kept as pairs of reals: older releases of the format know no complex
    numbers.
    """
    complex_names = [name for name, tensor in tensors.items() if tensor.is_complex()]
    real = {
        name: torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        for name, tensor in tensors.items()
    }
    # Copies: the format takes neither strides nor tensors that share memory.
    plain = {
        name: tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in real.items()
    }
    # One entry only: several would come out in an order that changes from process to process.
    metadata = {"torchcno": json.dumps({"complex": complex_names, "note": note or {}})}
    write_atomically(path, save(plain, metadata))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note of `save_tensors`, on the CPU."""
    try:
        with safe_open(path, framework="pt") as file:
            said = (file.metadata() or {}).get("torchcno", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or no safetensors file ({error}); bring back a whole copy of it, "
            "or train again."
        ) from error
    try:
        metadata = json.loads(said)
        for name in metadata.get("complex", []):
            tensors[name] = torch.view_as_complex(tensors[name])
        return tensors, metadata.get("note", {})
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or of another program (its metadata: {error}); bring back a whole "
            "copy of it, or train again."
        ) from error


def load_into(model: nn.Module, weights: Mapping[str, Tensor], source: str | Path) -> None:
    """Copy `weights` into `model`; `source` names them in the error if they are another's."""
    own = model.state_dict()
    here, there = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for tensors in (own, weights)
    )
    changed = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{source} is of another model: {name!r} is {there.get(name, 'missing')} there and "
            f"{here.get(name, 'missing')} here, one of {len(changed)} tensors that differ. Build "
            "the model from the configuration saved with it."
        )
    model.load_state_dict({name: share(weights[name], tensor) for name, tensor in own.items()})
