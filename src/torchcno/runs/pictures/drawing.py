"""Pictures of fields and of training, for pages and reports.

Backgrounds are transparent and lines grey, so that a picture suits light pages and dark ones: the
contrast of `INK` is 4.5:1 to white and to black, which no grey has on less than these.
"""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from torchcno.disk import write_atomically

HEADINGS = {"test": "in distribution", "ood": "out of distribution"}  # of splits
INK = "#767676"
SHADES = 64  # of a colour scale: more than the eye tells apart
styled = rc_context(fname=Path(__file__).with_name("torchcno.mplstyle"))  # makers of figures

# One colour a model, wherever it is drawn; its presets and sizes differ in their lines.
MODEL_COLOURS = {
    "CNO": "#4c8bf5", "FNO": "#e8710a", "UNet": "#2e9e5b", "GT": "#a64ad0", "ResNet": "#d64545",
    "DON": "#8f9a1f", "FFNN": "#7088a0",
}  # fmt: skip
MODEL_LINES = {"{}": "-", "{}, best": "--", "small {}": "-."}
# What is no model has other colours.
COLOURS = ("#c9a400", "#1aa5b8", "#d0458b", "#8a6d3b", "#6b7bd6")
WIDEST = 30  # letters of a name


Stroke = dict[str, Any]  # how the line of one name is drawn: `color` and `linestyle`
MODEL_STROKES: dict[str, Stroke] = {
    form.format(model): {"color": colour, "linestyle": line}
    for model, colour in MODEL_COLOURS.items()
    for form, line in MODEL_LINES.items()
}


def strokes(names: Iterable[str]) -> dict[str, Stroke]:
    """A stroke for every name: that of its model, or one of those that are left."""
    others = product(MODEL_LINES.values(), COLOURS)
    rest = cycle({"color": colour, "linestyle": line} for line, colour in others)
    return {name: MODEL_STROKES.get(name) or next(rest) for name in names}


def line_looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """How the line of each name is drawn where its points are marked."""
    return {
        name: {"marker": "o", "ms": 4, "label": short_name(name), **stroke}
        for name, stroke in strokes(names).items()
    }


@dataclass(frozen=True)
class Panel:
    """One field of a picture."""

    title: str
    field: Tensor  # (x), (y, x) or (z, y, x): a line, a plane, or the plane in the middle
    like: Tensor | None = None  # the field whose colours are used, where two shall compare
    error: bool = False  # a magnitude, drawn from zero


@styled
def field_rows(rows: Sequence[Sequence[Panel | None]], width: float = 2.75) -> Figure:
    """Fields beside and below one another, each with its colour bar; None leaves a gap.

    `width` in inches is a panel's, with its bar.
    """
    size = (width * len(rows[0]), (width - 0.4) * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    for axes, panel in zip(grid.flat, [p for row in rows for p in row], strict=True):
        if panel is None:
            axes.set_axis_off()
        else:
            _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    like = panel.field if panel.like is None else panel.like
    low, high, colours = color_scale(like.numpy())
    if panel.error:
        low, colours = 0.0, "magma"
    if panel.field.ndim == 1:
        _draw_line(axes, panel, low, high)
        return
    image = axes.imshow(
        middle_plane(panel.field).numpy(),
        origin="lower",
        interpolation="nearest",  # values as they are; blends would need colours of their own
        cmap=colormaps[colours].resampled(SHADES),
        vmin=low,
        vmax=high,
        extent=(0, 1, 0, 1),
    )
    axes.set(title=panel.title, xticks=[], yticks=[])
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]
    bar.locator = MaxNLocator(4)
    bar.outline.set_visible(False)
    bar.update_ticks()


def _draw_line(axes: Axes, panel: Panel, low: float, high: float) -> None:
    room = 0.05 * (high - low) or 1.0
    axes.plot(np.linspace(0, 1, len(panel.field)), panel.field.numpy(), color=COLOURS[1], lw=1.4)
    axes.set(title=panel.title, xticks=[], ylim=(low - room, high + room))
    tidy(axes)


def middle_plane(field: Tensor) -> Tensor:
    """Of three dimensions the plane in the middle of the first axis; other fields as they are."""
    return field[len(field) // 2] if field.ndim == 3 else field


def color_scale(fields: NDArray[np.floating[Any]]) -> tuple[float, float, str]:
    """The limits and the colour map: diverging about zero where fields take both signs."""
    low, high = float(np.nanmin(fields)), float(np.nanmax(fields))
    smaller, larger = sorted((abs(low), abs(high)))
    if low < 0 < high and smaller > 0.05 * larger:  # a slight undershoot is no second sign
        return -larger, larger, "RdBu_r"
    return low, high, "viridis"


@styled
def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], x_label: str, y_label: str
) -> Figure:
    """Named lines of (x, y) on a logarithmic y axis."""
    figure, (axes,) = panels(1, width=6.5, height=2.8)
    for name, stroke in strokes(lines).items():
        axes.semilogy(*map(np.asarray, lines[name]), label=name, lw=1.6, **stroke)
    axes.set(xlabel=x_label, ylabel=y_label)
    tidy(axes)
    return figure


def panels(count: int, width: float = 4.5, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure of axes beside each other, each so many inches wide."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def tidy(axes: Axes, legend: bool = True) -> None:
    """A faint grid, plain numbers on logarithmic axes, and a legend where something is named."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            _label_decades(axis)
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend()


def _label_decades(axis: Axis) -> None:
    """Three labels or more, although the axis may show less than a decade."""
    low, high = axis.get_view_interval()
    within = ((1,), (1, 2, 5), (1, 2, 3, 5), range(1, 10))
    for locator in (LogLocator(subs=subs) for subs in within):
        if sum(low <= tick <= high for tick in locator.tick_values(low, high)) >= 3:
            axis.set_major_locator(locator)
            break
    else:
        axis.set_major_locator(MaxNLocator(4))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e5 else f"{x:g}")
    axis.set_minor_formatter(NullFormatter())


def short_name(name: str) -> str:
    """The end of a long name: a path as wide as its panel would leave no room for the panel."""
    return name if len(name) <= WIDEST else "…" + name[1 - WIDEST :]


def png(figure: Figure, dpi: int = 130) -> bytes:
    """The picture as a PNG file with a transparent background."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, transparent=True)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """The picture as a file of the kind that the name ends with, never half of it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lower()[1:], dpi=150)
    write_atomically(path, buffer.getvalue())


def data_uri(figure: Figure) -> str:
    """The picture as an address that holds it whole, for pages of one file."""
    return "data:image/png;base64," + base64.b64encode(few_colours(png(figure, dpi=120))).decode()


def few_colours(picture: bytes) -> bytes:
    """A PNG file with 256 colours: a quarter of the size, or less.

    First those that it has most of, which are the shades of its fields; then again and again the
    one farthest from all that are kept, so that no line or letter changes its colour.
    """
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA"))
    pixels = np.where(pixels[..., 3:] == 0, np.uint8(0), pixels)  # unseen colours are one
    packed, index, counts = np.unique(
        np.ascontiguousarray(pixels).view(np.uint32).ravel(),
        return_inverse=True,
        return_counts=True,
    )
    every = packed.view(np.uint8).reshape(-1, 4)
    points = every.astype(np.int64)
    kept = list(np.argsort(-counts, kind="stable")[:160])
    distances = ((points[:, None] - points[kept]) ** 2).sum(-1)
    nearest, least = distances.argmin(1), distances.min(1)
    while len(kept) < 256 and least.max() > 0:
        kept.append(least.argmax())
        distance = ((points - points[kept[-1]]) ** 2).sum(-1)
        nearest = np.where(distance < least, len(kept) - 1, nearest)
        least = np.minimum(distance, least)
    image = Image.fromarray(nearest[index].reshape(pixels.shape[:2]).astype(np.uint8))
    image.putpalette(every[kept, :3].tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "png", compress_level=9, transparency=every[kept, 3].tobytes())
    return buffer.getvalue()
