"""Networks of many sizes: error against parameters and against time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from torchcno.runs.pictures.drawing import panels, strokes, styled, tidy


@dataclass(frozen=True)
class Size:
    """One network of an efficiency study."""

    parameters: int
    seconds_per_epoch: float
    error: float  # on validation, percent
    device: str = ""  # that it was trained on; none: not kept
    small: bool = False  # the paper's small-scale yet efficient CNO

    @classmethod
    def of(cls, result: Mapping[str, Any], small: bool = False) -> "Size":
        """The network of a run's result."""
        error = 100 * result["best_validation_error"]
        device = result["device"]
        return cls(result["parameters"], result["seconds_per_epoch"], error, device, small)


@styled
def draw_efficiency(models: Mapping[str, Sequence[Size]]) -> Figure:
    """Validation error against size, and against the time of an epoch on one device.

    A point is a network; the best of each model has a ring, the small CNO a square.
    """
    # Times are compared on the device of most runs alone.
    devices = [size.device for sizes in models.values() for size in sizes if size.device]
    device = max(sorted(set(devices)), key=devices.count, default="")
    figure, (by_size, by_time) = panels(2)
    by_time.sharey(by_size)
    for name, stroke in strokes(models).items():
        sizes = models[name]
        best = min(sizes, key=lambda size: size.error)
        looks: list[tuple[Sequence[Size], dict[str, Any]]] = [
            (sizes, {"marker": "o", "ms": 5, "label": name}),
            ([best], {"marker": "o", "ms": 11, "mfc": "none", "label": f"{name}, the best"}),
            ([s for s in sizes if s.small],
             {"marker": "s", "ms": 11, "mfc": "none", "label": f"{name}, the small one"}),
        ]  # fmt: skip
        for axes, field in ((by_size, "parameters"), (by_time, "seconds_per_epoch")):
            for shown, look in looks:
                there = [s for s in shown if axes is by_size or s.device == device]
                if there:
                    x, y = [getattr(s, field) for s in there], [s.error for s in there]
                    axes.loglog(x, y, color=stroke["color"], ls="none", **look)
    by_size.set(xlabel="parameters", ylabel="validation error, percent")
    by_time.set(xlabel=", ".join(filter(None, ("seconds an epoch", device))))
    tidy(by_size)
    tidy(by_time, legend=False)
    return figure
