"""The tables of the paper with our numbers beside the published ones, as data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean, stdev
from typing import Any

import torch

from torchcno.experiments import paper
from torchcno.experiments.build import build_model, model_class
from torchcno.experiments.results import Results
from torchcno.experiments.studies import (
    Budget,
    filter_runs,
    planned,
    tap_runs,
)
from torchcno.models import ParameterCount, count_parameters
from torchcno.problems import PROBLEMS

SPLIT_TITLES = {"test": "In", "ood": "Out"}
TRAINING_TITLES = {
    "learning_rate": "rate",
    "gamma": "γ",
    "weight_decay": "decay",
    "batch_size": "batch",
}
PUBLISHED = "published"  # whose numbers a row has; ours have the name of their budget


@dataclass(frozen=True)
class Cell:
    """A number of a table; without a value, not measured."""

    value: float | None = None
    text: str = "–"
    best: bool = False


@dataclass(frozen=True)
class Row:
    """Numbers of one source."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    published: bool = False  # of the paper, not ours
    begins: bool = False  # a group of rows that belong together


@dataclass(frozen=True)
class Table:
    """A table under its number in the paper."""

    name: str  # of its files
    number: str
    title: str
    labels: tuple[str, ...]  # heads of the columns of words
    columns: tuple[str, ...]  # heads of the columns of numbers
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """The rows for a JSON file."""
        return [
            {
                **dict(zip(self.labels, row.labels, strict=True)),
                "values": {
                    column: cell.value
                    for column, cell in zip(self.columns, row.cells, strict=True)
                },
            }
            for row in self.rows
        ]  # fmt: skip


def all_tables(results: Results) -> list[Table]:
    """Every table of the paper, in its order."""
    return [
        table_1(results, "normalized"),
        table_1(results, "physical"),
        table_2(results),
        table_3(results),
        table_4(results),
        table_5(),
        tables_6_to_12(),
        *(hyper_parameters(n, model) for n, model in paper.HYPER_PARAMETER_TABLES.items()),
        table_13(results),
        vorticity(results),
    ]


def table_1(results: Results, space: str) -> Table:
    """Errors of all models, in and out of distribution; published ones are of scaled fields."""
    rows: list[Row] = []
    published = paper.TABLE_1 if space == "normalized" else {}
    for problem, split in _cases(results):
        group = _group(results, problem, split, space, paper.COMPARED, published)
        simple = (
            _mean_field(results, problem, split, space),
            percent(results.linear_error(problem, split, space)),
        )
        first = next(row for row in group if not row.published)
        group = [
            replace(row, cells=(*row.cells, *(simple if row is first else [Cell(text="")] * 2)))
            for row in group
        ]
        rows += _begun(group)
    scaled = space == "normalized"
    return Table(
        "table-1" if scaled else "table-1-physical",
        "Table 1" if scaled else "Table 1, physical",
        "Relative median L1 errors in percent, "
        + ("of fields scaled to [0, 1], as published" if scaled else "of physical fields"),
        ("problem", "split", "by"),
        (*(paper.MODEL_TITLES[m] for m in paper.COMPARED), "mean field", "linear"),
        tuple(rows),
        "The mean field is the training set's mean output, whatever the input: an error near it "
        "means that nothing was learnt. Linear is ridge regression on the training samples (python "
        "validation/linear.py): an error above it means that a matrix would have done better."
        + (
            " The published errors are the best of a search, of one initialisation; Table 4 has "
            "those of ten."
            if scaled
            else ""
        ),
    )


def table_13(results: Results) -> Table:
    """The two ablations."""
    rows: list[Row] = []
    for problem, split in _cases(results):
        rows += _begun(_group(results, problem, split, "normalized", paper.ABLATED, paper.TABLE_13))
    return Table(
        "table-13",
        "Table 13",
        "Ablations: relative median L1 errors in percent, of fields scaled to [0, 1]",
        ("problem", "split", "by"),
        tuple(paper.MODEL_TITLES[m] for m in paper.ABLATED),
        tuple(rows),
    )


def table_2(results: Results) -> Table:
    """Filter widths against the upsampling of the activation."""
    widths = paper.HALF_WIDTHS
    rows: list[Row] = []
    for upsampling in sorted({n for n, _ in paper.FILTERS}):
        label = f"N_σ = {upsampling}"
        group = [_row((label, PUBLISHED), [paper.FILTERS[upsampling, c] for c in widths])]
        for budget in results.budgets:
            runs = filter_runs(budget)
            found = [runs.get((upsampling, c)) for c in widths]
            errors = [None if run is None else results.error(run, "test") for run in found]
            group.append(_row((label, _ours(budget)), errors))
        rows += _begun(group)
    return Table(
        "table-2",
        "Table 2",
        "Filters of the CNO on the Navier-Stokes equations: test error in percent by the filter's "
        "half-width c_h and the activation's upsampling N_σ",
        ("upsampling", "by"),
        tuple(f"c_h = {c:g}" for c in widths),
        tuple(rows),
        _stands_in(results),
    )


def table_3(results: Results) -> Table:
    """The number of taps."""
    rows = [_row((PUBLISHED,), list(paper.TAPS.values()))]
    for budget in results.budgets:
        runs = tap_runs(budget)
        found = [runs.get(taps) for taps in paper.TAPS]
        errors = [None if run is None else results.error(run, "test") for run in found]
        rows.append(_row((_ours(budget),), errors))
    return Table(
        "table-3",
        "Table 3",
        "Taps of the CNO's filters on the Navier-Stokes equations, N_σ = 2, c_h = 0.8: test error "
        "in percent",
        ("by",),
        tuple(f"N_tap = {taps}" for taps in paper.TAPS),
        tuple(_begun(rows)),
        _stands_in(results),
    )


def table_4(results: Results) -> Table:
    """Initialisations: mean and standard deviation."""
    rows: list[Row] = []
    for problem in _problems(results):
        title = paper.PROBLEM_TITLES[problem]
        published = [paper.SEEDS[problem][m] for m in paper.SEEDED]
        group = [
            Row(
                (title, PUBLISHED),
                tuple(mark_best([Cell(s.mean, f"{s.mean:.2f} ± {s.std:.2f}") for s in published])),
                published=True,
            )
        ]
        for budget in results.budgets:
            cells = [_over_seeds(results, budget, problem, model) for model in paper.SEEDED]
            group.append(Row((title, _ours(budget)), tuple(mark_best(cells))))
        rows += _begun(group)
    return Table(
        "table-4",
        "Table 4",
        "Initialisations: mean ± standard deviation of the test errors in percent, and how many "
        "initialisations where they are not ten",
        ("problem", "by"),
        tuple(paper.MODEL_TITLES[m] for m in paper.SEEDED),
        tuple(rows),
    )


def table_5() -> Table:
    """Sizes that the authors' search covered."""
    models = tuple(paper.PARAMETER_RANGES["poisson"])
    rows = [
        Row(
            (paper.PROBLEM_TITLES[problem],),
            tuple(Cell(r.most, f"{r.least:g}–{r.most:g}") for r in ranges.values()),
            published=True,
        )
        for problem, ranges in paper.PARAMETER_RANGES.items()
    ]
    return Table(
        "table-5",
        "Table 5",
        "Fewest and most parameters in the authors' search, in millions, as published",
        ("problem",),
        tuple(paper.MODEL_TITLES[m] for m in models),
        tuple(rows),
    )


def tables_6_to_12() -> Table:
    """Parameter counts of the selected models, both ways."""
    rows: list[Row] = []
    for problem, published in paper.PARAMETERS.items():
        title = paper.PROBLEM_TITLES[problem]
        group = [
            Row(
                (title, PUBLISHED),
                tuple(Cell(published[m], f"{published[m]:.1f}") for m in paper.COMPARED),
                published=True,
            )
        ]
        if problem in PROBLEMS:
            counts = [_count(model, problem) for model in paper.COMPARED]
            for label, which in (("entries", 0), ("reals", 1)):
                cells = (Cell(count[which], f"{count[which] / 1e6:.2f}") for count in counts)
                group.append(Row((title, label), tuple(cells)))
        rows += _begun(group)
    return Table(
        "tables-6-12",
        "Tables 6 to 12",
        "Learnt parameters of the selected models, in millions",
        ("problem", "counted"),
        tuple(paper.MODEL_TITLES[m] for m in paper.COMPARED),
        tuple(rows),
        "A complex weight is one entry of a tensor and two real numbers: the paper counts the "
        "entries of FNO and the reals of GT. The hyper-parameters are the paper's; where two of "
        "its rows contradict its counts, the counts decide.",
    )


def hyper_parameters(number: int, model: str) -> Table:
    """Tables 6 to 12 one by one: what the selected models are made of and trained with."""
    network, training = model_class(model).PAPER, model_class(model).PAPER_TRAINING
    names = [name for name in network["poisson"] if name != "size"]
    rows = []
    for problem in paper.PROBLEM_TITLES:
        values = [network[problem][name] for name in names]
        values += [training[problem][name] for name in TRAINING_TITLES]
        rows.append(Row((paper.PROBLEM_TITLES[problem],), tuple(Cell(v, f"{v:g}") for v in values)))
    return Table(
        f"table-{number}",
        f"Table {number}",
        f"{paper.MODEL_TITLES[model]}: hyper-parameters of the selected models, as we run them",
        ("problem",),
        (*(name.replace("_", " ") for name in names), *TRAINING_TITLES.values()),
        tuple(rows),
    )


def vorticity(results: Results) -> Table:
    """The errors in the text of the supplement on a problem that coarse grids resolve."""
    models = tuple(paper.VORTICITY)
    rows = [_row((PUBLISHED,), paper.VORTICITY.values())]
    for budget in results.budgets:
        runs = (planned(budget, "vorticity", m) for m in models)
        rows.append(_row((_ours(budget),), [results.error(run, "test") for run in runs]))
    return Table(
        "vorticity",
        "SM, vorticity",
        "The counter-example of “On the Choice of the RPB benchmarks”: test error in percent",
        ("by",),
        tuple(paper.MODEL_TITLES[m] for m in models),
        tuple(_begun(rows)),
    )


def rankings(results: Results) -> list[dict[str, Any]]:
    """Where all models are measured: the best of them, ours and the paper's."""
    found = []
    for problem, split in _cases(results):
        published = paper.TABLE_1[problem, split]
        for budget in results.budgets:
            errors = {
                model: results.error(planned(budget, problem, model), split)
                for model in paper.COMPARED
            }
            known = {model: error for model, error in errors.items() if error is not None}
            if len(known) == len(errors):
                ours = min(known, key=lambda model: known[model])
                best = min(published.values())
                # Two models may share the first place at the published precision.
                winners = [model for model, error in published.items() if error == best]
                found.append(
                    {
                        "problem": problem,
                        "split": split,
                        "budget": budget.name,
                        "paper": winners,
                        "ours": ours,
                        "met": ours in winners,
                    }
                )
    return found


def percent(value: float | None) -> Cell:
    """An error as the paper prints it."""
    if value is None:
        return Cell()
    return Cell(value, f"{value:.2f}" if value < 100 else f"{value:.1f}")


def _group(
    results: Results,
    problem: str,
    split: str,
    space: str,
    models: Sequence[str],
    published: Mapping[tuple[str, str], Mapping[str, float]],
) -> list[Row]:
    """The rows of one problem and split: the paper's, then ours by budget."""
    labels = paper.PROBLEM_TITLES[problem], SPLIT_TITLES[split]
    rows = []
    if published:
        errors = [published[problem, split][model] for model in models]
        rows.append(_row((*labels, PUBLISHED), errors))
    for budget in results.budgets:
        ours = [results.error(planned(budget, problem, model), split, space) for model in models]
        rows.append(_row((*labels, _ours(budget)), ours))
    return rows


def _ours(budget: Budget) -> str:
    return f"ours, {budget.name}"


def _row(labels: tuple[str, ...], errors: Iterable[float | None]) -> Row:
    cells = tuple(mark_best([percent(error) for error in errors]))
    return Row(labels, cells, published=labels[-1] == PUBLISHED)


def mark_best(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the least of them marked, if there are others to compare with."""
    known = [cell.value for cell in cells if cell.value is not None]
    if len(known) < 2:
        return list(cells)
    return [replace(cell, best=cell.value == min(known)) for cell in cells]


def _begun(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, begins=i == 0) for i, row in enumerate(rows)]


def _problems(results: Results) -> list[str]:
    """The problems of the page: all, or those of a trial."""
    covered = {p for budget in results.budgets for p in budget.problems(paper.PROBLEM_TITLES)}
    trial = all(budget.trial for budget in results.budgets)
    return [problem for problem in paper.PROBLEM_TITLES if problem in covered or not trial]


def _cases(results: Results) -> list[tuple[str, str]]:
    return [(problem, split) for problem in _problems(results) for split in SPLIT_TITLES]


def _mean_field(results: Results, problem: str, split: str, space: str) -> Cell:
    """The mean field's error, which any run of the problem on all samples knows."""
    runs = (planned(b, problem, model) for b in results.budgets for model in paper.COMPARED)
    errors = (results.mean_field_error(run, split, space) for run in runs)
    return percent(next((error for error in errors if error is not None), None))


def _over_seeds(results: Results, budget: Budget, problem: str, model: str) -> Cell:
    runs = (planned(budget, problem, model, seed=seed) for seed in range(10))
    errors = [e for run in runs if (e := results.error(run, "test")) is not None]
    if not errors:
        return Cell()
    count = "" if len(errors) == 10 else f" ({len(errors)})"
    spread = f" ± {stdev(errors):.2f}" if len(errors) > 1 else ""
    return Cell(mean(errors), f"{mean(errors):.2f}{spread}{count}")


def _stands_in(results: Results) -> str:
    trial = [budget for budget in results.budgets if budget.trial]
    return f"Our trial is on the {trial[0].problems([])[0]} problem." if trial else ""


@cache
def _count(model: str, problem: str) -> ParameterCount:
    with torch.device("meta"):  # counted, not allocated
        return count_parameters(build_model(model, problem))
