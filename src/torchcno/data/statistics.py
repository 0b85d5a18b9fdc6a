"""What a set of fields looks like, channel by channel, taken a block of samples at a time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def statistics_of(blocks: Iterable[Tensor]) -> ChannelStatistics:
    """The statistics of fields `(sample, channel, *space)` that come in blocks of samples.

    Sums are float64, and each block's are taken about its own mean: with M_2 = Σ (u − ū)²,

        M_2 = M_2' + M_2'' + (ū'' − ū')² n' n'' / (n' + n'')
    """
    count, lows, highs, peaks = 0, [], [], []
    mean = squares = torch.zeros((), dtype=torch.float64)
    for block in blocks:
        u = block.detach().transpose(0, 1).flatten(2).double().cpu()  # (channel, sample, point)
        peaks.append(u.abs().amax(2))
        flat = u.flatten(1)
        lows.append(flat.amin(1))
        highs.append(flat.amax(1))
        n, own = flat.shape[1], flat.mean(1)
        gap = own - mean
        squares = squares + (flat - own[:, None]).square().sum(1) + gap**2 * count * n / (count + n)
        mean = mean + gap * n / (count + n)
        count += n
    if not count:
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
    inputs, outputs = (statistics_of(u.split(BLOCK)) for u in (fields.inputs, fields.outputs))
    return inputs, outputs


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
