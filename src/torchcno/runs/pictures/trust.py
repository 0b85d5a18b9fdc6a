"""What predictions, bands and audits of trust look like."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcno.disk import write_atomically
from torchcno.runs.audit import RunAudit
from torchcno.runs.card import TEMPLATES
from torchcno.runs.pictures.drawing import (
    COLOURS,
    HEADINGS,
    INK,
    Panel,
    data_uri,
    field_rows,
    styled,
    tidy,
)
from torchcno.runs.pictures.equivalence import draw_audits
from torchcno.runs.sections import (
    Calibration,
    Detection,
    ErrorCurve,
    SpectrumErrors,
    TrustPage,
    describe_page,
    judge_bands,
)
from torchcno.runs.trust import Prediction

SHOWN = 3  # samples


def draw_bands(
    inputs: Tensor,
    found: Tensor | Prediction,
    truth: Tensor | None = None,
) -> Figure:
    """A row per sample and output channel: inputs, prediction, half-width, and the error if known.

    Errors have the colours of the half-width, so that the two compare.
    """
    value = found.value if isinstance(found, Prediction) else found
    rows = []
    for i in range(min(SHOWN, len(value))):
        for c in range(value.shape[1]):
            row = [Panel(f"input {k}", one) for k, one in enumerate(inputs[i])]
            row.append(Panel("prediction", value[i, c]))
            if isinstance(found, Prediction):
                width, name = found.half_width[i, c], f"{100 * found.confidence:g} % half-width"
                row.append(Panel(name, width, error=True))
                if truth is not None:
                    error = (value[i, c] - truth[i, c]).abs()
                    row.append(Panel("error", error, like=width, error=True))
            rows.append(row)
    return field_rows(rows)


@styled
def draw_page(page: TrustPage) -> Figure:
    """A panel per section: four curves of errors, the spectrum, coverage, scores."""
    figure = Figure(figsize=(13.0, 6.0), layout="constrained")
    grid = figure.subplots(2, 4)
    for axes, curve in zip(grid[0], page.curves, strict=True):
        draw_curve(axes, curve)
    draw_spectrum(grid[1, 0], page.spectrum)
    draw_coverage(grid[1, 1], page.calibration)
    draw_scores(grid[1, 2], page.detection)
    draw_times(grid[1, 3], page)
    return figure


def draw_curve(axes: Axes, curve: ErrorCurve) -> None:
    """The error against one thing that changes."""
    axes.set(title=f"error against\n{curve.against}", ylabel="percent")
    if curve.left_out:
        leave_out(axes, curve.left_out)
        return
    axes.plot(curve.at, [100 * error for error in curve.errors], "o-", ms=4, color=COLOURS[1])
    axes.set_ylim(0, 110 * max(curve.errors, default=1.0) or 1.0)
    tidy(axes)


def draw_spectrum(axes: Axes, spectrum: SpectrumErrors) -> None:
    """The share of the error by band of wavenumbers."""
    axes.set(title="where the error lies", xlabel="wavenumber |k|", ylabel="share of its energy")
    for colour, (split, bands) in zip(COLOURS[1:], spectrum.bands.items(), strict=False):
        middles = [max(0.5, (band.low + band.high - 1) / 2) for band in bands]
        shares = [band.share for band in bands]
        label = HEADINGS.get(split, split)
        axes.semilogx(middles, shares, "o-", ms=4, color=colour, label=label)
    tidy(axes)


def draw_coverage(axes: Axes, found: Calibration) -> None:
    """How often bands hold, against how often they say."""
    axes.set(title="coverage of the bands", xlabel="confidence", ylabel="share that holds")
    if found.left_out:
        leave_out(axes, found.left_out)
        return
    axes.plot((0, 1), (0, 1), color=INK, lw=1, ls=":")
    splits = dict.fromkeys(one.split for one in found.coverages)
    for colour, split in zip(COLOURS[1:], splits, strict=False):
        ours = [one for one in found.coverages if one.split == split]
        at, label = [one.confidence for one in ours], HEADINGS.get(split, split)
        axes.plot(at, [one.relative for one in ours], "o-", ms=4, color=colour, label=label)
        axes.plot(at, [one.everywhere for one in ours], "s--", ms=4, color=colour)
        axes.plot(at, [one.pointwise for one in ours], "^:", ms=4, color=colour)
        if split != "ood":
            low, high = zip(*(one.likely for one in ours), strict=True)
            axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
    axes.set(xlim=(0.45, 1), ylim=(0, 1.15))
    axes.text(0.02, 0.95, "○ relative error  □ all points  △ points", transform=axes.transAxes,
              fontsize=7, color=INK)  # fmt: skip
    tidy(axes, legend=False)
    axes.legend(loc="lower right")


def draw_scores(axes: Axes, found: Detection) -> None:
    """How scores are distributed by split."""
    axes.set(title="scores of inputs", xlabel="score", ylabel="share of inputs")
    edges = np.linspace(0, 1, 11)
    for colour, (split, scores) in zip(COLOURS[1:], found.scores.items(), strict=False):
        shares = np.histogram(scores, edges)[0] / len(scores)
        axes.stairs(shares, edges, color=colour, label=HEADINGS.get(split, split), lw=1.6)
    if not found.scores:
        leave_out(axes, found.left_out or "")
    tidy(axes)


def draw_times(axes: Axes, page: TrustPage) -> None:
    """Seconds spent against the number of solves, by network and by solver."""
    found = page.break_even
    axes.set(title="seconds spent", xlabel="solves")
    if found.left_out or found.solver_seconds is None or found.data_seconds is None:
        leave_out(axes, found.left_out or "")
        return
    assert found.network_seconds is not None
    assert found.coarse_seconds is not None
    start = found.data_seconds + (found.training_seconds or 0.0)
    last = 10 * found.solves if found.solves else 100 * start / found.solver_seconds
    n = np.geomspace(1, max(last, 10), 60)
    axes.loglog(n, start + n * found.network_seconds, color=COLOURS[1], label="data + network")
    axes.loglog(n, n * found.coarse_seconds, color=COLOURS[2], label="solver, same error")
    axes.loglog(n, n * found.solver_seconds, color=INK, ls=":", label="solver")
    tidy(axes)


def leave_out(axes: Axes, why: str) -> None:
    """An empty panel that says why."""
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, f"left out:\n{why}", ha="center", va="center", wrap=True,
              transform=axes.transAxes, color=INK, fontsize=8)  # fmt: skip


def write_audit_page(
    content: Mapping[str, Any],
    audits: Sequence[RunAudit],
    pages: Sequence[TrustPage | None],
    path: Path,
) -> None:
    """One HTML file with all sections of runs and their pictures."""
    runs = [
        {
            "name": audit.name,
            "worst": audit.worst,
            "passed": told["passed"],
            "bands": judge_bands(page.calibration),
            "picture": data_uri(draw_page(page)),
            "sections": describe_page(page),
        }
        for audit, told, page in zip(audits, content["audits"], pages, strict=True)
        if page is not None
    ]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((TEMPLATES / "trust.html.j2").read_text(encoding="utf-8"))
    picture = data_uri(draw_audits(audits))
    text = template.render(runs=runs, aliasing=picture, threshold=content["threshold"])
    write_atomically(path, text.encode())
