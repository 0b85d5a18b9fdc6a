"""What a run is of: its network and its data, as a checkpoint remembers them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import nn

from torchcno.training.pairs import Pairs
from torchcno.training.streaming import StreamedPairs
from torchcno.training.windows import Rollouts, Windows

Supply = Pairs | StreamedPairs | Windows  # what a network learns from


def identify_network(model: nn.Module) -> Mapping[str, Any]:
    """The fields of the network's configuration."""
    config = getattr(model, "config", None)
    fields = asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}
    # As JSON gives them back: lists, not tuples.
    plain = json.loads(json.dumps(fields, default=str))
    return {f"network.{name}": value for name, value in plain.items()}


def identify_data(train: Supply, val: Pairs | Rollouts) -> Mapping[str, Any]:
    """A digest of the data as the network sees them.

    They are scaled already, so that another normalisation is other data. Of a set that stays on
    a disk the first window counts, and by the scaling its extremes or its mean.
    """
    digest = hashlib.sha256()
    for tensor in (*train.tensors, *val.tensors):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(values.numpy().data)
    return {"data": f"sha256:{digest.hexdigest()[:16]}"}
