"""How fast a network predicts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class InferenceTime:
    """Seconds of one forward pass, the median of several, with the device idle before and after."""

    latency_seconds: float  # of a single sample
    samples_per_second: float  # in batches
    batch_size: int


def inference_time(
    model: nn.Module, inputs: Tensor, batch_size: int = 32, repeats: int = 10
) -> InferenceTime:
    """Time `model` on samples of `inputs`, on the device where its weights are."""
    device = next(model.parameters()).device
    # Samples are repeated where there are fewer than a batch: their values make no difference.
    batch = inputs[torch.arange(batch_size) % len(inputs)].to(device)
    model.eval()
    with torch.inference_mode():
        latency = median_seconds(lambda: model(batch[:1]), device, repeats)
        per_batch = median_seconds(lambda: model(batch), device, repeats)
    return InferenceTime(latency, batch_size / per_batch, batch_size)


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median time of `work` on `device`, after two runs that do not count."""
    times = []
    for i in range(repeats + 2):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        if i >= 2:  # the first ones choose algorithms and fill caches
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
