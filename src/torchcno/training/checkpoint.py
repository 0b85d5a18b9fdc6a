"""Tensors on disk: without pickle, never half written, and with a digest of the whole file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from torchcno.disk import explained, open_regular, say_once, write_atomically
from torchcno.training.sharding import share

MOST_HEADER = 8 * 2**20  # bytes: some 50,000 tensors
OURS, OTHERS = "torchcno", "format"  # entries of a file's metadata; other programs write "format"
BLANK = b"0" * 64  # the digest is of the file with this in its place


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any] | None = None
) -> None:
    """Tensors by name, with a JSON `note`, as one safetensors file.

    Complex tensors are kept as pairs of reals: older releases of the format know no complex
    numbers.
    """
    complex_names = sorted(name for name, tensor in tensors.items() if tensor.is_complex())
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
    said = {"complex": complex_names, "note": note or {}, "sha256": BLANK.decode()}
    content = save(plain, {OURS: json.dumps(said)})
    digest = hashlib.sha256(content).hexdigest().encode()
    head, end = _split(content)
    write_atomically(path, b"".join((head.replace(BLANK, digest), memoryview(content)[end:])))


def _split(content: bytes) -> tuple[bytes, int]:
    """The header of a safetensors file, with its length, and where it ends."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[:end], end


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note of `save_tensors`, on the CPU."""
    with open_regular(path) as file, explained(path, "read"):
        start = file.read(8)
        if int.from_bytes(start, "little") > MOST_HEADER:
            raise _damage(path, "no safetensors file", "its header has no end")
        file.seek(0)
        content = file.read()
    head, end = _split(content)
    try:
        metadata = json.loads(head[8:]).get("__metadata__", {})
        strange = metadata.keys() - {OURS, OTHERS}
    except (AttributeError, RecursionError, ValueError) as error:
        raise _damage(path, "no safetensors file", str(error)) from error
    try:
        said = json.loads(metadata.get(OURS, "{}"))
        digest = said.get("sha256")
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise _damage(path, "of another program", f"its metadata: {error}") from error
    if digest is None and (strange or said.keys() - {"complex", "note"}):
        raise _damage(path, "of another program", "its metadata are not ours")
    if digest is not None:
        _verify(path, head, memoryview(content)[end:], digest)
    try:
        tensors = dict(sorted(load(content).items()))  # which come in any order
    except SafetensorError as error:
        raise _damage(path, "no safetensors file", str(error)) from error
    if digest is None:
        say_once(
            f"{path} has no checksum, since it was made before torchcno wrote them: damage to it "
            "is not seen."
        )
    try:
        for name in said.get("complex", []):
            tensors[name] = torch.view_as_complex(tensors[name])
        return tensors, said.get("note", {})
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damage(path, "of another program", f"its metadata: {error}") from error


def _verify(path: Path, head: bytes, values: memoryview, digest: object) -> None:
    """Refuse a file that does not have the digest that it names."""
    actual = hashlib.sha256()
    if isinstance(digest, str) and len(digest) == len(BLANK):
        actual.update(head.replace(digest.encode(), BLANK))
        actual.update(values)
    if actual.hexdigest() != digest:
        raise ValueError(
            f"{path} is damaged: it is not what was written there. Bring back a whole copy of it, "
            "or train again."
        )


def _damage(path: Path, what: str, why: str) -> ValueError:
    return ValueError(
        f"{path} is damaged or {what} ({why}); bring back a whole copy of it, or train again."
    )


def refuse_infinite(weights: Mapping[str, Tensor], source: str | Path) -> None:
    """Refuse weights that are no numbers: whatever they predict is none."""
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(
                f"{source} holds NaN or infinite values in {name!r}; bring back a whole copy of "
                "it, or train again."
            )


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
