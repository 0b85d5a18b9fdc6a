"""Weights divided among the processes of a run (FSDP), and whole ones made of them again.

PyTorch's part of it takes seconds to import, so a process that trains alone leaves it out.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """Divide the weights of `model` among the devices of all processes, in place.

    A layer gathers its weights when its turn comes, forwards and backwards, and lets them go again:
    a process holds its share of everything, and one layer whole.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    names = [name for name, weight in model.named_parameters() if weight.is_complex()]
    if names:
        raise ValueError(
            f"the strategy fsdp cannot divide complex weights, and {names[0]} is complex; "
            "use ddp, which keeps the whole network on every device."
        )
    layers = [m for m in model.modules() if m is model or any(True for _ in m.parameters(False))]
    # The only layout that FSDP takes.
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in reversed(layers):  # what is inside another layer comes before it
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    return model


def is_sharded(model: nn.Module) -> bool:
    """Whether `shard` divided the weights of `model`."""
    return any(map(_is_divided, model.parameters()))


def whole(tensor: Tensor) -> Tensor:
    """A divided tensor put together, on the CPU; any other as it is.

    All processes have to ask for the same one at the same time.
    """
    divided: Any = tensor
    return divided.full_tensor().cpu() if _is_divided(tensor) else tensor


def share(tensor: Tensor, like: Tensor) -> Tensor:
    """What this process keeps of a whole tensor: its share if `like` is divided, else all of it.

    It lies in memory as `like` does: kernels that step through weights and moments side by side
    take no notice of strides.
    """
    if not _is_divided(like):
        return torch.empty_like(like).copy_(tensor)
    from torch.distributed.tensor import distribute_tensor

    divided: Any = like
    return distribute_tensor(tensor.to(like.device), divided.device_mesh, divided.placements)


def _is_divided(tensor: Tensor) -> bool:
    """Whether this process holds a share of the tensor alone; not before anything was divided."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)
