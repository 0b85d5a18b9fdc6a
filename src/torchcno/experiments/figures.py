"""The figures of the paper, drawn from numbers and small fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from torchcno.evaluation.spectra import NO_TRUTH
from torchcno.experiments.evidence import Examples
from torchcno.experiments.measurements import Spectra
from torchcno.experiments.paper import PowerLaw
from torchcno.experiments.pictures import INK, SHADES, STYLE, Panel, field_rows

# One colour a model on the whole page; what is not named here has those that are left.
COLOURS = {
    "CNO": "#4c8bf5", "FNO": "#e8710a", "UNet": "#2e9e5b", "GT": "#a64ad0", "CNO, best": "#d0458b",
}  # fmt: skip
FURTHER = ("#c9a400", "#1aa5b8", "#8a6d3b", "#6b7bd6")
DECADES = 6  # of amplitude that a picture of a spectrum shows


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for every name."""
    rest = iter(FURTHER * (1 + len(names) // len(FURTHER)))
    return {name: COLOURS.get(name) or next(rest) for name in names}


def draw_distributions(errors: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Histograms of the relative L1 error over samples, a panel a split, a colour a model."""
    with rc_context(STYLE):
        figure, panels = _panels(len(errors))
        for axes, (title, models) in zip(panels, errors.items(), strict=True):
            percents = {name: 100 * values for name, values in models.items()}
            low = min((p.min() for p in percents.values()), default=0.1)
            high = max((p.max() for p in percents.values()), default=1.0)
            bins = np.geomspace(low, high * 1.001, 41).tolist()
            for name, colour in colours(list(percents)).items():
                values = percents[name]
                axes.hist(values, bins, color=colour, alpha=0.55, label=name)
                axes.axvline(float(np.median(values)), color=colour, lw=1.2)
            axes.set(title=title, xlabel="relative $L^1$ error, percent", xscale="log")
            _tidy(axes, legend=False)
        panels[0].set_ylabel("samples")
        # Above both: no corner of a histogram is empty for sure.
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), fontsize=8)
        return figure


def draw_examples(examples: Mapping[str, Mapping[str, Examples]]) -> Figure:
    """The first sample of each split: input, truth and predictions, and below them the errors."""
    rows: list[list[Panel | None]] = []
    for split, models in examples.items():
        first = next(iter(models.values()))
        u, v = first.input[0, 0], first.output[0, 0]
        errors = {name: (one.prediction - one.output)[0, 0].abs() for name, one in models.items()}
        predictions = [Panel(name, one.prediction[0, 0], like=v) for name, one in models.items()]
        rows.append([Panel(f"{split}: input", u), Panel("truth", v), *predictions])
        # Each on its own scale: on one for all, the better models would be black.
        below = [Panel("|error|", error, error=True) for error in errors.values()]
        rows.append([None, None, *below])
    return field_rows(rows, width=1.9)


def draw_failures(models: Mapping[str, Examples]) -> Figure:
    """The truth of a sample and what models that do not generalise make of it."""
    first = next(iter(models.values()))
    truth = first.output[0, 0]
    predictions = [Panel(name, one.prediction[0, 0]) for name, one in models.items()]
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
        figure, (axes,) = _panels(1, width=6.2)
        chosen = colours(list(dict.fromkeys([*series, *published])))
        reach = np.geomspace(64, 1024, 20)
        for name, one in series.items():
            label = name if one.law is None else f"{name}, r = {one.law.rate:.2f}"
            axes.loglog(one.samples, one.errors, "o", ms=5, color=chosen[name], label=label)
            if one.law is not None:
                inside = np.geomspace(min(one.samples), max(one.samples), 20)
                axes.loglog(inside, [one.law(n) for n in inside], "-", lw=1.4, color=chosen[name])
        for name, law in published.items():
            label = f"{name} published, r = {law.rate:.2f}"
            axes.loglog(reach, [law(n) for n in reach], ":", color=chosen[name], label=label)
        axes.set(xlabel="training samples N", ylabel="test error, percent")
        _tidy(axes)
        return figure


@dataclass(frozen=True)
class Size:
    """One network of an efficiency study."""

    parameters: int
    seconds_per_epoch: float
    error: float  # on validation, percent

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Size":
        """The network of a run's result."""
        error = 100 * result["best_validation_error"]
        return cls(result["parameters"], result["seconds_per_epoch"], error)


def draw_efficiency(models: Mapping[str, Sequence[Size]]) -> Figure:
    """Validation error against size and against the time of an epoch."""
    with rc_context(STYLE):
        figure, (by_size, by_time) = _panels(2)
        for name, colour in colours(list(models)).items():
            sizes = models[name]
            errors = [one.error for one in sizes]
            by_size.loglog([s.parameters for s in sizes], errors, "o", color=colour, label=name)
            by_time.loglog(
                [s.seconds_per_epoch for s in sizes], errors, "o", color=colour, label=name
            )
        by_size.set(xlabel="parameters", ylabel="validation error, percent")
        by_time.set(xlabel="seconds an epoch")
        for axes in (by_size, by_time):
            _tidy(axes)
        return figure


def draw_modes(cases: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The error of a truth cut to so many modes: how fine a grid a solver needs."""
    with rc_context(STYLE):
        figure, panels = _panels(len(cases), width=3.3)
        for axes, (name, case) in zip(panels, cases.items(), strict=True):
            curves, published = case["curves"], case["published"]
            for statistic, colour in zip(("median", "mean", "largest"), FURTHER, strict=False):
                values = 100 * np.array(curves[statistic])
                axes.semilogy(curves["modes"], values, color=colour, label=statistic)
            axes.plot(
                published["modes"], 100 * published["error"], "*", ms=9, color=INK,
                label="published, about",
            )  # fmt: skip
            axes.set(title=name, xlabel="modes kept an axis", ylim=(1e-4, None))
            _tidy(axes)
        panels[0].set_ylabel("relative $L^1$ error, percent")
        return figure


def draw_spectra(models: Mapping[str, Spectra]) -> Figure:
    """Amplitudes of truth and predictions; below, energy by shells and error by octaves."""
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
        _draw_energy(radial, "truth", truth.energy["truth"], INK, width=3)
        for name, colour in colours(list(models)).items():
            one = models[name]
            _draw_energy(radial, name, one.energy["prediction"], colour, width=1.4)
            shown = one.band_errors < NO_TRUTH
            labels = [f"{a}–{b - 1}" if b - a > 1 else f"{a}" for a, b in one.band_edges[shown]]
            bands.semilogy(labels, one.band_errors[shown], "o-", ms=4, color=colour, label=name)
        radial.set(xlabel="wavenumber |k|", ylabel="energy")
        bands.set(xlabel="largest wavenumber of the mode", ylabel="relative error in the band")
        for axes in (radial, bands):
            _tidy(axes)
        return figure


def draw_truths(problems: Mapping[str, Spectra], highest: int = 16) -> Figure:
    """The central frequencies of the truths of several problems: which has many scales."""
    amplitudes = {}
    for name, one in problems.items():
        central = np.abs(one.wavenumbers) <= highest
        truth = one.amplitude["truth"][np.ix_(central, central)]
        amplitudes[name] = truth / truth.max()
    with rc_context(STYLE):
        figure = Figure(figsize=(4 * len(amplitudes), 3.2), layout="constrained")
        k = next(iter(problems.values())).wavenumbers
        _draw_amplitudes(figure, amplitudes, k[np.abs(k) <= highest])
        return figure


def _draw_amplitudes(
    figure: Figure | SubFigure,
    amplitudes: Mapping[str, NDArray[np.float64]],
    k: NDArray[np.float64],
) -> None:
    pictures = {name: np.log10(np.maximum(a, 1e-30)) for name, a in amplitudes.items()}
    high = max(picture.max() for picture in pictures.values())
    panels = figure.subplots(1, len(pictures), squeeze=False, sharey=True)[0]
    for axes, (name, picture) in zip(panels, pictures.items(), strict=True):
        image = axes.imshow(
            picture,
            origin="lower",
            extent=(k[0], k[-1], k[0], k[-1]),
            cmap=colormaps["magma"].resampled(SHADES),
            vmin=high - DECADES,
            vmax=high,
        )
        axes.set(title=name, xlabel="$k_x$")
    panels[0].set_ylabel("$k_y$")
    figure.colorbar(image, ax=list(panels), shrink=0.85, label=r"$\log_{10}$ mean amplitude")


def _draw_energy(
    axes: Axes, name: str, energy: NDArray[np.float64], colour: str, width: float
) -> None:
    kappa = np.arange(len(energy))
    shown = (energy > 0) & (kappa > 0)
    axes.loglog(kappa[shown], energy[shown], color=colour, lw=width, label=name)


def _panels(count: int, width: float = 4.5) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * count, 3.2), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _tidy(axes: Axes, legend: bool = True) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":  # plain numbers, where a decade may be all there is
            low, high = axis.get_view_interval()
            few = high / low > 100
            axis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(_short))
            axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, which="both", lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _short(value: float, _: int) -> str:
    return f"{value / 1e6:g}M" if value >= 1e5 else f"{value:g}"
