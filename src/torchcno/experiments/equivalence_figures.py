"""Figures of continuous-discrete equivalence: resolution, aliasing, spectra."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from torchcno.evaluation.aliasing import Audit
from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.evaluation.spectra import (
    NO_TRUTH,
    averaged_amplitude,
    error_by_band,
    radial_spectrum,
    wavenumbers,
)
from torchcno.experiments.evaluate import RunErrors
from torchcno.experiments.pictures import STYLE
from torchcno.grids import Layout

COLOURS = ("#4c8bf5", "#e8710a", "#2e9e5b", "#a64ad0", "#c9a400", "#808080")
ROUNDING = 1e-16  # where logarithmic axes end
WIDEST = 30  # letters of a name
DECADES = 6  # of amplitude that a picture of a spectrum shows


def draw_resolutions(curves: Sequence[ResolutionCurve]) -> Figure:
    """Error against resolution, and relative to that at the training resolution: figure 2, right.

    Resolutions that a model refuses are missing from its line.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        absolute, relative = figure.subplots(1, 2)
        for curve, colour in zip(curves, _colours(len(curves)), strict=True):
            for axes, values in ((absolute, curve.errors), (relative, curve.relative)):
                points = sorted(values.items())
                axes.plot(
                    *zip(*points, strict=True), "o-", ms=4, color=colour, label=_short(curve.name)
                )
        absolute.set(ylabel="relative $L^1$ error, median, percent", ylim=(0, None))
        relative.set(ylabel="over the error at training resolution")
        relative.axhspan(0.95, 1.05, color="#808080", alpha=0.2, lw=0)
        for axes in (absolute, relative):
            axes.set(xlabel="points an axis")
            for training in {curve.training for curve in curves}:
                axes.axvline(training, color="#808080", ls=":", lw=1)
            _tidy(axes)
        absolute.legend()
        return figure


def draw_audits(audits: Sequence[Audit]) -> Figure:
    """Aliasing end to end above, and below it what each layer folds back, one panel a model."""
    with rc_context(STYLE):
        figure = Figure(figsize=(max(9.0, 3.2 * len(audits)), 6.4), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.15))[:, 0]
        _draw_end_to_end(above, audits)
        _draw_layers(below, audits)
        return figure


def draw_run_spectra(runs: Sequence[RunErrors], split: str) -> Figure:
    """`draw_spectra` of runs of one problem on a split, at the training resolution."""
    at_training = {
        run.name: e
        for run in runs
        for e in run.evaluations
        if e.split == split and e.resolution == run.training
    }
    missing = [run.name for run in runs if run.name not in at_training]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} was not evaluated on {split} at its training resolution; "
            "add it to the resolutions."
        )
    first = next(iter(at_training.values())).fields
    if not all(torch.equal(e.fields.outputs, first.outputs) for e in at_training.values()):
        raise ValueError("spectra compare runs on the same fields; give runs of one problem.")
    predictions = {name: e.prediction for name, e in at_training.items()}
    return draw_spectra(first.outputs, predictions, first.grid.layout)


def draw_spectra(truth: Tensor, predictions: Mapping[str, Tensor], layout: Layout) -> Figure:
    """Averaged logarithmic amplitudes of the truth and of each prediction (figure 2, left), with
    the energy by shells and the error by octaves below.
    """
    fields = {"truth": truth, **predictions}
    with rc_context(STYLE):
        figure = Figure(figsize=(max(9.0, 2.6 * len(fields)), 6), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
        _draw_amplitudes(above, fields, layout)
        radial, bands = below.subplots(1, 2)
        for (name, field), colour in zip(fields.items(), ("#808080", *COLOURS), strict=False):
            spectrum = radial_spectrum(field, layout)
            shown = (spectrum.energy > 0) & (spectrum.wavenumber > 0)
            radial.loglog(
                spectrum.wavenumber[shown],
                spectrum.energy[shown],
                label=_short(name),
                color=colour,
                lw=3 if name == "truth" else 1.4,
            )
        radial.set(xlabel="wavenumber |k|", ylabel="energy")
        for (name, field), colour in zip(predictions.items(), COLOURS, strict=False):
            found = [b for b in error_by_band(field, truth, layout) if b.relative < NO_TRUTH]
            labels = [f"{b.low}–{b.high - 1}" if b.high - b.low > 1 else f"{b.low}" for b in found]
            bands.semilogy(
                labels, [b.relative for b in found], "o-", ms=4, color=colour, label=_short(name)
            )
        bands.axhline(1, color="#808080", ls=":", lw=1)
        bands.set(xlabel="largest wavenumber of the mode", ylabel="relative error in the band")
        for axes in (radial, bands):
            _tidy(axes)
            axes.legend()
        return figure


def _draw_amplitudes(figure: SubFigure, fields: Mapping[str, Tensor], layout: Layout) -> None:
    pictures = {
        name: np.log10(averaged_amplitude(field, layout).cpu().numpy().clip(min=1e-300))
        for name, field in fields.items()
    }
    high = max(picture.max() for picture in pictures.values())
    panels = figure.subplots(1, len(pictures), squeeze=False)[0]
    for axes, (name, picture) in zip(panels, pictures.items(), strict=True):
        k_y, k_x = (wavenumbers(n, layout) for n in next(iter(fields.values())).shape[-2:])
        image = axes.imshow(
            picture,
            origin="lower",
            extent=(*_edges(k_x), *_edges(k_y)),
            vmin=high - DECADES,
            vmax=high,
            cmap="magma",
        )
        axes.set(title=_short(name), xlabel="$k_x$")
    panels[0].set_ylabel("$k_y$")
    figure.colorbar(image, ax=list(panels), shrink=0.85, label=r"$\log_{10}$ mean amplitude")


def _edges(k: Tensor) -> tuple[float, float]:
    """Where the picture of the wavenumbers k begins and ends."""
    return float(k[0]) - 0.5, float(k[-1]) + 0.5


def _draw_end_to_end(figure: SubFigure, audits: Sequence[Audit]) -> None:
    ladder, translations = figure.subplots(1, 2)
    for audit, colour in zip(audits, _colours(len(audits)), strict=True):
        rungs = [(rung.size[-1], rung.folded) for rung in audit.ladder if rung.folded is not None]
        if rungs:
            ladder.semilogy(
                *zip(*rungs, strict=True), "o-", ms=4, color=colour, label=_short(audit.name)
            )
        steps = [(t.steps, max(t.error, ROUNDING)) for t in audit.translations]
        if steps:
            translations.semilogy(
                *zip(*steps, strict=True), "o-", ms=4, color=colour, label=_short(audit.name)
            )
    ladder.set(title="aliasing error in the band of the grid", xlabel="points an axis")
    translations.set(title="error under a translation", xlabel="steps of the grid")
    for axes in (ladder, translations):
        _tidy(axes)
        if axes.lines:
            axes.legend()
        else:
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)


def _draw_layers(figure: SubFigure, audits: Sequence[Audit]) -> None:
    panels = figure.subplots(1, len(audits), sharey=True, squeeze=False)[0]
    for axes, audit, colour in zip(panels, audits, _colours(len(audits)), strict=True):
        # Bars from the smallest share that matters: those of alias-free layers do not show.
        shares = [max(layer.folded, ROUNDING) for layer in audit.layers]
        resampling = [layer.size_in != layer.size_out for layer in audit.layers]
        hatches = ["//" if changes else "" for changes in resampling]
        axes.bar(range(len(shares)), shares, color=colour, hatch=hatches, edgecolor="white", lw=0)
        axes.set(title=_short(audit.name), xlabel="layer, in the order of running", yscale="log")
        axes.set_ylim(1e-8, 1)
        axes.set_xlim(-1, max(len(shares), 10))  # few layers make no wide bars
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _tidy(axes)
    panels[0].set_ylabel("share of energy folded back")
    figure.suptitle("layer by layer (hatched: layers that change the grid)", fontsize=9)


def _short(name: str) -> str:
    """The end of a long name: a path as wide as its panel would leave no room for the panel."""
    return name if len(name) <= WIDEST else "…" + name[1 - WIDEST :]


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
