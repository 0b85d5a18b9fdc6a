"""Which axis of a source's variables is which: samples, channels, time, space."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from torchcno.data.arrays import as_real_tensor
from torchcno.data.readers.source import Opened, Variable

SAMPLE_NAMES = ("sample", "samples", "batch", "trajectory", "member", "realization", "case", "run")
SPACE_NAMES = ("z", "y", "x")  # of arrays whose axes have no names
# The axis behind the samples is that of channels where it is no longer than this, unless
# `dimension` says how many axes are space.
MOST_CHANNELS = 16


@dataclass(frozen=True)
class Part:
    """One variable as channels of fields: (sample, channel, *space)."""

    name: str
    values: Any
    axes: tuple[str, ...]
    space: tuple[str, ...]  # the axes of the grid, in order
    shape: tuple[int, ...]  # of the grid
    time: int | slice | None  # which entries of a time axis are read; None: it has none

    @property
    def channels(self) -> int:
        """How many of them."""
        sizes = dict(zip(self.axes, self.values.shape, strict=True))
        return math.prod(n for axis, n in sizes.items() if is_channel(axis))

    @property
    def names(self) -> list[str]:
        """The names of its channels."""
        several = self.channels > 1
        return [f"{self.name}_{c}" if several else self.name for c in range(self.channels)]

    @property
    def itemsize(self) -> int:
        """Bytes of a value in memory."""
        return 4 if np.dtype(str(self.values.dtype).removeprefix("torch.")).itemsize <= 4 else 8

    @property
    def chunk(self) -> int:
        """How many samples lie in one piece of the file."""
        pieces = getattr(self.values, "chunks", None)
        piece = pieces[self.axes.index("sample")] if pieces and "sample" in self.axes else 1
        return max(16, int(piece))

    def read(self, start: int, stop: int) -> Tensor:
        """The samples start … stop − 1 at one time; missing values are NaN."""
        return self.read_times(start, stop)[:, 0]

    def read_times(self, start: int, stop: int) -> Tensor:
        """The samples start … stop − 1 at all its times: (sample, time, channel, *space)."""
        when = slice(self.time, self.time + 1) if isinstance(self.time, int) else self.time
        chosen = {"sample": slice(start, stop), "time": when}
        block = self.values[tuple(chosen.get(axis, slice(None)) for axis in self.axes)]
        if isinstance(block, np.ma.MaskedArray):
            block = np.ma.filled(block.astype(np.promote_types(block.dtype, np.float32)), np.nan)
        fields = as_real_tensor(block, self.name)
        order = [axis for axis in self.axes if is_channel(axis)]
        wanted = ["sample", "time", *order, *self.space]
        fields = fields.permute([self.axes.index(axis) for axis in wanted if axis in self.axes])
        for place, axis in enumerate(wanted):
            fields = fields if axis in self.axes else fields.unsqueeze(place)
        fields = fields.reshape(*fields.shape[:2], self.channels, *fields.shape[2 + len(order) :])
        return fields.expand(stop - start, -1, -1, *self.shape)


def is_channel(axis: str) -> bool:
    """Whether the name of an axis is that of one of channels."""
    words = axis.lower().replace("-", "_").split("_")
    return any(word in ("channel", "channels", "component", "components") for word in words)


class Axes:
    """Which axis of a source's variables is which.

    With `time`, the name of an axis of times, variables are trajectories: (sample, time, channel,
    *space) where axes have no names. One trajectory needs no axis of samples.
    """

    def __init__(
        self,
        opened: Opened,
        output: str,
        sample: str | None,
        dimension: int | None,
        time: str | None = None,
    ) -> None:
        self.opened, self.dimension, self.time = opened, dimension, time
        variable = opened.variable(output)
        if not variable.shape:
            raise ValueError(f"{output} is one number; give fields (sample, channel, *space).")
        self.sample = sample or self._find_sample(variable)
        axes = self._name_output(variable, output)
        sizes = dict(zip(axes, variable.shape, strict=True))
        known = ", ".join(variable.axes or ())
        if "sample" not in sizes and (sample or time is None):
            raise ValueError(f"{output} has no axis {self.sample!r}; it has {known}.")
        if time is not None and variable.axes is not None and time not in variable.axes:
            raise ValueError(f"{output} has no axis {time!r}; it has {known}: say time=...")
        self.samples = sizes.get("sample", 1)
        self.times = sizes.get("time", 1)
        self.space = tuple(a for a in axes if a not in ("sample", "time") and not is_channel(a))
        self.shape = tuple(sizes[axis] for axis in self.space)
        if not 1 <= len(self.space) <= 3:
            raise ValueError(
                f"{output} of shape {variable.shape} has {len(self.space)} axes of space; give 1 "
                "to 3: (sample, channel, *space), or say dimension=, times= or sample=."
            )

    def _find_sample(self, variable: Variable) -> str:
        axes = variable.axes or ("sample",)
        known = [axis for axis in axes if axis.lower() in SAMPLE_NAMES]
        others = [axis for axis in axes if axis != self.time]
        if self.time is not None and axes[0] == self.time and not known:
            return "sample"  # which it has not: there is one trajectory
        return (known or others)[0]

    def _name_output(self, variable: Variable, name: str) -> tuple[str, ...]:
        if variable.axes is not None:
            return self._canonical(variable.axes)
        n, shape = len(variable.shape), variable.shape
        before = ("sample",) if self.time is None else ("sample", "time")
        some, m = ", ".join(before), len(before)
        if self.dimension is None:
            if n > m + 1 and shape[m] > MOST_CHANNELS:
                raise ValueError(
                    f"{name} of shape {shape} is ({some}, channel, *space) or ({some}, *space); "
                    f"say dimension={n - m - 1} or dimension={n - m}, the number of axes of space."
                )
            self.dimension = max(1, n - m - 1)
        if n not in (self.dimension + m, self.dimension + m + 1):
            raise ValueError(
                f"{name} of shape {shape} does not fit {self.dimension} axes of space; give "
                f"({some}, channel, *space), or another dimension."
            )
        channel = ("channel",) if n == self.dimension + m + 1 else ()
        return (*before, *channel, *SPACE_NAMES[-self.dimension :])

    def _canonical(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Named axes, with that of samples called `sample` and that of times `time`."""
        known = {self.sample: "sample", self.time or "time": "time"}
        return tuple(known.get(axis, axis) for axis in axes)

    def name(self, variable: Variable, name: str) -> tuple[str, ...]:
        """The names of a variable's axes."""
        if variable.axes is not None:
            return self._canonical(variable.axes)
        shape, space = variable.shape, self.space
        if shape == self.shape:
            return space  # the same in all samples
        if self.time is not None and shape[:2] == (self.samples, self.times):
            for channel in ((), ("channel",)):
                if shape[2 + len(channel) :] == self.shape:
                    return ("sample", "time", *channel, *space)
        if shape[:1] == (self.samples,):
            for channel in ((), ("channel",)):
                if shape[1 + len(channel) :] in (self.shape, ()) and len(shape) > len(channel):
                    return ("sample", *channel, *(space if len(shape) > 1 + len(channel) else ()))
        raise ValueError(
            f"{name} of shape {shape} does not fit {self.samples} samples on a grid of "
            f"{self.shape}; give (sample, channel, *space), (sample,) or the grid's shape."
        )

    def part(self, name: str, time: int | slice | None, side: str) -> Part:
        """The variable `name` as channels of `side`, at one time or at all (a slice)."""
        variable = self.opened.variable(name)
        axes = self.name(variable, name)
        sizes = dict(zip(axes, variable.shape, strict=True))
        for axis, n in sizes.items():
            expected = {"sample": self.samples, **dict(zip(self.space, self.shape, strict=True))}
            if axis in expected and n != expected[axis]:
                raise ValueError(
                    f"{name} has {n} points along {axis}, and the outputs have {expected[axis]}; "
                    "give both on one grid, with equally many samples."
                )
            if axis not in expected and axis != "time" and not is_channel(axis):
                raise ValueError(
                    f"{name} has an axis {axis!r}, which the outputs have not; select one entry of "
                    "it, or call it channel."
                )
        if "time" not in sizes:
            time = None
        elif not isinstance(time, slice):
            time = self._entry(name, sizes["time"], time, side)
        return Part(name, variable.values, axes, self.space, self.shape, time)

    def _entry(self, name: str, n: int, time: int | None, side: str) -> int:
        if time is None:
            raise ValueError(
                f"{name} has an axis of {n} times; say which are inputs and outputs: "
                "times=(0, -1), or sample='time' where each time is a sample."
            )
        if not -n <= time < n:
            raise ValueError(f"times: entry {time} for {side}, and {name} has {n}; use fewer.")
        return time % n
