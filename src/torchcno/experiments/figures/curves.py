"""The figures of the paper, drawn from numbers and small fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from torchcno.evaluation.spectra import NO_TRUTH
from torchcno.experiments.evidence import Examples
from torchcno.experiments.figures.pictures import (
    COLOURS,
    INK,
    SHADES,
    STYLE,
    Panel,
    Stroke,
    field_rows,
    panels,
    short_name,
    strokes,
    tidy,
)
from torchcno.experiments.measurements import Spectra
from torchcno.experiments.paper import PowerLaw

DECADES = 6  # of amplitude that a picture of a spectrum shows, and twice as many of energy
CENTRAL = 16  # the highest wavenumber of the central frequencies


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


def timed_device(models: Mapping[str, Sequence[Size]]) -> str:
    """The device of most runs, the only one whose times are compared; none: none was kept."""
    devices = [size.device for sizes in models.values() for size in sizes if size.device]
    return max(sorted(set(devices)), key=devices.count, default="")


def draw_efficiency(models: Mapping[str, Sequence[Size]]) -> Figure:
    """Validation error against size, and against the time of an epoch on one device.

    A point is a network; the best of each model has a ring, the small CNO a square.
    """
    device = timed_device(models)
    with rc_context(STYLE):
        figure, (by_size, by_time) = panels(2)
        by_time.sharey(by_size)
        for name, stroke in strokes(models).items():
            sizes = models[name]
            best = min(sizes, key=lambda size: size.error)
            for axes, field in ((by_size, "parameters"), (by_time, "seconds_per_epoch")):
                there = sizes if axes is by_size else [s for s in sizes if s.device == device]
                _scatter(axes, there, field, {"marker": "o", "ms": 5, "label": name}, stroke)
                ring = {"marker": "o", "ms": 11, "mfc": "none", "label": f"{name}, the best"}
                _scatter(axes, [s for s in there if s is best], field, ring, stroke)
                square = {"marker": "s", "ms": 11, "mfc": "none", "label": f"{name}, the small one"}
                _scatter(axes, [s for s in there if s.small], field, square, stroke)
        by_size.set(xlabel="parameters", ylabel="validation error, percent")
        by_time.set(xlabel=", ".join(filter(None, ("seconds an epoch", device))))
        tidy(by_size)
        tidy(by_time, legend=False)
        return figure


def _scatter(
    axes: Axes, sizes: Sequence[Size], field: str, look: dict[str, Any], stroke: Stroke
) -> None:
    if sizes:
        x, y = [getattr(size, field) for size in sizes], [size.error for size in sizes]
        axes.loglog(x, y, color=stroke.color, ls="none", **look)


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


def draw_spectra(models: Mapping[str, Spectra]) -> Figure:
    """Averaged logarithmic amplitudes of truth and predictions (figure 2, left).

    Below them the energy by shells and the error by octaves.
    """
    truth = next(iter(models.values()))
    amplitudes = {
        "truth": truth.amplitude["truth"],
        **{name: one.amplitude["prediction"] for name, one in models.items()},
    }
    with rc_context(STYLE):
        panel = 8 / len(amplitudes)
        figure = Figure(figsize=(9, 3.9 + panel), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(panel + 0.7, 3.2))[
            :, 0
        ]
        _draw_amplitudes(above, amplitudes, truth.wavenumbers)
        radial, bands = below.subplots(1, 2)
        _draw_energy(radial, "truth", truth.energy["truth"], Stroke(INK), width=3)
        for name, stroke in strokes(models).items():
            one = models[name]
            _draw_energy(radial, name, one.energy["prediction"], stroke, width=1.4)
            shown = one.band_errors < NO_TRUTH
            labels = [f"{a}–{b - 1}" if b - a > 1 else f"{a}" for a, b in one.band_edges[shown]]
            bands.semilogy(
                labels,
                one.band_errors[shown],
                marker="o",
                ms=4,
                label=short_name(name),
                **vars(stroke),
            )
        bands.axhline(1, color=INK, ls=":", lw=1)  # as wrong as zero
        radial.set(xlabel="wavenumber |k|", ylabel="energy")
        _end_at_rounding(radial)
        bands.set(xlabel="largest wavenumber of the mode", ylabel="relative error in the band")
        for axes in (radial, bands):
            tidy(axes)
        return figure


def draw_truths(problems: Mapping[str, Spectra]) -> Figure:
    """The central frequencies of the truths of several problems: which has many scales."""
    amplitudes = {}
    for name, one in problems.items():
        central = np.abs(one.wavenumbers) <= CENTRAL
        truth = one.amplitude["truth"][np.ix_(central, central)]
        amplitudes[name] = truth / truth.max()
    with rc_context(STYLE):
        figure = Figure(figsize=(4 * len(amplitudes), 3.2), layout="constrained")
        k = next(iter(problems.values())).wavenumbers
        _draw_amplitudes(figure, amplitudes, k[np.abs(k) <= CENTRAL])
        return figure


def _draw_amplitudes(
    figure: Figure | SubFigure,
    amplitudes: Mapping[str, NDArray[np.float64]],
    k: NDArray[np.float64],
) -> None:
    pictures = {name: np.log10(np.maximum(a, 1e-30)) for name, a in amplitudes.items()}
    high = max(picture.max() for picture in pictures.values())
    axes_of = figure.subplots(1, len(pictures), squeeze=False, sharey=True)[0]
    ends = (k[0] - 0.5, k[-1] + 0.5)
    for axes, (name, picture) in zip(axes_of, pictures.items(), strict=True):
        image = axes.imshow(
            picture,
            origin="lower",
            extent=(*ends, *ends),
            cmap=colormaps["magma"].resampled(SHADES),
            vmin=high - DECADES,
            vmax=high,
        )
        axes.set(title=short_name(name), xlabel="$k_x$")
    axes_of[0].set_ylabel("$k_y$")
    figure.colorbar(image, ax=list(axes_of), shrink=0.85, label=r"$\log_{10}$ mean amplitude")


def _draw_energy(
    axes: Axes, name: str, energy: NDArray[np.float64], stroke: Stroke, width: float
) -> None:
    kappa = np.arange(len(energy))
    shown = (energy > 0) & (kappa > 0)
    axes.loglog(kappa[shown], energy[shown], lw=width, label=short_name(name), **vars(stroke))


def _end_at_rounding(axes: Axes) -> None:
    """Let a band-limited truth, which is rounding beyond its band, not squeeze the rest."""
    least = axes.dataLim.y1 * 10.0 ** (-2 * DECADES)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], least))
