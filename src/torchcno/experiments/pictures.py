"""Pictures of fields and of training, for pages and reports.

Backgrounds are transparent and lines grey, so that a picture suits light pages and dark ones.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

INK = "#808080"
STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Panel:
    """One field of a picture."""

    title: str
    field: Tensor  # (y, x)
    like: Tensor | None = None  # the field whose colours are used, where two shall compare
    error: bool = False  # a magnitude, drawn from zero


def field_rows(rows: Sequence[Sequence[Panel | None]]) -> Figure:
    """Fields beside and below one another, each with its colour bar; None leaves a gap."""
    with rc_context(STYLE):
        figure = Figure(figsize=(2.75 * len(rows[0]), 2.35 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
        for axes, panel in zip(grid.flat, [p for row in rows for p in row], strict=True):
            if panel is None:
                axes.set_axis_off()
            else:
                _draw(axes, panel)
        return figure


def _draw(axes: Axes, panel: Panel) -> None:
    like = panel.field if panel.like is None else panel.like
    low, high = float(like.min()), float(like.max())
    if panel.error:
        colours, low = "magma", 0.0
    elif low < 0 < high:  # signed fields: zero is the middle of the colours
        colours, high = "RdBu_r", max(-low, high)
        low = -high
    else:
        colours = "viridis"
    image = axes.imshow(
        panel.field.numpy(), origin="lower", cmap=colours, vmin=low, vmax=high, extent=(0, 1, 0, 1)
    )
    axes.set(title=panel.title, xticks=[], yticks=[])
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]
    bar.locator = MaxNLocator(4)
    bar.outline.set_visible(False)
    bar.update_ticks()


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], x_label: str, y_label: str
) -> Figure:
    """Named lines of (x, y) on a logarithmic y axis."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.5, 2.8), layout="constrained")
        axes = figure.subplots()
        for (name, (x, y)), colour in zip(lines.items(), ("#4c8bf5", "#e8710a"), strict=False):
            axes.semilogy(np.asarray(x), np.asarray(y), label=name, color=colour, linewidth=1.6)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.grid(alpha=0.25, which="both")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend()
        return figure


def png(figure: Figure) -> bytes:
    """The picture as a PNG file with a transparent background."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, transparent=True)
    return buffer.getvalue()


def data_uri(figure: Figure) -> str:
    """The picture as an address that holds it whole, for pages of one file."""
    return "data:image/png;base64," + base64.b64encode(png(figure)).decode()
