"""The tables of the paper with our numbers beside the published ones, as data."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev

from torchcno.paper import published as paper
from torchcno.paper.report.cells import (
    EMPTY,
    PUBLISHED,
    SPLIT_TITLES,
    Cell,
    Row,
    Table,
    begun,
    between,
    ends,
    mark_best,
    ours,
    percent,
    plain,
    row_of_errors,
    unmarked,
)
from torchcno.paper.report.notes import notes_on_table_1
from torchcno.paper.report.protocol import departures, hyper_parameters, tables_6_to_12
from torchcno.paper.report.rankings import ranking_table
from torchcno.paper.report.results import LEAST_SEEDS, Results
from torchcno.paper.report.statements import (
    ablation_times,
    inference_times,
    modes,
    resolution_changes,
    scaling_laws,
    stands_in,
    vorticity,
)
from torchcno.paper.studies import filter_runs, planned, tap_runs


def all_tables(results: Results) -> list[Table]:
    """Every table of the paper, in its order, then what its text has numbers of."""
    return [
        table_1(results, "normalized"),
        departures(results),
        ranking_table(results, cases(results)),
        table_1(results, "physical"),
        table_2(results),
        table_3(results),
        table_4(results),
        table_5(),
        tables_6_to_12(),
        *(hyper_parameters(n, model) for n, model in paper.HYPER_PARAMETER_TABLES.items()),
        table_13(results),
        ablation_times(results, _problems(results)),
        resolution_changes(results),
        scaling_laws(results),
        modes(results),
        inference_times(results),
        vorticity(results),
    ]


def table_1(results: Results, space: str) -> Table:
    """Errors of all models, in and out of distribution; published ones are of scaled fields."""
    rows: list[Row] = []
    scaled = space == "normalized"
    published = paper.TABLE_1 if scaled else {}
    for problem, split in cases(results):
        group = _group(results, problem, split, space, paper.COMPARED, published)
        if scaled:
            group += _all_initialisations(results, problem, split, paper.COMPARED)
        networks = [replace(row, cells=(*row.cells, EMPTY)) for row in group]
        labels = paper.PROBLEM_TITLES[problem], SPLIT_TITLES[split]
        others = {
            "mean field": mean_field(results, problem, split, space),
            "linear map": percent(results.linear_error(problem, split, space)),
        }
        blank = (EMPTY,) * len(paper.COMPARED)
        rows += begun(
            [*networks, *(Row((*labels, by), (*blank, cell)) for by, cell in others.items())]
        )
    return Table(
        "table-1" if scaled else "table-1-physical",
        "Table 1" if scaled else "Table 1, physical",
        "Relative median L1 errors in percent, "
        + ("of fields scaled to [0, 1], as published" if scaled else "of physical fields"),
        ("problem", "split", "by"),
        (*(paper.MODEL_TITLES[m] for m in paper.COMPARED), "no network"),
        tuple(rows),
        "The mean field is the training set's mean output, whatever the input: an error near it "
        "means that nothing was learnt. The linear map is ridge regression on the training samples "
        "(python validation/linear.py): an error above it means that a matrix would have done "
        "better. The published errors are the best of a search, of one initialisation; Table 4 has "
        "those of ten. Ours are of one, and a row of seeds has the least and the largest "
        "error of the networks that were trained from several; best of a row is marked where it is "
        "complete."
        + notes_on_table_1(results, cases(results))
        + " docs/training.md has more, problem by problem."
        if scaled
        else "Rows and columns are those of Table 1. Fields that begin at zero, those of smooth "
        "transport and of darcy, have the same relative errors there, but for rounding and noise. "
        "Those of discontinuous transport begin a little below zero, at about -0.0006, since their "
        "band is limited: their physical errors are about 1 % larger.",
    )


def table_13(results: Results) -> Table:
    """The two ablations."""
    rows: list[Row] = []
    for problem, split in cases(results):
        published, *group = _group(
            results, problem, split, "normalized", paper.ABLATED, paper.TABLE_13
        )
        for i, budget in enumerate(results.budgets):
            of_cno = results.errors_by_seed(budget, problem, "cno", split).values()
            if not _beyond_chance(group[i], of_cno):
                group[i] = unmarked(group[i])
        ranges = _all_initialisations(results, problem, split, paper.ABLATED)
        rows += begun([published, *group, *ranges])
    return Table(
        "table-13",
        "Table 13",
        "Ablations: relative median L1 errors in percent, of fields scaled to [0, 1]",
        ("problem", "split", "by"),
        tuple(paper.MODEL_TITLES[m] for m in paper.ABLATED),
        tuple(rows),
        "One initialisation each; where there are more of the CNO, a row has the least and the "
        "largest of their errors. A difference within that is none, and no best is marked there. "
        "The paper's CNO of discontinuous transport has other errors here than in its Table 1.",
    )


def _beyond_chance(row: Row, of_cno: Collection[float]) -> bool:
    """Whether the best ablation is worse, or better, than the CNO of every initialisation."""
    ablated = [cell.rank for cell in row.cells[1:] if cell.rank is not None]
    known = ablated and of_cno
    return bool(known) and (min(ablated) > max(of_cno) or min(ablated) < min(of_cno))


def _all_initialisations(
    results: Results, problem: str, split: str, models: Sequence[str]
) -> list[Row]:
    """The least and the largest errors of models with several, a row for each budget."""
    labels = paper.PROBLEM_TITLES[problem], SPLIT_TITLES[split]
    rows = []
    for budget in results.budgets:
        found = [results.errors_by_seed(budget, problem, model, split).values() for model in models]
        if any(len(errors) > 1 for errors in found):
            cells = tuple(between(errors) if len(errors) > 1 else EMPTY for errors in found)
            rows.append(Row((*labels, f"{ours(budget)}, seeds"), cells))
    return rows


def table_2(results: Results) -> Table:
    """Filter widths against the upsampling of the activation."""
    widths = paper.HALF_WIDTHS
    rows: list[Row] = []
    for upsampling in sorted({n for n, _ in paper.FILTERS}):
        label = f"N_σ = {upsampling}"
        group = [row_of_errors((label, PUBLISHED), [paper.FILTERS[upsampling, c] for c in widths])]
        for budget in results.budgets:
            runs = filter_runs(budget)
            found = [runs.get((upsampling, c)) for c in widths]
            errors = [None if run is None else results.error(run, "test") for run in found]
            group.append(row_of_errors((label, ours(budget)), errors))
        rows += begun(group)
    return Table(
        "table-2",
        "Table 2",
        "Filters of the CNO on the Navier-Stokes equations: test error in percent by the filter's "
        "half-width c_h and the activation's upsampling N_σ",
        ("upsampling", "by"),
        tuple(f"c_h = {c:g}" for c in widths),
        tuple(rows),
        stands_in(results).strip(),
    )


def table_3(results: Results) -> Table:
    """The number of taps, and the time of an epoch, which the text has of two."""
    rows = [row_of_errors(("error", PUBLISHED), paper.TAPS.values())]
    seconds = tuple(plain(paper.TAP_SECONDS.get(taps), ".2f") for taps in paper.TAPS)
    for budget in results.budgets:
        by_taps = tap_runs(budget)
        runs = [by_taps.get(taps) for taps in paper.TAPS]
        errors = [None if run is None else results.error(run, "test") for run in runs]
        rows.append(row_of_errors(("error", ours(budget)), errors))
    times = [Row(("seconds an epoch", PUBLISHED), seconds, published=True)]
    return Table(
        "table-3",
        "Table 3",
        "Taps of the CNO's filters on the Navier-Stokes equations, N_σ = 2, c_h = 0.8: test error "
        "in percent, and seconds an epoch",
        ("what", "by"),
        tuple(f"N_tap = {taps}" for taps in paper.TAPS),
        (*begun(rows), *begun(times)),
        "The paper gives times of two columns and not the device. Our runs may have shared a "
        "device, so that their times compare nothing and are not shown." + stands_in(results),
    )


def table_4(results: Results) -> Table:
    """Initialisations: mean and standard deviation."""
    rows: list[Row] = []
    for problem in _problems(results):
        title = paper.PROBLEM_TITLES[problem]
        published = mark_best([_mean_and_deviation(vars(s)) for s in paper.SEEDS[problem].values()])
        group = [Row((title, PUBLISHED), tuple(published), published=True)]
        for budget in results.budgets:
            found = [results.errors_by_seed(budget, problem, model) for model in paper.SEEDED]
            cells = [_over_seeds(list(errors.values()), budget.seeds) for errors in found]
            alike = len({tuple(errors) for errors in found}) == 1
            enough = alike and len(found[0]) >= min(LEAST_SEEDS, budget.seeds)
            group.append(Row((title, ours(budget)), tuple(mark_best(cells) if enough else cells)))
        rows += begun(group)
    return Table(
        "table-4",
        "Table 4",
        "Initialisations: mean ± standard deviation of the test errors in percent, and how many "
        "initialisations where some are missing",
        ("problem", "by"),
        tuple(paper.MODEL_TITLES[m] for m in paper.SEEDED),
        tuple(rows),
        f"In our rows ± is the sample standard deviation (n - 1), given from {LEAST_SEEDS} "
        "initialisations on. The best is marked from as many on, where all were trained from the "
        "same ones.",
    )


def table_5() -> Table:
    """Sizes that the authors' search covered."""
    models = tuple(paper.PARAMETER_RANGES["poisson"])
    rows = [
        Row(
            (paper.PROBLEM_TITLES[problem],),
            tuple(ends(r) for r in ranges.values()),
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


def mean_field(results: Results, problem: str, split: str, space: str = "normalized") -> Cell:
    """The mean field's error, which any run of the problem on all samples knows."""
    runs = (planned(b, problem, model) for b in results.budgets for model in paper.COMPARED)
    errors = (results.mean_field_error(run, split, space) for run in runs)
    return percent(next((error for error in errors if error is not None), None))


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
        rows.append(row_of_errors((*labels, PUBLISHED), errors))
    for budget in results.budgets:
        found = [results.error(planned(budget, problem, model), split, space) for model in models]
        rows.append(row_of_errors((*labels, ours(budget)), found))
    return rows


def _problems(results: Results) -> list[str]:
    """The problems of the page: all, or those of a trial."""
    covered = {p for budget in results.budgets for p in budget.problems(paper.PROBLEM_TITLES)}
    trial = all(budget.trial for budget in results.budgets)
    return [problem for problem in paper.PROBLEM_TITLES if problem in covered or not trial]


def cases(results: Results) -> list[tuple[str, str]]:
    """The rows of Table 1: problems and splits."""
    return [(problem, split) for problem in _problems(results) for split in SPLIT_TITLES]


def _over_seeds(errors: Sequence[float], most: int) -> Cell:
    """Mean, deviation where there are enough, and how many where they are fewer than `most`."""
    if not errors:
        return Cell()
    numbers = {"mean": mean(errors), "seeds": len(errors)}
    if len(errors) >= LEAST_SEEDS:
        numbers["std"] = stdev(errors)
    count = "" if len(errors) == most else f" ({len(errors)} of {most})"
    return _mean_and_deviation(numbers, count)


def _mean_and_deviation(numbers: Mapping[str, float], count: str = "") -> Cell:
    deviation = f" ± {numbers['std']:.2f}" if "std" in numbers else ""
    return Cell(numbers, f"{numbers['mean']:.2f}{deviation}{count}")
