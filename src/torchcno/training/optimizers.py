"""The optimisers of a recipe."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from torchcno.selection import select
from torchcno.training.muon import Muon
from torchcno.training.sharding import is_sharded


def adamw(
    params: Iterable[Tensor], lr: float | Tensor, weight_decay: float, capturable: bool
) -> Optimizer:
    """AdamW in one kernel; that knows no complex weights, which take one an operation."""
    weights = list(params)
    groups = [
        {"params": [w for w in weights if not w.is_complex()], "fused": True},
        {"params": [w for w in weights if w.is_complex()], "foreach": True},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, lr=lr, weight_decay=weight_decay, capturable=capturable)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adamw": adamw, "muon": Muon}


def make_optimizer(
    name: str, model: nn.Module, rate: float, weight_decay: float, device: torch.device
) -> Optimizer:
    """The optimiser `name` of a model; on CUDA with all that it reads there, for graphs."""
    if is_sharded(model):
        if name != "adamw":
            raise ValueError(
                f"{name} needs weights whole, and the strategy fsdp divides them; "
                "use the strategy ddp, or the optimizer adamw."
            )
        return AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    cuda = device.type == "cuda"
    return select(OPTIMIZERS, name, "optimizer")(
        model.parameters(),
        lr=torch.tensor(rate, device=device) if cuda else rate,
        weight_decay=weight_decay,
        capturable=cuda,
    )


def set_rate(optimizer: Optimizer, rate: Tensor) -> None:
    """Take `rate` from the next step on; nothing waits for the device where it is read there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(rate)
        else:
            group["lr"] = float(rate)
