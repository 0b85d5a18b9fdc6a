"""Figures of the paper that show its method and its data, and need no results."""

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure

from torchcno.data.samples import Samples
from torchcno.operators.filters import WindowedSinc, kaiser_sinc
from torchcno.paper.figures.picture import Maker, Picture
from torchcno.paper.published import HALF_WIDTHS
from torchcno.problems import PROBLEMS
from torchcno.problems.airfoil import c_mesh, rae2822
from torchcno.runs.pictures.drawing import COLOURS, INK, panels, styled, tidy
from torchcno.runs.pictures.problems import View, draw_mesh

RATE = 128  # s of figure 4
FACTOR = 2  # of its upsampling
FIGURE_22 = (View("", (0.5, 0.0), 1.25), View("", (0.15, 0.0), 0.25))


@styled
def draw_filters() -> Figure:
    """Figure 4: the designed filters in frequency and in space, at s = 128 and N_tap = 12."""
    figure, (frequency, impulse) = panels(2)
    for half_width, colour in zip(HALF_WIDTHS, COLOURS, strict=True):
        h = taps_of(WindowedSinc(half_width=half_width))
        w, response = frequency_response(h)
        label = f"$c_h$ = {half_width:g}"
        frequency.plot(w, 20 * np.log10(response + 1e-6), color=colour, lw=1.4, label=label)
        impulse.plot(np.arange(len(h)), h, "o-", ms=3, color=colour, lw=1.1, label=label)
    frequency.axvline(RATE / 2, color=INK, ls=":", lw=1)
    frequency.set(xlabel="frequency", ylabel="magnitude, dB", ylim=(-80, 5))
    impulse.set(xlabel="tap", ylabel="h")
    tidy(frequency, legend=False)
    tidy(impulse)
    return figure


def taps_of(filter: WindowedSinc) -> np.ndarray:
    """The taps of an upsampling by `FACTOR`, of sum 1."""
    n = filter.taps * FACTOR
    offsets = torch.arange(n, dtype=torch.float64) - (n - 1) / 2
    h = kaiser_sinc(offsets, FACTOR, filter)
    return (h / h.sum()).numpy()


def frequency_response(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|Σ_j h_j e^{−2πi j w/T}| up to the Nyquist frequency T/2 of the rate T = `FACTOR` s."""
    points = 1024
    return np.fft.rfftfreq(points, 1 / (FACTOR * RATE)), np.abs(np.fft.rfft(h, points))


@styled
def draw_cuts() -> Figure:
    """Figure 13: a disk before and after its transport, and both along the row through it."""
    samples = Samples.of(PROBLEMS["discontinuous-transport"](), "test")
    pair = [field[0, 0].numpy() for field in samples.make([0])]
    x = samples.grid.axis(1).numpy()
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    *pictures, cut = figure.subplots(1, 3, width_ratios=(1, 1, 1.4))
    for axes, title, field, colour in zip(pictures, ("u(0)", "u(T)"), pair, COLOURS, strict=False):
        axes.imshow(field, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
        row = int(field.sum(1).argmax())  # the longest chord
        axes.axhline(x[row], color=colour, lw=1.2)
        axes.set(title=title, xticks=[], yticks=[])
        cut.plot(x, field[row], ".-", ms=3, lw=1.1, color=colour, label=title)
    cut.set(xlabel="x", title="along the lines")
    tidy(cut)
    return figure


@styled
def draw_figure_22() -> Figure:
    """Figure 22: the mesh of the flow past RAE2822, as far as data reach, and near the airfoil."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    draw_mesh(figure, c_mesh(rae2822()), FIGURE_22)
    return figure


# There whatever the results: number, title, and what draws it.
DEPICTIONS: dict[str, tuple[int, str, Callable[[], Figure]]] = {
    "filters": (4, "Filters of the CNO, by their half-width c_h", draw_filters),
    "cuts": (13, "Discontinuous transport: a sample, and cuts through its disks", draw_cuts),
    "mesh": (22, "Compressible Euler: the mesh of 243 × 43 nodes about RAE2822", draw_figure_22),
}
FIGURES: dict[str, Maker] = {
    kind: lambda results, shown=shown: iter([Picture.numbered(*shown)])  # type: ignore[misc]
    for kind, shown in DEPICTIONS.items()
}
