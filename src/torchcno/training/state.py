"""Everything that changes in the course of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcno.training.averaging import WeightAverage
from torchcno.training.checkpoint import load_into
from torchcno.training.sharding import share, whole


@dataclass
class Progress:
    """How far a run is."""

    epoch: int = 0  # epochs that are over
    batch: int = 0  # steps of the current one that are over
    best_epoch: int = 0
    best_error: float | None = None
    seconds: float = 0.0  # that the epochs took
    epoch_seconds: float = 0.0  # that the current one took so far
    devices: list[str] = field(default_factory=list)  # where it was computed, one after the other
    metrics_bytes: int = 0  # of metrics.jsonl


@dataclass
class State:
    """A run between two steps: `tensors` and `progress` are enough to go on to the last bit."""

    model: nn.Module
    optimizer: Optimizer
    average: WeightAverage | None
    loss_sum: Tensor  # over the steps of the current epoch, on the device
    best: dict[str, Tensor]  # the weights of progress.best_epoch; empty before the first evaluation
    progress: Progress
    random: dict[str, Tensor] = field(default_factory=dict)  # of the saved state that it came from

    @property
    def evaluated(self) -> nn.Module:
        """The network that is judged on validation and kept: the averaged one if there is one."""
        return self.average.model if self.average else self.model

    def keep_best(self) -> None:
        """Keep a copy of the network that is judged, in the place of the last one."""
        now = self.evaluated.state_dict()
        if self.best:
            torch._foreach_copy_(list(self.best.values()), [now[name] for name in self.best])
        else:
            self.best = {name: tensor.clone() for name, tensor in now.items()}

    def best_weights(self) -> dict[str, Tensor]:
        """The best weights so far, put together from all processes: all have to ask."""
        return {name: whole(tensor) for name, tensor in self.best.items()}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state by name, put together from all processes: all have to ask."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict() if self.average else {},
            "best": self.best,
            "random": {"cpu": torch.get_rng_state()},
            "loss": {"sum": self.loss_sum},
        }
        device = self.loss_sum.device
        if device.type == "cuda":
            groups["random"] = {**groups["random"], "cuda": torch.cuda.get_rng_state(device)}
        for i, entries in self.optimizer.state_dict()["state"].items():
            groups[f"optimizer.{i}"] = entries
        return {
            f"{group}/{name}": whole(t)
            for group, items in groups.items()
            for name, t in items.items()
        }

    def restore(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Take over the tensors and the progress of a saved state."""
        groups: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            group, name = key.split("/", maxsplit=1)
            groups.setdefault(group, {})[name] = tensor
        load_into(self.model, groups["model"], "the checkpoint")
        if self.average:
            load_into(self.average.model, groups["average"], "the checkpoint")
        weights = [w for group in self.optimizer.param_groups for w in group["params"]]
        moments = {
            i: {name: share(t, w) if t.shape == w.shape else t for name, t in entries.items()}
            for i, w in enumerate(weights)
            if (entries := groups.get(f"optimizer.{i}"))
        }
        # Rate and decay are the recipe's: only the moments are state.
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        device = self.loss_sum.device
        own, best = self.evaluated.state_dict(), groups.get("best", {})
        self.best = {name: share(t.to(device), own[name]) for name, t in best.items()}
        self.loss_sum.copy_(groups["loss"]["sum"])
        self.progress, self.random = Progress(**progress), groups["random"]

    def restore_random(self) -> None:
        """Let the process draw the random numbers that come next by the saved state."""
        device = self.loss_sum.device
        torch.set_rng_state(self.random["cpu"])
        # On another kind of device, the seeds of the next epoch take over.
        if device.type == "cuda" and "cuda" in self.random:
            torch.cuda.set_rng_state(self.random["cuda"], device)
