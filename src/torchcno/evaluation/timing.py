"""How long things take: one function, several in turn, and a network's predictions."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

BLOCK = 0.02  # seconds: long against the clock and against one wait for a device


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
    times = [seconds_a_call(work, device, 1) for _ in range(repeats + 2)]
    return sorted(times[2:])[repeats // 2]  # the first ones choose algorithms and fill caches


def seconds_a_call(work: Callable[[], object], device: torch.device, calls: int) -> float:
    """The time of `work` in a row of `calls`, with the device idle before and after."""
    wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait(device)
    return (time.perf_counter() - start) / calls


def wait(device: torch.device) -> None:
    """Until `device` has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass
class Stopwatch:
    """Times `work` block by block, each of as many calls as fill `BLOCK` seconds.

    Several that take turns, a block each in every round, meet the same drift of the machine: the
    ratio of two of them is far steadier than either.
    """

    work: Callable[[], object]  # has run before: the first call is not like the others
    device: torch.device
    blocks: list[float] = field(default_factory=list)  # seconds a call
    calls: int = 1  # a block

    def measure(self) -> None:
        """One more block."""
        seconds = seconds_a_call(self.work, self.device, self.calls)
        while seconds * self.calls < BLOCK / 2:
            # Not all at once: the calls of a first, short block may have been slower.
            self.calls = min(10 * self.calls, 1 + int(BLOCK / max(seconds, 1e-9)))
            seconds = seconds_a_call(self.work, self.device, self.calls)
        self.blocks.append(seconds)

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.blocks)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles between which half of the blocks lie."""
        if len(self.blocks) == 1:
            return self.blocks[0], self.blocks[0]
        low, _, high = statistics.quantiles(self.blocks, n=4, method="inclusive")
        return low, high

    def over(self, other: "Stopwatch") -> float:
        """The time of this one over the other's: the median of the ratios round by round."""
        pairs = zip(self.blocks, other.blocks, strict=False)
        return statistics.median(mine / theirs for mine, theirs in pairs)
