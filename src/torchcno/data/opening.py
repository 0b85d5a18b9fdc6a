"""Pairs of fields from the variables of a source: which axis is which, channels, grid and mask."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcno.data.arrays import as_real_tensor
from torchcno.data.fields import Fields
from torchcno.data.readers import open_source
from torchcno.data.readers.source import Opened, Variable
from torchcno.data.stored import StoredFields
from torchcno.grids import Grid, Layout

Source = (
    str
    | Path
    | xarray.Dataset
    | Mapping[str, Any]
    | tuple[Any, Any]
    | Dataset[Any]
    | DataLoader[Any]
)
Names = str | Sequence[str]

SAMPLE_NAMES = ("sample", "samples", "batch", "trajectory", "member", "realization", "case", "run")
SPACE_NAMES = ("z", "y", "x")  # of arrays whose axes have no names
# The axis behind the samples is that of channels where it is no longer than this, unless
# `dimension` says how many axes are space.
MOST_CHANNELS = 16
LOOKED_AT = 16  # samples by which a layout is guessed


def open_stored(
    source: Source,
    *,
    inputs: Names | None = None,
    outputs: Names | None = None,
    layout: Layout | Sequence[Layout] | None = None,
    grid: Grid | None = None,
    mask: Any = None,
    times: tuple[int, int] | None = None,
    sample: str | None = None,
    dimension: int | None = None,
    format: str | None = None,
) -> StoredFields:
    """Pairs of fields in their source, read when they are needed; `Fields.open` reads all at once.

    inputs, outputs  names of variables, one or several: each is a channel or more. A variable with
                     one number per sample, such as a viscosity, is a constant channel; one without
                     samples, such as a geometry, is the same in all of them.
    layout           where samples lie, for all axes or one per axis: periodic, inclusive,
                     cell-centred. Else by what the source says, else guessed, with a warning.
    grid             the whole grid, in place of `layout` and the source's coordinates.
    mask             where outputs count: a variable's name, or an array of True and False;
                     "missing": where no output is missing (masked or NaN), which is set to 0.
    times            of a variable with an axis `time`: which entry is the input, which the output.
    sample           the name of the axis of samples, where it is not the first.
    dimension        how many axes are space, where axes have no names: others are sample, channel.
    format           of a file, where its ending does not say: FORMATS in `torchcno.data.readers`.

    >>> stored = open_stored("flow.zarr", inputs=["a", "nu"], outputs="u", layout="periodic")
    """
    opened = open_source(source, format)
    names = {
        "inputs": _listed(inputs, opened.inputs, "inputs", opened),
        "outputs": _listed(outputs, opened.outputs, "outputs", opened),
    }
    plan = _Axes(opened, names["outputs"][0], sample, _dimension_of(dimension, grid, layout))
    when = dict(zip(names, times or opened.times or (None, None), strict=True))
    parts = {
        side: [plan.part(name, when[side], side) for name in some] for side, some in names.items()
    }
    masked = _Masked(mask, plan)
    grid = _make_grid(opened, plan, parts, grid, layout)

    def read_range(start: int, stop: int) -> Fields:
        blocks = {
            side: torch.cat([part.read(start, stop) for part in some], dim=1)
            for side, some in parts.items()
        }
        counts = masked.fill(blocks, start, stop)
        return Fields(
            blocks["inputs"], blocks["outputs"], grid, counts, tuple(seen), tuple(predicted)
        )

    seen, predicted = ([n for part in some for n in part.names] for some in parts.values())
    size = max(part.itemsize for some in parts.values() for part in some)
    return StoredFields(
        read_range,
        plan.samples,
        (len(seen), len(predicted)),
        grid,
        size * len([*seen, *predicted]) * math.prod(plan.shape),
        tuple(seen),
        tuple(predicted),
        chunk=max(part.chunk for some in parts.values() for part in some),
    )


@dataclass(frozen=True)
class _Part:
    """One variable as channels of fields: (sample, channel, *space)."""

    name: str
    values: Any
    axes: tuple[str, ...]
    space: tuple[str, ...]  # the axes of the grid, in order
    shape: tuple[int, ...]  # of the grid
    time: int | None

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
        """The samples start … stop − 1; missing values are NaN."""
        chosen = {"sample": slice(start, stop)}
        if self.time is not None:
            chosen["time"] = slice(self.time, self.time + 1)
        block = self.values[tuple(chosen.get(axis, slice(None)) for axis in self.axes)]
        if isinstance(block, np.ma.MaskedArray):
            block = np.ma.filled(block.astype(np.promote_types(block.dtype, np.float32)), np.nan)
        fields = as_real_tensor(block, self.name)
        present = dict(zip(self.axes, range(fields.ndim), strict=True))
        fields = fields.squeeze(present["time"]) if "time" in present else fields
        left = [axis for axis in self.axes if axis != "time"]
        order = [axis for axis in left if is_channel(axis)]
        wanted = ["sample", *order, *self.space]
        fields = fields.permute([left.index(axis) for axis in wanted if axis in left])
        for place, axis in enumerate(wanted):
            fields = fields if axis in left else fields.unsqueeze(place)
        return fields.reshape(len(fields), self.channels, *fields.shape[1 + len(order) :]).expand(
            stop - start, -1, *self.shape
        )


def is_channel(axis: str) -> bool:
    """Whether the name of an axis is that of one of channels."""
    words = axis.lower().replace("-", "_").split("_")
    return any(word in ("channel", "channels", "component", "components") for word in words)


class _Axes:
    """Which axis of a source's variables is which."""

    def __init__(
        self, opened: Opened, output: str, sample: str | None, dimension: int | None
    ) -> None:
        self.opened, self.dimension = opened, dimension
        variable = opened.variable(output)
        if not variable.shape:
            raise ValueError(f"{output} is one number; give fields (sample, channel, *space).")
        self.sample = sample or self._find_sample(variable)
        axes = self._name_output(variable, output)
        sizes = dict(zip(axes, variable.shape, strict=True))
        if "sample" not in sizes:
            known = ", ".join(variable.axes or ())
            raise ValueError(f"{output} has no axis {self.sample!r}; it has {known}.")
        self.samples = sizes["sample"]
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
        return (known or list(axes))[0]

    def _name_output(self, variable: Variable, name: str) -> tuple[str, ...]:
        if variable.axes is not None:
            return self._canonical(variable.axes)
        n, shape = len(variable.shape), variable.shape
        if self.dimension is None:
            if n > 2 and shape[1] > MOST_CHANNELS:
                raise ValueError(
                    f"{name} of shape {shape} is (sample, channel, *space) or (sample, *space); "
                    f"say dimension={n - 2} or dimension={n - 1}, the number of axes of space."
                )
            self.dimension = max(1, n - 2)
        if n not in (self.dimension + 1, self.dimension + 2):
            raise ValueError(
                f"{name} of shape {shape} does not fit {self.dimension} axes of space; give "
                "(sample, channel, *space), or another dimension."
            )
        channel = ("channel",) if n == self.dimension + 2 else ()
        return ("sample", *channel, *SPACE_NAMES[-self.dimension :])

    def _canonical(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Named axes, with that of samples called `sample`."""
        return tuple("sample" if axis == self.sample else axis for axis in axes)

    def name(self, variable: Variable, name: str) -> tuple[str, ...]:
        """The names of a variable's axes."""
        if variable.axes is not None:
            return self._canonical(variable.axes)
        shape, space = variable.shape, self.space
        if shape == self.shape:
            return space  # the same in all samples
        if shape[:1] == (self.samples,):
            for channel in ((), ("channel",)):
                if shape[1 + len(channel) :] in (self.shape, ()) and len(shape) > len(channel):
                    return ("sample", *channel, *(space if len(shape) > 1 + len(channel) else ()))
        raise ValueError(
            f"{name} of shape {shape} does not fit {self.samples} samples on a grid of "
            f"{self.shape}; give (sample, channel, *space), (sample,) or the grid's shape."
        )

    def part(self, name: str, time: int | None, side: str) -> _Part:
        """The variable `name` as channels of `side`."""
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
        time = self._entry(name, sizes["time"], time, side) if "time" in sizes else None
        return _Part(name, variable.values, axes, self.space, self.shape, time)

    def _entry(self, name: str, n: int, time: int | None, side: str) -> int:
        if time is None:
            raise ValueError(
                f"{name} has an axis of {n} times; say which are inputs and outputs: "
                "times=(0, -1), or sample='time' where each time is a sample."
            )
        if not -n <= time < n:
            raise ValueError(f"times: entry {time} for {side}, and {name} has {n}; use fewer.")
        return time % n


class _Masked:
    """Where outputs count, and what is done about values that are missing."""

    def __init__(self, mask: Any, plan: _Axes) -> None:
        self.missing = isinstance(mask, str) and mask == "missing"
        self.part: _Part | None = None
        if mask is None or self.missing:
            return
        if isinstance(mask, str):
            self.part = plan.part(mask, None, "mask")
        else:
            variable = mask if isinstance(mask, xarray.DataArray) else np.asarray(mask)
            axes = tuple(map(str, mask.dims)) if isinstance(mask, xarray.DataArray) else None
            opened = Opened("the mask", {"mask": Variable(variable, axes)})
            named = plan.name(opened.variable("mask"), "mask")
            self.part = _Part("mask", np.asarray(variable), named, plan.space, plan.shape, None)

    def fill(self, blocks: dict[str, Tensor], start: int, stop: int) -> Tensor | None:
        """Set what is missing to 0 where it may be; where outputs count, else None."""
        finite = {side: block.isfinite() for side, block in blocks.items()}
        counts = None
        if self.part is not None:
            counts = self.part.read(start, stop) != 0
        elif self.missing:
            counts = finite["outputs"]
        for side, block in blocks.items():
            bad = ~finite[side]
            if not bad.any():
                continue
            if counts is None or (side == "outputs" and bool((bad & counts).any())):
                first = start + int(bad.flatten(1).any(1).nonzero()[0])
                raise ValueError(
                    f"{side} are missing, NaN or infinite at {int(bad.sum())} points, first in "
                    f"sample {first}; leave such samples out, fill them, or say mask='missing' to "
                    "leave these points out of loss and errors."
                )
            blocks[side] = torch.where(finite[side], block, torch.zeros((), dtype=block.dtype))
        return counts


def _listed(given: Names | None, usual: Sequence[str], side: str, opened: Opened) -> list[str]:
    """The names of variables, as a list."""
    names = [given] if isinstance(given, str) else list(given or usual)
    if not names:
        known = ", ".join(f"{key} {v.shape}" for key, v in opened.variables.items()) or "nothing"
        raise ValueError(f"say which variables are {side}: {side}=...; {opened.name} has {known}.")
    return names


def _dimension_of(
    dimension: int | None, grid: Grid | None, layout: Layout | Sequence[Layout] | None
) -> int | None:
    if grid is not None:
        return len(grid.shape)
    return len(layout) if dimension is None and isinstance(layout, list | tuple) else dimension


def _make_grid(
    opened: Opened,
    plan: _Axes,
    parts: Mapping[str, list[_Part]],
    grid: Grid | None,
    layout: Layout | Sequence[Layout] | None,
) -> Grid:
    """The grid that is given, or that of the source's coordinates."""
    if grid is not None:
        if grid.shape != plan.shape:
            raise ValueError(f"fields of shape {plan.shape} do not lie on a grid of {grid.shape}.")
        return grid
    d = len(plan.space)
    stated: list[Any] = [opened.layouts.get(axis) for axis in plan.space]
    if layout is not None:
        stated = [layout] * d if isinstance(layout, str) else list(layout)
    if len(stated) != d:
        raise ValueError(f"{len(stated)} layouts for {d} axes of space; give one per axis.")
    axes = _Positions(opened, plan)
    if None in stated:
        guessed = _guess_layouts(plan, parts, axes)
        stated = [known or guess for known, guess in zip(stated, guessed, strict=True)]
        words = ", ".join(f"{a} {x}" for a, x in zip(plan.space, stated, strict=True))
        _tell_guess(opened.name, words, tuple(stated))
    extent = tuple(axes.extent(i, stated[i]) for i in range(d))
    return Grid(plan.shape, tuple(stated), extent)


@cache  # once is enough, however often a file is opened
def _tell_guess(source: str, words: str, layouts: tuple[Layout, ...]) -> None:
    warnings.warn(
        f"{source} does not say where its samples lie; by their values: {words}. Give the layout "
        f"({', '.join(layouts)}) if that is right, or the right one.",
        stacklevel=5,
    )


class _Positions:
    """The coordinates of the axes of space, where the source has them."""

    def __init__(self, opened: Opened, plan: _Axes) -> None:
        self.opened, self.plan = opened, plan

    @cached_property
    def positions(self) -> list[NDArray[Any] | None]:
        """Equispaced and growing; others are refused."""
        found: list[NDArray[Any] | None] = []
        for axis, n in zip(self.plan.space, self.plan.shape, strict=True):
            x = self.opened.coordinates.get(axis)
            x = x[:n] if x is not None and len(x) == n + 1 else x  # edges of cells
            if x is None or len(x) != n or n < 2:
                found.append(None)
                continue
            h = (x[-1] - x[0]) / (n - 1)
            if not h > 0:
                raise ValueError(
                    f"the coordinate {axis} does not grow; sort it: dataset.sortby({axis!r})."
                )
            if np.abs(np.diff(x) - h).max() > 1e-3 * h:
                raise ValueError(
                    f"the coordinate {axis} is not equispaced; interpolate the fields to a regular "
                    f"grid: dataset.interp({axis}=...)."
                )
            found.append(x)
        return found

    def extent(self, i: int, layout: Layout) -> tuple[float, float]:
        """The ends of axis `i` if its samples lie as `layout` says."""
        axis, x = self.plan.space[i], self.positions[i]
        if axis in self.opened.extents:
            return self.opened.extents[axis]
        if x is None:
            return 0.0, 1.0
        first, last = float(x[0]), float(x[-1])
        h = (last - first) / (len(x) - 1)
        ends = {
            "inclusive": (first, last),
            "periodic": (first, last + h),
            "cell-centred": (first - h / 2, last + h / 2),
        }
        return ends.get(layout, (0.0, 1.0))


def _guess_layouts(plan: _Axes, parts: Mapping[str, list[_Part]], axes: _Positions) -> list[Layout]:
    """Where samples lie, by their values.

    Across the end of a periodic axis neighbours differ as inside, and on a grid that includes both
    ends of a period, or of a field that is zero there, they do not differ at all. Elsewhere samples
    that begin half a step behind zero are centres of cells.
    """
    some = [part for side in parts.values() for part in side if set(plan.space) <= set(part.axes)]
    u = torch.cat([p.read(0, min(LOOKED_AT, plan.samples)).double() for p in some], dim=1)
    u = torch.nan_to_num(u)
    guessed: list[Layout] = []
    for i in range(len(plan.space)):
        along = u.movedim(2 + i, -1)
        inside = float(along.diff(dim=-1).abs().mean())
        across = float((along[..., 0] - along[..., -1]).abs().mean())
        x = axes.positions[i]
        h = None if x is None else (x[-1] - x[0]) / (len(x) - 1)
        if across <= 1e-3 * inside:
            guessed.append("inclusive")
        elif across <= 2 * inside:
            guessed.append("periodic")
        elif x is not None and h is not None and abs(x[0] / h - 0.5) < 1e-3:
            guessed.append("cell-centred")
        else:
            guessed.append("inclusive")
    return guessed
