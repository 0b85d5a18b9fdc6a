"""What a problem looks like: inputs and outputs, in and out of distribution.

The paper's SM, "Depiction of the Datasets".
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray
from torch import Tensor

from torchcno.data.dataset import Fields
from torchcno.data.samples import Samples
from torchcno.problems.airfoil import Airfoil, c_mesh, rae2822
from torchcno.problems.problem import Problem
from torchcno.runs.pictures.drawing import HEADINGS, color_scale
from torchcno.runs.pictures.meshes import draw_mesh, views_of


def draw_airfoil_mesh(figure: SubFigure, problem: Airfoil) -> None:
    """The mesh on which flows are computed, around the airfoil that is perturbed."""
    mesh = c_mesh(rae2822(), problem.mesh)
    draw_mesh(figure, mesh, views_of(mesh))


# What is drawn below the samples of a problem, by its name.
BELOW: Mapping[str, Callable[[SubFigure, Any], None]] = {"airfoil": draw_airfoil_mesh}
HEIGHT_BELOW = 4.0  # inches


def draw_problem(
    problem: Problem, *, samples: int = 3, resolution: int | None = None, seed: int = 0
) -> Figure:
    """The first `samples` of the test and the ood split: inputs, and below them their outputs."""
    below = [draw for name, draw in BELOW.items() if name == problem.name]
    heights = [0.8 + 2.1 * sum(problem.channels), *(HEIGHT_BELOW for _ in below)]
    figure = Figure(figsize=(1.0 + 4.6 * samples, sum(heights)), layout="constrained")
    equation = (inspect.getdoc(type(problem)) or problem.name).split("\n\n")[0]
    figure.suptitle(" ".join(equation.split()))
    grid = figure.add_gridspec(len(heights), len(HEADINGS), height_ratios=heights)
    for column, (split, heading) in enumerate(HEADINGS.items()):
        half = figure.add_subfigure(grid[0, column])
        half.suptitle(f"{heading.capitalize()}{differences(problem, split)}", fontsize="medium")
        shown = Samples.of(problem, split, resolution, seed)
        draw_fields(half, problem, Fields(*shown.make(range(samples)), shown.grid))
    for row, draw in enumerate(below, start=1):
        draw(figure.add_subfigure(grid[row, :]), problem)
    return figure


def differences(problem: Problem, split: str) -> str:
    """The constants that a split changes, in brackets."""
    changed = problem.ood if split == "ood" else {}
    constants = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return f" ({constants})" if constants else ""


def draw_fields(figure: SubFigure, problem: Problem, fields: Fields) -> None:
    """A column a sample, a row a channel, one colour scale a row."""
    inputs, outputs = fields.inputs, fields.outputs
    mask = problem.mask(inputs)
    if mask is not None:
        outputs = outputs.where(mask.bool(), float("nan"))
    rows = [
        *label_channels(problem.input_label, inputs),
        *label_channels(problem.output_label, outputs),
    ]
    (bottom, top), (left, right) = fields.grid.extent
    axes = figure.subplots(len(rows), len(fields), squeeze=False)
    for row, (label, channel) in zip(axes, rows, strict=True):
        low, high, colors = color_scale(channel)
        for ax, field in zip(row, channel, strict=True):
            image = ax.imshow(
                field,
                origin="lower",
                extent=(left, right, bottom, top),
                vmin=low,
                vmax=high,
                cmap=colors,
            )
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(label)
        figure.colorbar(image, ax=list(row), shrink=0.9)


def label_channels(
    label: str, fields: Float[Tensor, "sample channel y x"]
) -> list[tuple[str, NDArray[np.float32]]]:
    """A label and (sample, y, x) a channel."""
    channels = fields.unbind(1)
    if len(channels) == 1:
        return [(label, channels[0].numpy())]
    return [(f"{label}, channel {i}", channel.numpy()) for i, channel in enumerate(channels)]
