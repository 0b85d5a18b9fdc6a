"""Where the samples of a field lie."""

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

Layout = Literal["periodic", "inclusive", "cell-centred"]
Choice = TypeVar("Choice", bound=str)
Layouts = Layout | tuple[Layout, ...]  # one for all axes, or one per axis


@dataclass(frozen=True)
class Grid:
    """Equispaced samples of a box, one number of points per axis, axes in tensor order: (y, x).

    On an axis [a, b] with n points the sample j = 0 … n − 1 lies at a + (b − a) ξ_j:

        periodic      ξ_j = j / n            the right end is the left one
        inclusive     ξ_j = j / (n − 1)      both ends are samples
        cell-centred  ξ_j = (j + 1/2) / n    the middles of n cells
    """

    shape: tuple[int, ...]
    layout: Layouts  # of all axes, or one per axis: a channel is ("inclusive", "periodic")
    extent: tuple[tuple[float, float], ...] = ()  # (a, b) per axis; empty: the unit cube

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))  # a list will do
        object.__setattr__(self, "layout", shortened(layout_of_axes(self.layout, len(self.shape))))
        least = [2 if layout == "inclusive" else 1 for layout in self.layouts]
        if not self.shape or any(n < m for n, m in zip(self.shape, least, strict=True)):
            raise ValueError(
                f"shape {self.shape} is too small; use {max(least, default=1)} or more points per "
                "axis."
            )
        if not self.extent:
            object.__setattr__(self, "extent", ((0.0, 1.0),) * len(self.shape))
        if len(self.extent) != len(self.shape) or any(b <= a for a, b in self.extent):
            raise ValueError(
                f"extent {self.extent} does not fit shape {self.shape}; give a < b per axis."
            )

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Where the samples lie, per axis."""
        return layout_of_axes(self.layout, len(self.shape))

    @property
    def spacing(self) -> tuple[float, ...]:
        """The distance of neighbouring samples, per axis."""
        gaps = [
            n - 1 if layout == "inclusive" else n
            for n, layout in zip(self.shape, self.layouts, strict=True)
        ]
        return tuple((b - a) / n for (a, b), n in zip(self.extent, gaps, strict=True))

    def axis(self, i: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """The coordinates along axis `i`."""
        (a, b), n = self.extent[i], self.shape[i]
        return a + (b - a) * unit_positions(n, self.layouts[i]).to(dtype)

    def mesh(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """The coordinates of every sample: one tensor of `shape` per axis."""
        return torch.meshgrid(*(self.axis(i, dtype) for i in range(len(self.shape))), indexing="ij")

    def resized(self, *shape: int) -> "Grid":
        """The same box and layout with another number of points."""
        return Grid(shape, self.layout, self.extent)


def layout_of_axes(layout: Layouts, axes: int) -> tuple[Layout, ...]:
    """A layout for each of so many axes."""
    each = tuple(layout) if isinstance(layout, list | tuple) else (layout,) * axes
    if len(each) != axes:
        raise ValueError(f"{len(each)} layouts for {axes} axes; give one for all, or one per axis.")
    for one in each:
        if one not in get_args(Layout):
            raise ValueError(f"unknown layout {one!r}; choose from {', '.join(get_args(Layout))}.")
    return each


def shortened(per_axis: tuple[Choice, ...]) -> Choice | tuple[Choice, ...]:
    """One choice where all axes have the same."""
    return per_axis[0] if len(set(per_axis)) == 1 else per_axis


def unit_positions(n: int, layout: Layout) -> Tensor:
    """The n sample positions ξ_j of a layout on [0, 1], in float64."""
    j = torch.arange(n, dtype=torch.float64)
    if layout == "periodic":
        return j / n
    if layout == "inclusive":
        return j / (n - 1)
    return (j + 0.5) / n
