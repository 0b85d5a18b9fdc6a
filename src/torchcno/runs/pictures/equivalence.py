"""Figures of continuous-discrete equivalence: resolution, aliasing, spectra."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from torchcno.evaluation.aliasing import Audit
from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.runs.evaluate import RunErrors
from torchcno.runs.measurements import spectra_of
from torchcno.runs.pictures.drawing import (
    INK,
    line_looks,
    panels,
    short_name,
    strokes,
    styled,
    tidy,
)
from torchcno.runs.pictures.spectra import draw_spectra

ROUNDING = 1e-16  # where logarithmic axes end


@styled
def draw_resolutions(curves: Sequence[ResolutionCurve]) -> Figure:
    """Error against resolution, and relative to that at the training resolution: figure 2, right.

    Resolutions that a model refuses are missing from its line.
    """
    figure, (absolute, relative) = panels(2, height=3.4)
    looks = line_looks(curve.name for curve in curves)
    for curve in curves:
        for axes, values in ((absolute, curve.errors), (relative, curve.relative)):
            if values:
                axes.plot(*zip(*sorted(values.items()), strict=True), **looks[curve.name])
    absolute.set(ylabel="relative $L^1$ error, median, percent", ylim=(0, None))
    relative.set(ylabel="over the error at training resolution")
    relative.axhspan(0.95, 1.05, color=INK, alpha=0.2, lw=0)
    for axes in (absolute, relative):
        axes.set(xlabel="points an axis")
        for training in {curve.training for curve in curves}:
            axes.axvline(training, color=INK, ls=":", lw=1)
        tidy(axes, legend=axes is absolute)
    return figure


@styled
def draw_audits(audits: Sequence[Audit]) -> Figure:
    """Aliasing end to end above, and below it what each layer folds back, one panel a model."""
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
    return draw_spectra({name: spectra_of(e) for name, e in at_training.items()})


def _draw_end_to_end(figure: SubFigure, audits: Sequence[Audit]) -> None:
    ladder, translations = figure.subplots(1, 2)
    looks = line_looks(audit.name for audit in audits)
    for audit in audits:
        rungs = [(rung.size[-1], rung.folded) for rung in audit.ladder if rung.folded is not None]
        if rungs:
            ladder.semilogy(*zip(*rungs, strict=True), **looks[audit.name])
        steps = [(t.steps, max(t.error, ROUNDING)) for t in audit.translations]
        if steps:
            translations.semilogy(*zip(*steps, strict=True), **looks[audit.name])
    ladder.set(title="aliasing error in the band of the grid", xlabel="points an axis")
    translations.set(title="error under a translation", xlabel="steps of the grid")
    for axes in (ladder, translations):
        tidy(axes)
        if not axes.lines:
            axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)


def _draw_layers(figure: SubFigure, audits: Sequence[Audit]) -> None:
    axes_of = figure.subplots(1, len(audits), sharey=True, squeeze=False)[0]
    chosen = strokes(audit.name for audit in audits)
    for axes, audit in zip(axes_of, audits, strict=True):
        # Bars from the smallest share that matters: those of alias-free layers do not show.
        shares = [max(layer.folded, ROUNDING) for layer in audit.layers]
        resampling = [layer.size_in != layer.size_out for layer in audit.layers]
        hatches = ["//" if changes else "" for changes in resampling]
        colour = chosen[audit.name]["color"]
        axes.bar(range(len(shares)), shares, color=colour, hatch=hatches, edgecolor="white", lw=0)
        axes.set(
            title=short_name(audit.name), xlabel="layer, in the order of running", yscale="log"
        )
        axes.set_ylim(1e-8, 1)
        axes.set_xlim(-1, max(len(shares), 10))  # few layers make no wide bars
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
    axes_of[0].set_ylabel("share of energy folded back")
    figure.suptitle("layer by layer (hatched: layers that change the grid)", fontsize=9)
