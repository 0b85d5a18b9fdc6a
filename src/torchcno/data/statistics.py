"""What a set of fields looks like, channel by channel, taken a block of samples at a time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from torchcno.data.fields import Fields

BLOCK = 64  # samples that are looked at together
# Output channels whose magnitudes differ by more than this are not judged by one number.
UNLIKE = 100.0
# A sample whose magnitude is this many times the median one is an outlier.
OUTLIER = 50.0


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


def statistics_of(
    blocks: Iterable[Tensor], counts: Iterable[Tensor | None] = repeat(None)
) -> ChannelStatistics:
    """The statistics of fields `(sample, channel, *space)` that come in blocks of samples.

    `counts` says of each block where it counts; None: everywhere. Sums are float64, and each
    block's are taken about its own mean: with M_2 = Σ (u − ū)²,

        M_2 = M_2' + M_2'' + (ū'' − ū')² n' n'' / (n' + n'')
    """
    lows, highs, peaks = [], [], []
    count = mean = squares = torch.zeros((), dtype=torch.float64)  # per channel
    for block, counted in zip(blocks, counts, strict=False):
        u = block.detach().transpose(0, 1).flatten(2).double().cpu()  # (channel, sample, point)
        c = torch.ones_like(u, dtype=torch.bool)
        if counted is not None:
            c = counted.expand_as(block).transpose(0, 1).flatten(2).cpu()
        inside = torch.where(c, u, 0.0)
        peaks.append(inside.abs().amax(2))
        lows.append(torch.where(c, u, torch.inf).amin((1, 2)))
        highs.append(torch.where(c, u, -torch.inf).amax((1, 2)))
        n = c.sum((1, 2)).double()
        own = inside.sum((1, 2)) / n.clamp(min=1)
        about = torch.where(c, u - own[:, None, None], 0.0).square().sum((1, 2))
        gap, together = own - mean, (count + n).clamp(min=1)
        squares = squares + about + gap**2 * count * n / together
        mean = mean + gap * n / together
        count = count + n
    if not peaks:
        raise ValueError("there are no samples; give at least one.")
    peak = torch.cat(peaks, dim=1)
    largest, where = peak.max(1)
    return ChannelStatistics(
        low=_numbers(torch.stack(lows).amin(0)),
        high=_numbers(torch.stack(highs).amax(0)),
        mean=_numbers(mean),
        deviation=_numbers((squares / count).sqrt()),
        largest=_numbers(largest),
        largest_sample=tuple(int(i) for i in where),
        usual=_numbers(peak.median(1).values),
    )


def fields_statistics(fields: Fields) -> tuple[ChannelStatistics, ChannelStatistics]:
    """The statistics of inputs and of outputs."""
    counts = repeat(None) if fields.mask is None else fields.mask.split(BLOCK)
    return (
        statistics_of(fields.inputs.split(BLOCK)),
        statistics_of(fields.outputs.split(BLOCK), counts),
    )


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


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
