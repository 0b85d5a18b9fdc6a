"""The mesh around an airfoil, whole and from near."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.collections import LineCollection
from matplotlib.figure import FigureBase

from torchcno.problems.airfoil import CMesh
from torchcno.runs.pictures.drawing import COLOURS, INK


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
