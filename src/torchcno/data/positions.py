"""The grid of a source: where its samples lie, and over which box."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchcno.data.axes import Axes, Part
from torchcno.data.readers.source import Opened
from torchcno.grids import Grid, Layout

LOOKED_AT = 16  # samples by which a layout is guessed


def make_grid(
    opened: Opened,
    plan: Axes,
    parts: Mapping[str, list[Part]],
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
    axes = Positions(opened, plan)
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


class Positions:
    """The coordinates of the axes of space, where the source has them."""

    def __init__(self, opened: Opened, plan: Axes) -> None:
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


def _guess_layouts(plan: Axes, parts: Mapping[str, list[Part]], axes: Positions) -> list[Layout]:
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
