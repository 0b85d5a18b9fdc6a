"""Figures of single samples: how errors spread over them, and the first one of each split."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from torchcno.paper import published as paper
from torchcno.paper.figures.picture import (
    Maker,
    Picture,
    absent,
    compared,
    read_all,
    study_command,
)
from torchcno.paper.pivots import rounded
from torchcno.paper.records import Record
from torchcno.paper.results import Results
from torchcno.paper.studies import planned
from torchcno.paper.tables import SPLIT_TITLES, problem_title
from torchcno.runs.evidence import Examples
from torchcno.runs.pictures.drawing import (
    HEADINGS,
    Panel,
    field_rows,
    panels,
    strokes,
    styled,
    tidy,
)


def distributions(results: Results) -> Iterator[Picture]:
    """Figures 5, 8, 10 …: how errors spread over samples."""
    for problem in results.problems():
        kept = _by_split(compared(results, problem), Record.sample_errors, HEADINGS)
        drawable = {
            title: {name: some for name, one in models.items() if (some := one[_shown(one)]).size}
            for title, models in kept.items()
        }
        errors = in_every_split(drawable)
        yield Picture.numbered(
            paper.DISTRIBUTION_FIGURES[problem],
            f"{problem_title(problem)}: errors over samples",
            partial(draw_distributions, errors) if all(errors.values()) else None,
            study_command("table1", results.budgets[0], f"{problem}-*"),
            {
                title: {name: _quartiles(values) for name, values in models.items()}
                for title, models in errors.items()
            },
            absent(results, problem, errors[HEADINGS["test"]]),
            unshown=sum(int((~_shown(e)).sum()) for m in kept.values() for e in m.values()),
        )


def _by_split(
    records: Mapping[str, Record | None],
    read: Callable[[Record, str], Any],
    titles: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """What runs have of the splits, by the title of the split and the name of the run."""
    return {
        title: read_all(records, lambda record, split=split: read(record, split))  # type: ignore[misc]
        for split, title in titles.items()
    }


def in_every_split(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By split the models that every split has: a figure compares the same ones in all."""
    whole = [name for name in next(iter(found.values())) if all(name in m for m in found.values())]
    return {split: {name: models[name] for name in whole} for split, models in found.items()}


def _shown(errors: NDArray[Any]) -> NDArray[Any]:
    """Which errors a logarithmic axis can show."""
    return np.isfinite(errors) & (errors > 0)


def _quartiles(errors: NDArray[Any]) -> dict[str, float]:
    """In percent, to the digits that do not depend on how a machine rounds."""
    values = np.quantile(errors.astype(np.float64), (0.25, 0.5, 0.75))
    return {f"q{q}": rounded(100 * value) for q, value in zip((25, 50, 75), values, strict=True)}


@styled
def draw_distributions(errors: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """Histograms of the relative L1 error over samples, a panel per split, a colour per model.

    Medians are lines. Further presets of a model are outlines, so that both are seen.
    """
    figure, axes_of = panels(len(errors))
    for axes, (title, models) in zip(axes_of, errors.items(), strict=True):
        percents = {name: 100 * values for name, values in models.items()}
        low = min((p.min() for p in percents.values()), default=0.1)
        high = max((p.max() for p in percents.values()), default=1.0)
        bins = np.geomspace(low, high * 1.001, 41).tolist()
        for name, stroke in strokes(percents).items():
            look: Any = {"histtype": "step", "lw": 1.4, **stroke}
            if stroke["linestyle"] == "-":
                look = {"color": stroke["color"], "alpha": 0.55}
            axes.hist(percents[name], bins, label=name, **look)
            axes.axvline(float(np.median(percents[name])), lw=1.2, **stroke)
        axes.set(title=title, xlabel="relative $L^1$ error, percent", xscale="log")
        tidy(axes, legend=False)
    axes_of[0].set_ylabel("samples")
    # Above both: no corner of a histogram is empty for sure.
    handles, names = axes_of[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def examples(results: Results) -> Iterator[Picture]:
    """Figures 6, 9, 11 …: one sample in and one out of distribution."""
    for problem in results.problems():
        records = compared(results, problem)
        found = in_every_split(_by_split(records, Record.examples, SPLIT_TITLES))
        errors = {
            title: {name: float(values[0]) for name, values in models.items()}
            for title, models in _by_split(records, Record.sample_errors, SPLIT_TITLES).items()
        }
        yield Picture.numbered(
            paper.DISTRIBUTION_FIGURES[problem] + 1,
            f"{problem_title(problem)}: samples and predictions",
            partial(draw_examples, found, errors) if all(found.values()) else None,
            study_command("table1", results.budgets[0], f"{problem}-*"),
            {
                title: {n: rounded(100 * e) for n, e in by_model.items() if n in found[title]}
                for title, by_model in errors.items()
            },
            absent(results, problem, found["in"]),
        )


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


def failures(results: Results) -> Iterator[Picture]:
    """Figure 12: models that do not generalise."""
    problem, budget = "smooth-transport", results.budgets[0]
    records = {
        paper.MODEL_TITLES[model]: results.record(planned(budget, problem, model))
        for model in ("deeponet", "ffnn")
    }
    found = read_all(records, lambda record: record.examples("ood"))
    yield Picture.numbered(
        12,
        f"{problem_title(problem)}: a sample out of distribution",
        partial(draw_failures, found) if found else None,
        study_command("table1", budget, f"{problem}-*"),
        absent=tuple(title for title in records if title not in found),
    )


def draw_failures(models: Mapping[str, Examples]) -> Figure:
    """The truth of a sample and, in its colours, what models that do not generalise make of it."""
    first = next(iter(models.values()))
    truth = first.output[0, 0]
    predictions = [Panel(name, one.prediction[0, 0], like=truth) for name, one in models.items()]
    return field_rows(
        [[Panel("input", first.input[0, 0]), Panel("truth", truth), *predictions]], 2.3
    )


def data(results: Results) -> Iterator[Picture]:
    """Figures 28 to 35: samples of the data, which every first run of a network keeps."""
    for problem in results.problems():
        runs = (planned(b, problem, m) for b in results.budgets for m in paper.COMPARED)
        record = next(filter(None, map(results.record, runs)), None)
        found = {
            title: some[problem]
            for title, some in _by_split({problem: record}, Record.examples, SPLIT_TITLES).items()
            if some
        }
        yield Picture.numbered(
            paper.DATA_FIGURES[problem],
            f"{problem_title(problem)}: inputs and outputs",
            partial(draw_data, found) if found else None,
            study_command("table1", results.budgets[0], f"{problem}-*"),
        )


def draw_data(splits: Mapping[str, Examples]) -> Figure:
    """Samples of a problem: inputs above, their outputs below."""
    rows = [
        [
            Panel(f"{split}: {name}", field[0])
            for split, some in splits.items()
            for field in getattr(some, name)
        ]
        for name in ("input", "output")
    ]
    return field_rows(rows, width=2.3)


FIGURES: dict[str, Maker] = {
    "distributions": distributions,
    "examples": examples,
    "failures": failures,
    "data": data,
}
