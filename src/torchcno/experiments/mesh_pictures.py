"""The mesh around an airfoil, whole and from near."""

from dataclasses import dataclass

from matplotlib.figure import FigureBase

from torchcno.problems.airfoil import CMesh


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


def draw_mesh(figure: FigureBase, mesh: CMesh) -> None:
    """The lines of the first mesh of a batch, in a row of views."""
    x, y = mesh.nodes[0].cpu().numpy()
    views = views_of(mesh)
    for axes, view in zip(figure.subplots(1, len(views)), views, strict=True):
        axes.plot(x, y, color="0.4", lw=0.4)
        axes.plot(x.T, y.T, color="0.4", lw=0.4)
        across, up = ((c - view.half_width, c + view.half_width) for c in view.centre)
        axes.set(title=view.title, xlim=across, ylim=up, aspect="equal")
