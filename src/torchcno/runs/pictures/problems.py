"""What a problem looks like: inputs and outputs, in and out of distribution.

The paper's SM, "Depiction of the Datasets".
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, FigureBase, SubFigure

from torchcno.data.fields import Fields
from torchcno.data.samples import Samples
from torchcno.problems.airfoil import Airfoil, CMesh, c_mesh, rae2822
from torchcno.problems.problem import Problem
from torchcno.runs.pictures.drawing import COLOURS, HEADINGS, INK, color_scale, middle_plane


def draw_problem(
    problem: Problem, *, samples: int = 3, resolution: int | None = None, seed: int = 0
) -> Figure:
    """The first `samples` of the test and the ood split: inputs, and below them their outputs."""
    heights = [0.8 + 2.1 * sum(problem.channels)]
    if isinstance(problem, Airfoil):
        heights.append(4.0)  # the mesh on which flows are computed
    figure = Figure(figsize=(1.0 + 4.6 * samples, sum(heights)), layout="constrained")
    equation = (inspect.getdoc(type(problem)) or problem.name).split("\n\n")[0]
    figure.suptitle(" ".join(equation.split()))
    grid = figure.add_gridspec(len(heights), len(HEADINGS), height_ratios=heights)
    for column, (split, heading) in enumerate(HEADINGS.items()):
        half = figure.add_subfigure(grid[0, column])
        changed = problem.ood if split == "ood" else {}
        constants = ", ".join(f"{name} = {value}" for name, value in changed.items())
        title = f"{heading.capitalize()} ({constants})" if constants else heading.capitalize()
        half.suptitle(title, fontsize="medium")
        shown = Samples.of(problem, split, resolution, seed)
        inputs, outputs = shown.make(range(samples))
        draw_fields(half, problem, Fields(inputs, outputs, shown.grid))
    if isinstance(problem, Airfoil):
        mesh = c_mesh(rae2822(), problem.mesh)  # around the airfoil that is perturbed
        draw_mesh(figure.add_subfigure(grid[1, :]), mesh, views_of(mesh))
    return figure


def draw_fields(figure: SubFigure, problem: Problem, fields: Fields) -> None:
    """A column a sample, a row a channel, one colour scale a row."""
    inputs, outputs = fields.inputs, fields.outputs
    mask = problem.mask(inputs)
    if mask is not None:
        outputs = outputs.where(mask.bool(), float("nan"))
    rows = [
        (label if values.shape[1] == 1 else f"{label}, channel {i}", channel.numpy())
        for label, values in ((problem.input_label, inputs), (problem.output_label, outputs))
        for i, channel in enumerate(values.unbind(1))
    ]
    (bottom, top), (left, right) = ((0.0, 1.0), *fields.grid.extent)[-2:]
    axes = figure.subplots(len(rows), len(fields), squeeze=False)
    for row, (label, channel) in zip(axes, rows, strict=True):
        low, high, colors = color_scale(channel)
        for ax, field in zip(row, channel, strict=True):
            ax.set(xticks=[])
            if field.ndim == 1:
                ax.plot(fields.grid.axis(0), field, color=COLOURS[1])
                margin = 0.05 * float(channel.max() - channel.min())
                ax.set_ylim(float(channel.min()) - margin, float(channel.max()) + margin)
                continue
            ax.imshow(
                middle_plane(torch.from_numpy(field)).numpy(),
                origin="lower",
                extent=(left, right, bottom, top),
                vmin=low,
                vmax=high,
                cmap=colors,
            )
            ax.set(yticks=[])
        row[0].set_ylabel(label)
        if row[0].images:
            figure.colorbar(row[0].images[0], ax=list(row), shrink=0.9)


@dataclass(frozen=True)
class View:
    """A square part of the plane."""

    title: str
    centre: tuple[float, float]  # x, y
    half_width: float


def views_of(mesh: CMesh) -> tuple[View, ...]:
    """The whole mesh, and the places where its cells are smallest."""
    x, y = mesh.nodes[0]
    middle = (0.5 * (x.min() + x.max()).item(), 0.5 * (y.min() + y.max()).item())
    half_width = 0.52 * max(x.max() - x.min(), y.max() - y.min()).item()
    rows, columns = x.shape
    return (
        View(f"mesh of {columns} × {rows} nodes", middle, half_width),
        View("the airfoil", (0.5, 0.0), 0.8),
        View("nose", (0.02, 0.0), 0.05),
        View("trailing edge", (1.0, 0.0), 0.07),
    )


def draw_mesh(figure: FigureBase, mesh: CMesh, views: Sequence[View]) -> None:
    """The lines of the first mesh of a batch, the innermost in colour, in a row of views."""
    nodes = mesh.nodes[0].movedim(0, -1).cpu().numpy()
    lines = [*nodes, *nodes.swapaxes(0, 1)]
    axes_of = figure.subplots(1, len(views))
    axes_of[0].set_ylabel("y")
    for axes, view in zip(axes_of, views, strict=True):
        axes.add_collection(LineCollection(lines, colors=INK, linewidths=0.3))
        axes.plot(*nodes[0].T, color=COLOURS[0], lw=1)
        across, up = ((c - view.half_width, c + view.half_width) for c in view.centre)
        axes.set(title=view.title, xlim=across, ylim=up, aspect="equal", xlabel="x")
        axes.spines[["top", "right"]].set_visible(False)
