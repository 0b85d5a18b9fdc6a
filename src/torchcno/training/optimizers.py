"""The optimisers of a recipe."""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from torchcno.selection import select
from torchcno.training.adamw import FusedAdamW
from torchcno.training.muon import Muon
from torchcno.training.sharding import is_sharded

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adamw": FusedAdamW, "muon": Muon}


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
    leave_compiler_out()
    return select(OPTIMIZERS, name, "optimizer")(
        model.parameters(),
        lr=torch.tensor(rate, device=device) if cuda else rate,
        weight_decay=weight_decay,
        capturable=cuda,
    )


def leave_compiler_out() -> None:
    """Have PyTorch's optimisers not import its compiler, which takes seconds and is not used here.

    They import it in order to tell it which of their methods are not its business. A method that
    has the mark of being told already is called as it is. Where PyTorch knows no such mark, the
    compiler is imported as ever.
    """
    if "torch._dynamo" in sys.modules:
        return
    for method in vars(Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None:
            plain.__dict__.setdefault("__dynamo_disable", plain)


def take_scaled(optimizer: Optimizer, loss_factor: float) -> bool:
    """Have an optimiser divide gradients by `loss_factor` as it reads them; False: it cannot.

    A pass over all gradients less.
    """
    own = getattr(optimizer, "optimizer", optimizer)  # Lightning puts one of its own around it
    if not isinstance(own, FusedAdamW | Muon):
        return False
    own.loss_factor = loss_factor
    return True


def set_rate(optimizer: Optimizer, rate: Tensor) -> None:
    """Take `rate` from the next step on; nothing waits for the device where it is read there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(rate)
        else:
            group["lr"] = float(rate)
