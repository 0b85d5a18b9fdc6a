"""What a set of fields looks like, channel by channel, taken a block of samples at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields

Value = TypeVar("Value", float, Tensor)

BLOCK = 64  # samples that are looked at together
# Output channels whose magnitudes differ by more than this are not judged by one number.
UNLIKE = 100.0
# A sample whose magnitude is this many times the median one is an outlier.
OUTLIER = 50.0


class OddData(UserWarning):
    """Fields have something that a user should look at before training."""


@dataclass(frozen=True)
class ChannelStatistics:
    """Extremes, means and deviations of fields over samples and points, a number per channel."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]  # the root of the mean square distance from the mean
    # The largest magnitude in a sample: of the largest sample, its number, and of the median one.
    largest: tuple[float, ...]
    largest_sample: tuple[int, ...]
    usual: tuple[float, ...]

    @property
    def magnitude(self) -> tuple[float, ...]:
        """max |u| of each channel."""
        return tuple(max(abs(a), abs(b)) for a, b in zip(self.low, self.high, strict=True))


def merge_moments(
    some: tuple[float, Value, Value], more: tuple[float, Value, Value]
) -> tuple[float, Value, Value]:
    """Count n, mean ū and M_2 = Σ (u − ū)² of two blocks together, each about its own mean:

    M_2 = M_2' + M_2'' + (ū'' − ū')² n' n'' / (n' + n'')
    """
    (n, mean, squares), (m, other, about) = some, more
    gap, together = other - mean, n + m
    return together, mean + gap * m / together, squares + (about + gap**2 * n * m / together)


class RunningStatistics:
    """The statistics of fields `(sample, channel, *space)` that come in blocks of samples.

    Sums are float64, and each block's are taken about its own mean (`merge_moments`).
    """

    def __init__(self) -> None:
        # Lists, since small tensors that are made among large ones and stay would keep the memory
        # of those in pieces.
        self.lows: list[list[float]] = []  # by block and channel
        self.highs: list[list[float]] = []
        self.peaks: list[list[float]] = []  # by sample and channel
        self.moments: list[tuple[float, float, float]] = []  # by channel

    def add(self, block: Tensor, counts: Tensor | None = None) -> None:
        """Take in some samples, which count where `counts` says so; None: everywhere."""
        u = block.detach().flatten(2).cpu()  # (sample, channel, point)
        c = torch.ones((), dtype=torch.bool).expand_as(u)
        if counts is not None:
            c = counts.expand_as(block).flatten(2).cpu()
        self.lows.append(torch.where(c, u, torch.inf).amin((0, 2)).tolist())
        self.highs.append(torch.where(c, u, -torch.inf).amax((0, 2)).tolist())
        inside = torch.where(c, u, 0)
        self.peaks += inside.abs().amax(2).tolist()
        counted = c.sum((0, 2)).tolist()
        sums = inside.sum((0, 2), dtype=torch.float64).tolist()
        self.moments = self.moments or [(0.0, 0.0, 0.0)] * len(sums)
        for i, (n, total) in enumerate(zip(counted, sums, strict=True)):
            if n:
                about = (u[:, i].double() - total / n).square_().mul_(c[:, i]).sum().item()
                self.moments[i] = merge_moments(self.moments[i], (n, total / n, about))

    def result(self) -> ChannelStatistics:
        """Of all that was taken in."""
        if not self.peaks:
            raise ValueError("there are no samples; give at least one.")
        peak = torch.tensor(self.peaks, dtype=torch.float64)
        largest, where = peak.max(0)
        return ChannelStatistics(
            low=tuple(torch.tensor(self.lows, dtype=torch.float64).amin(0).tolist()),
            high=tuple(torch.tensor(self.highs, dtype=torch.float64).amax(0).tolist()),
            mean=tuple(mean for _, mean, _ in self.moments),
            deviation=tuple(math.sqrt(m / n) if n else math.nan for n, _, m in self.moments),
            largest=tuple(largest.tolist()),
            largest_sample=tuple(where.tolist()),
            usual=tuple(peak.median(0).values.tolist()),
        )


def fields_statistics(
    fields: Fields | StoredFields,
) -> tuple[ChannelStatistics, ChannelStatistics]:
    """The statistics of inputs and of outputs, by one pass over them."""
    inputs, outputs = RunningStatistics(), RunningStatistics()
    for block in fields.blocks(BLOCK):
        inputs.add(block.inputs)
        outputs.add(block.outputs, block.mask)
    return inputs.result(), outputs.result()


def find_oddities(inputs: ChannelStatistics, outputs: ChannelStatistics) -> list[str]:
    """What a user should look at before training, a sentence each."""
    found = []
    for side, one in (("input", inputs), ("output", outputs)):
        for c, (largest, usual) in enumerate(zip(one.largest, one.usual, strict=True)):
            if usual > 0 and largest > OUTLIER * usual:
                found.append(
                    f"sample {one.largest_sample[c]} reaches {largest:.3g} in {side} channel {c}, "
                    f"{largest / usual:.0f} times the median sample's largest value; check it, or "
                    "leave it out."
                )
        found += _differing_ranges(side, one.magnitude)
    return found


def _differing_ranges(side: str, magnitudes: Sequence[float]) -> list[str]:
    known = [(size, c) for c, size in enumerate(magnitudes) if size > 0 and math.isfinite(size)]
    if not known:
        return []
    (least, small), (most, large) = min(known), max(known)
    if most <= UNLIKE * least:
        return []
    return [
        f"{side} channel {large} is {most / least:.3g} times as large as channel {small}; scale "
        "each channel by itself (symmetric or standard, not unit), and look at errors per channel."
    ]
