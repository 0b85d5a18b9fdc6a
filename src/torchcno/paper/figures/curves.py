"""Figures of numbers: ranks, resolutions, spectra, sizes, samples, modes, aliasing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from torchcno.evaluation.spectra import NO_TRUTH
from torchcno.paper import published as paper
from torchcno.paper.figures.picture import (
    Maker,
    Picture,
    absent,
    compared,
    read_all,
    study_command,
)
from torchcno.paper.files import AUDITS, MODES, SEARCHES
from torchcno.paper.published import PowerLaw
from torchcno.paper.records import Record
from torchcno.paper.results import Results
from torchcno.paper.studies import (
    EFFICIENCY,
    FLOW,
    SMALL_CNO,
    STUDIES,
    efficiency,
    planned,
    scaling_series,
)
from torchcno.paper.tables import (
    complete_rows,
    fit_law,
    law_numbers,
    problem_title,
    ranks,
    series_errors,
    series_title,
)
from torchcno.runs.audit import RunAudit
from torchcno.runs.folder import SAME_WEIGHTS
from torchcno.runs.measurements import Spectra
from torchcno.runs.pictures.drawing import COLOURS, INK, panels, strokes, styled, tidy
from torchcno.runs.pictures.efficiency import Size, draw_efficiency
from torchcno.runs.pictures.equivalence import draw_audits, draw_resolutions
from torchcno.runs.pictures.spectra import draw_spectra, draw_truths


def rank_picture(results: Results) -> Iterator[Picture]:
    """Where the models stand in the rows of Table 1, ours and published."""
    budget = results.budgets[0]
    rows = complete_rows(results, budget)
    ours, published = (
        {
            paper.MODEL_TITLES[model]: [ranks(errors)[model] for errors in tables]
            for model in reversed(paper.COMPARED)
        }
        for tables in (list(rows.values()), [paper.TABLE_1[row] for row in rows])
    )
    yield Picture(
        "ranks",
        "Ranks",
        f"Ranks of the models in {len(rows)} rows of Table 1",
        partial(draw_ranks, ours, published) if rows else None,
        study_command("table1", budget),
        {"ours": ours, "published": published} if rows else {},
    )


@styled
def draw_ranks(ours: Mapping[str, list[int]], published: Mapping[str, list[int]]) -> Figure:
    """A line per model, the best above: a dot per row of Table 1, a bar at the mean rank."""
    order = sorted(ours, key=lambda name: -float(np.mean(ours[name])))
    figure, (axes,) = panels(1, width=5.2, height=2.9)
    for y, name in enumerate(order):
        colour = strokes([name])[name]["color"]
        for ranks_of, level, look in ((ours, y + 0.14, colour), (published, y - 0.18, INK)):
            places, counts = np.unique(ranks_of[name], return_counts=True)
            heights = np.full(len(places), level)
            axes.scatter(places, heights, s=14 * counts, color=look, alpha=0.55, lw=0)
            mean = np.mean(ranks_of[name])
            axes.plot([mean] * 2, [level - 0.14, level + 0.14], color=look, lw=2.4)
    axes.set(xlabel="rank; coloured: ours, grey: published", xlim=(0.6, len(order) + 0.4))
    axes.set_yticks(range(len(order)), order)
    axes.set_xticks(range(1, len(order) + 1))
    tidy(axes, legend=False)
    return figure


def measured_pictures(
    study: str,
    figures: Mapping[str, tuple[str, str]],  # names and numbers, by problem
    title: str,
    draw: Callable[[Mapping[str, Any]], Figure],
    read: Callable[[Record], Any],
    numbers: Callable[[Any], dict[str, Any]],
    results: Results,
) -> Iterator[Picture]:
    """What a study measures of the compared runs, by problem."""
    measurement = STUDIES[study].measures
    assert measurement is not None
    for problem in results.problems(figures):
        records = compared(results, problem)
        found = read_all(records, read)
        foreign = tuple(n for n, record in records.items() if measurement.file in record["foreign"])
        yield Picture(
            *figures.get(problem, next(iter(figures.values()))),
            f"{problem_title(problem)}: {title}",
            partial(draw, found) if found else None,
            study_command(study, results.budgets[0]),
            {name: numbers(one) for name, one in found.items()},
            tuple(n for n in absent(results, problem, found) if n not in foreign),
            foreign,
        )


def _by_band(spectra: Spectra) -> dict[str, float]:
    """The errors by their wavenumbers, where the truth has any energy to compare with."""
    bands = zip(spectra.band_edges.tolist(), spectra.band_errors.tolist(), strict=True)
    return {f"{a} to {b - 1}": error for (a, b), error in bands if error < NO_TRUTH}


def truth_spectra(results: Results) -> Iterator[Picture]:
    """Figure 25: the two flows side by side."""
    found = {
        problem_title(run.config.problem.name): one
        for budget in reversed(results.budgets)
        for run in STUDIES["complexity"].runs(budget)
        if (record := results.record(run)) and (one := record.spectra())
    }
    whole = len(found) == len(results.problems(["vorticity", FLOW]))
    yield Picture.numbered(
        25,
        "Central frequencies of the outputs",
        partial(draw_truths, found) if whole else None,
        study_command("complexity", results.budgets[0]),
    )


def scaling_pictures(results: Results) -> Iterator[Picture]:
    """Figures 3, right, and 27."""
    numbers = {FLOW: "Figure 3, right", "poisson": "Figure 27, left", "wave": "Figure 27, right"}
    for budget in results.budgets:
        series = scaling_series(budget)
        for problem in dict.fromkeys(problem for problem, _ in series):
            found: dict[str, dict[int, float]] = {}
            missing: list[str] = []
            for (_, label), runs in (item for item in series.items() if item[0][0] == problem):
                title, errors = series_title(label), series_errors(results, runs)
                lacking = [str(n) for n in runs if n not in errors]
                if errors:
                    found[title] = errors
                if lacking:
                    at = f" of {', '.join(lacking)} samples" if errors else ""
                    missing.append(f"{title}{at}")
            laws = {paper.MODEL_TITLES[model]: law for model, law in paper.SCALING.items()}
            enough = any(len(errors) > 1 for errors in found.values())
            yield Picture(
                f"scaling-{problem}-{budget.name}",
                numbers[problem],
                f"{problem_title(problem)}: error against training samples, {budget.name}",
                partial(draw_scaling, found, laws if problem == FLOW else {}) if enough else None,
                study_command("scaling", budget),
                {name: _scaling_numbers(errors) for name, errors in found.items()},
                tuple(missing),
            )


def _scaling_numbers(errors: Mapping[int, float]) -> dict[str, Any]:
    rate, samples = law_numbers(fit_law(errors))
    return {
        "samples": list(errors),
        "errors_percent": list(errors.values()),
        "rate": rate,
        "samples_for_one_percent": samples,
    }


@styled
def draw_scaling(
    series: Mapping[str, Mapping[int, float]], published: Mapping[str, PowerLaw]
) -> Figure:
    """Measured errors with their fitted laws, and the published laws dotted."""
    figure, (axes,) = panels(1, width=6.2)
    chosen = strokes(dict.fromkeys([*series, *published]))
    reach = np.geomspace(64, 1024, 20)
    for name, errors in series.items():
        stroke, law = chosen[name], fit_law(errors)
        label = name if law is None else f"{name}, r = {law.rate:.2f}"
        filled = stroke["color"] if stroke["linestyle"] == "-" else "none"
        look: Any = {"color": stroke["color"], "mfc": filled}
        axes.loglog(list(errors), list(errors.values()), "o", ms=5, label=label, **look)
        if law is not None:
            inside = np.geomspace(min(errors), max(errors), 20)
            axes.loglog(inside, [law(n) for n in inside], lw=1.4, **stroke)
    for name, law in published.items():
        label = f"{name} published, r = {law.rate:.2f}"
        axes.loglog(reach, [law(n) for n in reach], ":", color=chosen[name]["color"], label=label)
    axes.set(xlabel="training samples N", ylabel="test error, percent")
    tidy(axes)
    return figure


def efficiency_pictures(results: Results) -> Iterator[Picture]:
    """Figure 3, left and centre."""
    for budget in results.budgets:
        (problem,) = budget.problems([FLOW])
        small = planned(budget, problem, "cno", **SMALL_CNO).name
        found: dict[str, list[Size]] = {paper.MODEL_TITLES[model]: [] for model in EFFICIENCY}
        for run in efficiency(budget):
            record = results.record(run)
            if record is not None and np.isfinite(record["best_validation_error"]):
                sizes = found[paper.MODEL_TITLES[run.config.model]]
                sizes.append(Size.of(record.row, small=run.name == small))
        enough = any(len(sizes) > 1 for sizes in found.values())
        yield size_picture(
            f"figure-3-left-{budget.name}",
            "Figure 3, left and centre",
            f"{problem_title(problem)}: error against size and time per epoch, {budget.name}",
            found if enough else {},
            study_command("efficiency", budget),
        )


def search_pictures(results: Results) -> Iterator[Picture]:
    """The trials of searches, as figure 3 has those of the paper's."""
    for path, search in results.every(SEARCHES).items():
        title = f"{problem_title(search.problem)}: the trials of a search"
        sizes = {paper.MODEL_TITLES.get(search.model, search.model): search.trials}
        yield size_picture(path.parent.name, "Search", title, sizes)


def size_picture(
    name: str, number: str, title: str, found: Mapping[str, list[Size]], remedy: str = ""
) -> Picture:
    """The picture of networks of many sizes, where there are any."""
    models = {model: sizes for model, sizes in found.items() if sizes}
    draw = partial(draw_efficiency, models) if models else None
    numbers = {model: [vars(size) for size in sizes] for model, sizes in models.items()}
    absent = tuple(model for model in found if models and model not in models)
    return Picture(name, number, title, draw, remedy, numbers, absent)


def modes_picture(results: Results) -> Iterator[Picture]:
    """Figure 26."""
    modes = results.only(MODES) or {}
    titled = {problem_title(name): case for name, case in modes.items()}
    yield Picture.numbered(
        26,
        "How many modes a solution needs: its error when cut to so many per axis",
        partial(draw_modes, titled) if modes else None,
        "python validation/modes.py",
        {name: case["modes_for_published_error"] for name, case in modes.items()},
    )


@styled
def draw_modes(cases: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The error of a truth cut to so many modes: how fine a grid a solver needs."""
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
        axes.set(title=name, xlabel="modes kept per axis", ylim=(1e-4, None))
        tidy(axes)
    axes_of[0].set_ylabel("relative $L^1$ error, percent")
    return figure


def audit_pictures(results: Results) -> Iterator[Picture]:
    """Aliasing, which the paper argues about and does not measure: `cno audit --json`."""
    for path, found in results.every(AUDITS).items():
        records = {a.name: results.finished.get(a.name) for a in found}
        problem = next((record["problem"] for record in records.values() if record), None)
        runs = compared(results, problem) if problem else {}
        titles = {run.name: title for title, run in runs.items()}
        foreign = [a.name for a in found if not _is_of(a, records[a.name])]
        audits = [
            replace(a, name=titles.get(a.name, a.name)) for a in found if a.name not in foreign
        ]
        yield Picture(
            path.stem,
            "Aliasing",
            f"{path.stem.removeprefix('audit-')}: between grids, under translations, by layer",
            partial(draw_audits, audits) if audits else None,
            AUDITS.command(path),
            {
                audit.name: {
                    "folded": {str(rung.size[-1]): rung.folded for rung in audit.ladder},
                    "translations": {f"{t.steps:g}": t.error for t in audit.translations},
                    "worst": audit.worst,
                }
                for audit in audits
            },
            foreign=tuple(titles.get(name, name) for name in foreign),
        )


def _is_of(audit: RunAudit, record: Record | None) -> bool:
    """Whether an audit was made with a run's weights: by their hash, else by the test error."""
    weights, error = (record["weights"], record.error("test")) if record else (None, None)
    if audit.weights is not None and weights is not None:
        return bool(audit.weights == weights)
    if audit.error is None or error is None:  # nobody knows
        return True
    return abs(audit.error - error) <= SAME_WEIGHTS * error


FIGURES: dict[str, Maker] = {
    "ranks": rank_picture,
    "spectra": partial(
        measured_pictures,
        "spectra",
        {FLOW: (f"spectra-{FLOW}", "Figure 2, left"), "poisson": ("spectra-poisson", "Figure 7")},
        "spectra of truth and predictions",
        draw_spectra,
        Record.spectra,
        lambda spectra: {"band_errors": _by_band(spectra)},
    ),
    "resolution": partial(
        measured_pictures,
        "resolution",
        {FLOW: ("figure-2-right", "Figure 2, right")},
        "error against resolution",
        lambda found: draw_resolutions([replace(curve, name=n) for n, curve in found.items()]),
        Record.resolutions,
        lambda curve: {str(n): error for n, error in curve.errors.items()},
    ),
    "efficiency": efficiency_pictures,
    "search": search_pictures,
    "scaling": scaling_pictures,
    "truths": truth_spectra,
    "modes": modes_picture,
    "audit": audit_pictures,
}
