"""Pairs of fields from the variables of a source, where they lie, with their grid and mask."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcno.data.axes import Axes, Part
from torchcno.data.fields import Fields
from torchcno.data.positions import make_grid
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
    plan = Axes(opened, names["outputs"][0], sample, _dimension_of(dimension, grid, layout))
    when = dict(zip(names, times or opened.times or (None, None), strict=True))
    parts = {
        side: [plan.part(name, when[side], side) for name in some] for side, some in names.items()
    }
    masked = Masked(mask, plan)
    grid = make_grid(opened, plan, parts, grid, layout)

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


class Masked:
    """Where outputs count, and what is done about values that are missing."""

    def __init__(self, mask: Any, plan: Axes) -> None:
        self.missing = isinstance(mask, str) and mask == "missing"
        self.part: Part | None = None
        if mask is None or self.missing:
            return
        if isinstance(mask, str):
            self.part = plan.part(mask, None, "mask")
        else:
            variable = mask if isinstance(mask, xarray.DataArray) else np.asarray(mask)
            axes = tuple(map(str, mask.dims)) if isinstance(mask, xarray.DataArray) else None
            opened = Opened("the mask", {"mask": Variable(variable, axes)})
            named = plan.name(opened.variable("mask"), "mask")
            self.part = Part("mask", np.asarray(variable), named, plan.space, plan.shape, None)

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
