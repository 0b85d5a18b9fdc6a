"""The figures of the paper, drawn from numbers and small fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from torchcno.paper.published import PowerLaw
from torchcno.runs.evidence import Examples
from torchcno.runs.pictures.drawing import (
    COLOURS,
    INK,
    STYLE,
    Panel,
    field_rows,
    panels,
    strokes,
    tidy,
)


def draw_distributions(errors: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Histograms of the relative L1 error over samples, a panel a split, a colour a model.

    Medians are lines. Further presets of a model are outlines, so that both are seen.
    """
    with rc_context(STYLE):
        figure, axes_of = panels(len(errors))
        for axes, (title, models) in zip(axes_of, errors.items(), strict=True):
            percents = {name: 100 * values for name, values in models.items()}
            low = min((p.min() for p in percents.values()), default=0.1)
            high = max((p.max() for p in percents.values()), default=1.0)
            bins = np.geomspace(low, high * 1.001, 41).tolist()
            for name, stroke in strokes(percents).items():
                look: Any = {"histtype": "step", "lw": 1.4, **vars(stroke)}
                if stroke.plain:
                    look = {"color": stroke.color, "alpha": 0.55}
                axes.hist(percents[name], bins, label=name, **look)
                axes.axvline(float(np.median(percents[name])), lw=1.2, **vars(stroke))
            axes.set(title=title, xlabel="relative $L^1$ error, percent", xscale="log")
            tidy(axes, legend=False)
        axes_of[0].set_ylabel("samples")
        # Above both: no corner of a histogram is empty for sure.
        handles, names = axes_of[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        return figure


def draw_examples(
    examples: Mapping[str, Mapping[str, Examples]], errors: Mapping[str, Mapping[str, float]]
) -> Figure:
    """The first sample of each split: input, truth and predictions, and below them the errors.

    `errors` are the sample's relative ones, which stand above their fields.
    """
    rows: list[list[Panel | None]] = []
    for split, models in examples.items():
        first = next(iter(models.values()))
        u, v = first.input[0, 0], first.output[0, 0]
        predictions = [Panel(name, one.prediction[0, 0], like=v) for name, one in models.items()]
        rows.append([Panel(f"{split}: input", u), Panel("truth", v), *predictions])
        # Each on its own scale: on one for all, the better models would be black.
        below = [
            Panel(
                _error_title(errors[split].get(name)),
                (one.prediction - one.output)[0, 0].abs(),
                error=True,
            )
            for name, one in models.items()
        ]
        rows.append([None, None, *below])
    return field_rows(rows, width=1.9)


def _error_title(relative: float | None) -> str:
    return "|error|" if relative is None else f"|error|: {100 * relative:.2f} %"


def draw_failures(models: Mapping[str, Examples]) -> Figure:
    """The truth of a sample and, in its colours, what models that do not generalise make of it."""
    first = next(iter(models.values()))
    truth = first.output[0, 0]
    predictions = [Panel(name, one.prediction[0, 0], like=truth) for name, one in models.items()]
    return field_rows(
        [[Panel("input", first.input[0, 0]), Panel("truth", truth), *predictions]], 2.3
    )


def draw_data(splits: Mapping[str, Examples]) -> Figure:
    """Samples of a problem: inputs above, their outputs below."""
    pairs = [
        (f"{split}: {name}", field[0])
        for name in ("input", "output")
        for split, some in splits.items()
        for field in getattr(some, name)
    ]
    panels: list[Panel | None] = [Panel(title, field) for title, field in pairs]
    return field_rows([panels[: len(panels) // 2], panels[len(panels) // 2 :]], width=2.3)


@dataclass(frozen=True)
class Scaling:
    """Errors in percent against the number of training samples, and the law fitted to them."""

    samples: Sequence[int]
    errors: Sequence[float]

    @property
    def law(self) -> PowerLaw | None:
        """None where two points are not there yet."""
        return PowerLaw.fit(self.samples, self.errors) if len(self.samples) > 1 else None


def draw_scaling(series: Mapping[str, Scaling], published: Mapping[str, PowerLaw]) -> Figure:
    """Measured errors with their fitted laws, and the published laws dotted."""
    with rc_context(STYLE):
        figure, (axes,) = panels(1, width=6.2)
        chosen = strokes(dict.fromkeys([*series, *published]))
        reach = np.geomspace(64, 1024, 20)
        for name, one in series.items():
            stroke = chosen[name]
            label = name if one.law is None else f"{name}, r = {one.law.rate:.2f}"
            look: Any = {"color": stroke.color, "mfc": stroke.color if stroke.plain else "none"}
            axes.loglog(one.samples, one.errors, "o", ms=5, label=label, **look)
            if one.law is not None:
                inside = np.geomspace(min(one.samples), max(one.samples), 20)
                axes.loglog(inside, [one.law(n) for n in inside], lw=1.4, **vars(stroke))
        for name, law in published.items():
            label = f"{name} published, r = {law.rate:.2f}"
            axes.loglog(reach, [law(n) for n in reach], ":", color=chosen[name].color, label=label)
        axes.set(xlabel="training samples N", ylabel="test error, percent")
        tidy(axes)
        return figure


def draw_modes(cases: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The error of a truth cut to so many modes: how fine a grid a solver needs."""
    with rc_context(STYLE):
        figure, axes_of = panels(len(cases), width=3.3)
        for axes, (name, case) in zip(axes_of, cases.items(), strict=True):
            curves, published = case["curves"], case["published"]
            for statistic, colour in zip(("median", "mean", "largest"), COLOURS, strict=False):
                values = 100 * np.array(curves[statistic])
                axes.semilogy(curves["modes"], values, color=colour, label=statistic)
            axes.plot(
                published["modes"], 100 * published["error"], "*", ms=9, color=INK,
                label="published, about",
            )  # fmt: skip
            axes.set(title=name, xlabel="modes kept an axis", ylim=(1e-4, None))
            tidy(axes)
        axes_of[0].set_ylabel("relative $L^1$ error, percent")
        return figure
