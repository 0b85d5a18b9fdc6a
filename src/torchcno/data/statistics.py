"""What a set of fields looks like, channel by channel, taken a block of samples at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.stored import StoredFields

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


class RunningStatistics:
    """The statistics of fields `(sample, channel, *space)` that come in blocks of samples.

    Sums are float64, and each block's are taken about its own mean: with M_2 = Σ (u − ū)²,

        M_2 = M_2' + M_2'' + (ū'' − ū')² n' n'' / (n' + n'')
    """

    def __init__(self) -> None:
        # Lists, since small tensors that are made among large ones and stay would keep the memory
        # of those in pieces.
        self.lows: list[list[float]] = []  # by block and channel
        self.highs: list[list[float]] = []
        self.peaks: list[list[float]] = []  # by sample and channel
        self.count: list[float] = []
        self.mean: list[float] = []
        self.squares: list[float] = []

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
        self.count, self.mean, self.squares = (
            known or [0.0] * len(sums) for known in (self.count, self.mean, self.squares)
        )
        for i, (n, total) in enumerate(zip(counted, sums, strict=True)):
            if n:
                self._merge(i, n, total / n, u[:, i], c[:, i])

    def _merge(self, channel: int, n: int, mean: float, u: Tensor, c: Tensor) -> None:
        about = (u.double() - mean).square_().mul_(c).sum().item()
        before, gap = self.count[channel], mean - self.mean[channel]
        together = before + n
        self.squares[channel] += about + gap**2 * before * n / together
        self.mean[channel] += gap * n / together
        self.count[channel] = together

    def result(self) -> ChannelStatistics:
        """Of all that was taken in."""
        if not self.peaks:
            raise ValueError("there are no samples; give at least one.")
        peak = torch.tensor(self.peaks, dtype=torch.float64)
        largest, where = peak.max(0)
        both = zip(self.squares, self.count, strict=True)
        return ChannelStatistics(
            low=tuple(torch.tensor(self.lows, dtype=torch.float64).amin(0).tolist()),
            high=tuple(torch.tensor(self.highs, dtype=torch.float64).amax(0).tolist()),
            mean=tuple(self.mean),
            deviation=tuple(math.sqrt(total / n) if n else math.nan for total, n in both),
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
