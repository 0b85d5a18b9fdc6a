"""The figures of the paper. A new one is a function and its entry in the `FIGURES` of its file."""

from dataclasses import replace

from torchcno.paper.figures import curves, depictions, samples
from torchcno.paper.figures.picture import Picture
from torchcno.paper.results import Results

FIGURES = {**curves.FIGURES, **samples.FIGURES, **depictions.FIGURES}


def all_pictures(results: Results) -> list[Picture]:
    """Every figure of the paper but the drawing of the architecture, and ours after them."""
    found = (replace(p, kind=kind) for kind, make in FIGURES.items() for p in make(results))
    return sorted(found, key=lambda picture: picture.place)
