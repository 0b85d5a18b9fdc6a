"""How fields are scaled before a network sees them, channel by channel."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.statistics import ChannelStatistics, fields_statistics
from torchcno.data.stored import StoredFields
from torchcno.selection import select

Constants = float | tuple[float, ...]  # one number for all channels, or one per channel

Side = Literal["input", "output"]
SIDES: tuple[Side, Side] = ("input", "output")

# A channel whose mean is this many deviations away from zero or more has no zero to keep.
FAR_FROM_ZERO = 3.0


@dataclass(frozen=True)
class Normalization:
    """Fields scaled by constants of the training set, the same ones for every split:

        ũ = (u − min) / (max − min)

    `min` is the value that becomes 0 and `max` the one that becomes 1: a number for all channels,
    or one per channel. `NORMALIZATIONS` has ways to choose them.

    >>> Normalization(-1.0, 9.0, 0.0, 20.0)               # the same for all channels
    >>> Normalization((0.0, 1e5), (1.0, 1.1e5), 0.0, 1.0)  # two input channels
    """

    input_min: Constants
    input_max: Constants
    output_min: Constants
    output_max: Constants

    def __post_init__(self) -> None:
        for side in SIDES:
            pairs = self.constants(side)
            for channel, (a, b) in enumerate(pairs):
                which = f"{side}s" if len(pairs) == 1 else f"{side} channel {channel}"
                if not a < b:  # also true of NaN
                    raise ValueError(
                        f"{which} from {a} to {b} cannot be scaled to [0, 1]; check the data for "
                        "constant or non-finite fields, or leave the channel out."
                    )
                if not (math.isfinite(a) and math.isfinite(b)):
                    raise ValueError(
                        f"{which} from {a} to {b} cannot be scaled; give finite constants."
                    )

    @classmethod
    def fit(cls, fields: Fields | StoredFields, name: str = "unit") -> "Normalization":
        """The constants of a training set, by the entry `name` of `NORMALIZATIONS`."""
        return cls.of_statistics(*fields_statistics(fields), name)

    @classmethod
    def of_statistics(
        cls, inputs: ChannelStatistics, outputs: ChannelStatistics, name: str = "unit"
    ) -> "Normalization":
        """The constants of a training set that is known by its statistics alone."""
        choose = select(NORMALIZATIONS, name, "normalization")
        return cls(*choose(inputs), *choose(outputs))

    @classmethod
    def identity(cls) -> "Normalization":
        """No scaling, for problems whose fields are taken as they are."""
        return cls(0.0, 1.0, 0.0, 1.0)

    def constants(self, side: Side) -> list[tuple[float, float]]:
        """What becomes 0 and what becomes 1: a pair per channel, or one for all of them."""
        low, high = getattr(self, f"{side}_min"), getattr(self, f"{side}_max")
        lows, highs = (x if isinstance(x, tuple) else (x,) for x in (low, high))
        if isinstance(low, tuple) != isinstance(high, tuple) or len(lows) != len(highs):
            raise ValueError(
                f"{side}_min is {low} and {side}_max {high}; give a number each, or one per "
                "channel in both."
            )
        return list(zip(lows, highs, strict=True))

    def for_output(self, channel: int) -> "Normalization":
        """The scaling of one output channel alone; the inputs' stays."""
        pairs = self.constants("output")
        low, high = pairs[channel if isinstance(self.output_min, tuple) else 0]
        return replace(self, output_min=low, output_max=high)

    def normalize_inputs(self, u: Tensor) -> Tensor:
        """Physical inputs to what a network sees."""
        low, high = _along_channels(self.input_min, u), _along_channels(self.input_max, u)
        return (u - low) / (high - low)

    def normalize_outputs(self, v: Tensor) -> Tensor:
        """Physical outputs to what a network is trained on."""
        low, high = _along_channels(self.output_min, v), _along_channels(self.output_max, v)
        return (v - low) / (high - low)

    def denormalize_inputs(self, u: Tensor) -> Tensor:
        """What a network sees back to physical values."""
        low, high = _along_channels(self.input_min, u), _along_channels(self.input_max, u)
        return low + (high - low) * u

    def denormalize_outputs(self, v: Tensor) -> Tensor:
        """A network's outputs back to physical values."""
        low, high = _along_channels(self.output_min, v), _along_channels(self.output_max, v)
        return low + (high - low) * v


def scale_to_unit(statistics: ChannelStatistics) -> tuple[Constants, Constants]:
    """All channels to [0, 1] by one minimum and one maximum, as the paper does."""
    return min(statistics.low), max(statistics.high)


def scale_symmetrically(statistics: ChannelStatistics) -> tuple[Constants, Constants]:
    """u / max |u| of each channel: zero stays zero, so that padding with zeros means what it says.

    A velocity of zero at a wall is zero to the network, and a field with the other sign has the
    other sign.
    """
    return (0.0,) * len(statistics.low), statistics.magnitude


def standardize(statistics: ChannelStatistics) -> tuple[Constants, Constants]:
    """Each channel to mean 0 and deviation 1."""
    both = zip(statistics.mean, statistics.deviation, strict=True)
    return statistics.mean, tuple(mean + deviation for mean, deviation in both)


def leave_unscaled(statistics: ChannelStatistics) -> tuple[Constants, Constants]:
    """Fields as they are."""
    return 0.0, 1.0


def scale_by_rule(statistics: ChannelStatistics) -> tuple[Constants, Constants]:
    """Each channel by itself: `symmetric`, or `standard` where it stays far from zero.

    Far from zero: |mean| ≥ 3 deviations. Zero is then no value of the field that the network could
    use, and divided by its magnitude the field would be almost constant.
    """
    symmetric, standard = scale_symmetrically(statistics), standardize(statistics)
    keeps_zero = [is_near_zero(statistics, channel) for channel in range(len(statistics.low))]
    low, high = (
        tuple(a[c] if keeps else b[c] for c, keeps in enumerate(keeps_zero))  # type: ignore[index]
        for a, b in zip(symmetric, standard, strict=True)
    )
    return low, high


def is_near_zero(statistics: ChannelStatistics, channel: int) -> bool:
    """Whether zero is a value that the channel could well take."""
    mean, deviation = statistics.mean[channel], statistics.deviation[channel]
    return abs(mean) < FAR_FROM_ZERO * deviation or not deviation > 0


# The list of their names. `auto` is the rule for own data.
NORMALIZATIONS: dict[str, Callable[[ChannelStatistics], tuple[Constants, Constants]]] = {
    "unit": scale_to_unit,
    "symmetric": scale_symmetrically,
    "standard": standardize,
    "none": leave_unscaled,
    "auto": scale_by_rule,
}


def describe_scaling(normalization: Normalization) -> list[str]:
    """The constants in words, a line per channel.

    >>> describe_scaling(Normalization(0.0, 2.0, (0.0, 1e5), (1.0, 100100.0)))
    ['inputs: u / 2', 'output channel 0: as it is', 'output channel 1: (u - 100000) / 100']
    """
    lines = []
    for side in SIDES:
        pairs = normalization.constants(side)
        for channel, (a, b) in enumerate(pairs):
            which = f"{side}s" if len(pairs) == 1 else f"{side} channel {channel}"
            lines.append(f"{which}: {_formula(a, b)}")
    return lines


def _formula(low: float, high: float) -> str:
    shifted = "u" if low == 0 else f"(u {'-' if low > 0 else '+'} {abs(low):.6g})"
    if high - low == 1:
        return "as it is" if low == 0 else shifted.strip("()")
    return f"{shifted} / {high - low:.6g}"


def _along_channels(constants: Constants, fields: Tensor) -> Tensor | float:
    """`constants` as `fields` take them: (sample, channel, *space)."""
    if not isinstance(constants, tuple):
        return constants
    if len(constants) != fields.shape[1]:
        raise ValueError(
            f"fields have {fields.shape[1]} channels, and the scaling {len(constants)} constants; "
            "give one constant per channel."
        )
    row = torch.tensor(constants, dtype=fields.dtype, device=fields.device)
    return row.reshape(-1, *(1,) * (fields.ndim - 2))
