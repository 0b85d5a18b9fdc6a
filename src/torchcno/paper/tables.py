"""The tables of the paper as pivots of the table of runs: one entry of `TABLES` each.

A new table is a new entry; a new column of Table 1 is a new entry of `COLUMNS`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import mean, stdev

from torchcno.models import ParameterCount
from torchcno.paper import published as paper
from torchcno.paper.files import MODES, SOLVERS
from torchcno.paper.pivots import (
    EMPTY,
    Cell,
    Pivot,
    Rows,
    Table,
    mark_best,
    percent,
    plain,
    rounded,
    span,
)
from torchcno.paper.protocol import contradicted_value, departures, our_value
from torchcno.paper.published import PowerLaw
from torchcno.paper.results import LEAST_SEEDS, Results
from torchcno.paper.studies import (
    FLOW,
    Budget,
    PlannedRun,
    filter_runs,
    planned,
    scaling_series,
    tap_runs,
)
from torchcno.runs.presets import parameter_count

SPLIT_TITLES = {"test": "in", "ood": "out"}
COST = "cost"  # a row of Table 1 beside those of splits
HOT = 10.0  # times the least error of a row: from there on a cell has the full colour
MODELS = tuple(reversed(paper.COMPARED))  # the CNO first


def all_tables(results: Results) -> list[Table]:
    """Every table of the paper, then what its text has numbers of."""
    return [pivot.make(name, results) for name, pivot in TABLES.items()]


def problem_title(problem: str) -> str:
    """As the paper calls a problem of its Table 1; others by their names."""
    return paper.PROBLEM_TITLES.get(problem, problem.capitalize())


def cases(results: Results, kinds: Iterable[str] = SPLIT_TITLES) -> list[tuple[str, str]]:
    """Problems and splits, or other kinds of rows."""
    return list(product(results.problems(), kinds))


def by_problem(results: Results) -> Rows:
    """A row per problem."""
    return [((problem_title(problem),), problem) for problem in results.problems()]


def by_case(results: Results, kinds: Mapping[str, str] = SPLIT_TITLES) -> Rows:
    """A row per problem and split, or other kinds with their titles."""
    return [((problem_title(p), kinds[kind]), (p, kind)) for p, kind in cases(results, kinds)]


def titled(models: Iterable[str]) -> dict[str, str]:
    """A column per model."""
    return {paper.MODEL_TITLES[model]: model for model in models}


# Table 1, and Table 13.


def error_cell(
    results: Results,
    budget: Budget,
    problem: str,
    model: str,
    split: str,
    space: str = "normalized",
) -> Cell:
    """The error of a run, with its name, its mean error and those of further seeds."""
    run = planned(budget, problem, model)
    record = results.record(run)
    if record is None:
        return Cell(title=f"{run.name}: not run")
    words = [run.name]
    if (average := record.error(split, space, "mean")) is not None:
        words.append(f"mean {percent(average).text}")
    seeds = results.errors_by_seed(budget, problem, model, split) if space == "normalized" else {}
    if len(seeds) > 1:
        words.append(f"{len(seeds)} seeds {spread(seeds.values())}")
    return percent(record.error(split, space), "; ".join(words))


def cost_cell(results: Results, budget: Budget, problem: str, model: str) -> Cell:
    """The size of a network, and the time of an epoch."""
    record = results.record(planned(budget, problem, model))
    if record is None or budget != results.budgets[0]:
        return Cell()
    entries = record["parameters"]
    size = millions(model, ParameterCount(entries, record.row.get("real_parameters", entries)))
    seconds = record["seconds_per_epoch"]
    text, title = f"{size:.1f}M {seconds:.2g}s", f"{record.name}, {record['device']}"
    return Cell({"parameters": size, "seconds_per_epoch": seconds}, text, title=title)


def mean_field_error(results: Results, problem: str, split: str, space: str) -> float | None:
    """The error of the mean training output, whatever the input: every run of a problem knows."""
    runs = (planned(b, problem, model) for b in results.budgets for model in MODELS)
    errors = (r.mean_field_error(split, space) for run in runs if (r := results.record(run)))
    return next((error for error in errors if error is not None), None)


# The columns of Table 1: networks, and what gives the error of a simpler answer.
Column = str | Callable[[Results, str, str, str], float | None]
COLUMNS: dict[str, Column] = {
    **titled(MODELS),
    "mean field": mean_field_error,
    "linear map": Results.linear_error,  # ridge regression from inputs to outputs
}


def table_1_cell(
    results: Results,
    budget: Budget,
    row: tuple[str, str],
    column: Column,
    space: str = "normalized",
) -> Cell:
    """An error, or what a network costs. Simpler answers have the same error for all budgets."""
    problem, kind = row
    if isinstance(column, str):
        if kind == COST:
            return cost_cell(results, budget, problem, column)
        return error_cell(results, budget, problem, column, kind, space)
    if kind == COST or budget != results.budgets[0]:
        return EMPTY
    return percent(column(results, problem, kind, space))


def table_1_published(row: tuple[str, str], column: Column) -> Cell:
    """The paper's errors and sizes."""
    problem, kind = row
    if not isinstance(column, str):
        return EMPTY
    if kind == COST:
        size = paper.PARAMETERS[problem][column]
        return Cell({"parameters": size}, f"{size:.1f}M")
    return percent(paper.TABLE_1[row][column])


def mark_networks(
    results: Results, budget: Budget, row: tuple[str, str], cells: Sequence[Cell]
) -> list[Cell]:
    """The least error in bold where all networks have one, and colours where any has."""
    if row[1] == COST:
        return list(cells)
    networks = heated(mark_best(results, budget, row, cells[: len(MODELS)]))
    return [*networks, *cells[len(MODELS) :]]


def heated(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with how many times the least error they have, on a logarithmic scale."""
    least = min((cell.rank for cell in cells if cell.rank), default=None)
    return [
        replace(cell, heat=min(1.0, math.log(cell.rank / least, HOT)))
        if least and cell.rank
        else cell
        for cell in cells
    ]


def millions(model: str, count: ParameterCount) -> float:
    """Parameters as the paper counts them: the real numbers of GT, else entries of tensors."""
    return (count.reals if model == "galerkin-transformer" else count.entries) / 1e6


def mark_beyond_chance(
    results: Results, budget: Budget, row: tuple[str, str], cells: Sequence[Cell]
) -> list[Cell]:
    """The best of Table 13, where ablations lie beyond the CNO of every initialisation."""
    of_cno = results.errors_by_seed(budget, row[0], "cno", row[1]).values()
    ablated = [cell.rank for cell in cells[1:] if cell.rank is not None]
    known = ablated and of_cno
    if known and (min(ablated) > max(of_cno) or min(ablated) < min(of_cno)):
        return mark_best(results, budget, row, cells)
    return list(cells)


# Table 4.


def seeds_cell(results: Results, budget: Budget, problem: str, model: str) -> Cell:
    """Mean, deviation where there are enough seeds, and how many where some are missing."""
    errors = list(results.errors_by_seed(budget, problem, model).values())
    if not errors:
        return Cell()
    numbers: dict[str, float] = {
        "mean": mean(errors), "seeds": len(errors), "least": min(errors), "most": max(errors),
    }  # fmt: skip
    if len(errors) >= LEAST_SEEDS:
        numbers["std"] = stdev(errors)
    count = "" if len(errors) == budget.seeds else f" ({len(errors)} of {budget.seeds})"
    return mean_and_deviation(numbers, count)


def mean_and_deviation(numbers: Mapping[str, float], count: str = "") -> Cell:
    """ "0.30 ± 0.10"."""
    deviation = f" ± {numbers['std']:.2f}" if "std" in numbers else ""
    return Cell(numbers, f"{numbers['mean']:.2f}{deviation}{count}")


def mark_same_seeds(
    results: Results, budget: Budget, problem: str, cells: Sequence[Cell]
) -> list[Cell]:
    """The least mean, where all models were trained from the same seeds, and from enough."""
    seeds = {tuple(results.errors_by_seed(budget, problem, model)) for model in paper.SEEDED}
    enough = min(map(len, seeds)) >= min(LEAST_SEEDS, budget.seeds)
    return mark_best(results, budget, problem, cells) if len(seeds) == 1 and enough else list(cells)


# Tables 2 and 3, and the counter-example.


def run_cell(results: Results, run: PlannedRun | None, statistic: str = "median") -> Cell:
    """A statistic of the test error of a run, if it is planned."""
    if run is None:
        return Cell()
    record = results.record(run)
    error = None if record is None else record.error("test", statistic=statistic)
    return percent(error, run.name)


# Numbers of the text.


def resolution_cell(results: Results, budget: Budget, model: str, grids: str) -> Cell:
    """The largest error on other grids over that at training."""
    (problem,) = budget.problems([FLOW])
    record = results.record(planned(budget, problem, model))
    curve = record and record.resolutions()
    if not curve:
        return Cell()
    ratios = {
        "coarser": [ratio for n, ratio in curve.relative.items() if n < curve.training],
        "finer": [ratio for n, ratio in curve.relative.items() if n > curve.training],
        "any": list(curve.relative.values()),
    }[grids]
    return plain(rounded(max(ratios)) if ratios else None, ".2f")


def scaling_rows(results: Results) -> Rows:
    """The series of Figures 3 (right) and 27."""
    every = dict.fromkeys(key for budget in results.budgets for key in scaling_series(budget))
    return [((problem_title(p), series_title(label)), (p, label)) for p, label in every]


def series_title(label: str) -> str:
    """How a series of `scaling_series` is called: a model, or the small CNO."""
    return paper.MODEL_TITLES.get(label, label.replace("cno", "CNO"))


def series_errors(results: Results, runs: Mapping[int, PlannedRun]) -> dict[int, float]:
    """The test errors of the finished runs of a series, by their numbers of samples."""
    return {n: error for n, run in runs.items() if (error := results.error(run, "test"))}


def fit_law(errors: Mapping[int, float]) -> PowerLaw | None:
    """E = (N / N_0)^{−r}; None where two points are not there yet."""
    return PowerLaw.fit(list(errors), list(errors.values())) if len(errors) > 1 else None


def law_numbers(law: PowerLaw | None) -> tuple[float | None, float | None]:
    """r and N_0 of a law, as far as it has any."""
    if law is None:
        return None, None
    samples = law.samples_for_one_percent
    return rounded(law.rate), samples and rounded(samples)


def scaling_cell(results: Results, budget: Budget, row: tuple[str, str], what: str) -> Cell:
    """A constant of the law fitted to our errors, or the network's size."""
    runs = scaling_series(budget).get(row, {})
    errors = series_errors(results, runs)
    if not errors:
        return Cell()
    if what == "runs":
        return plain(len(errors))
    if what == "parameters (M)":
        config = next(iter(runs.values())).config
        count = parameter_count(config.model, config.architecture)
        return plain(millions(config.model, count), ".2f")
    rate, samples = law_numbers(fit_law(errors))
    return plain(rate, "z.2f") if what == "r" else plain(samples, ".0f")


def scaling_published(row: tuple[str, str], what: str) -> Cell:
    """r, N_0 and the size, where the text gives them."""
    problem, label = row
    if problem != FLOW:
        return plain(paper.FIGURE_27_CNO_RATE) if (label, what) == ("cno", "r") else EMPTY
    rate, samples = law_numbers(paper.SCALING.get(label))
    return {
        "r": plain(rate or paper.SMALL_CNO_RATE),
        "N_0": plain(samples, ".0f"),
        "parameters (M)": plain(paper.SCALING_PARAMETERS.get(label)),
        "runs": EMPTY,
    }[what]


def seconds_cell(results: Results, budget: Budget, problem: str, what: str) -> Cell:
    """Seconds per sample: of the solver where it is fastest, of a network at the end of its run."""
    found = []
    if what == "solver":
        benches = results.every(SOLVERS).values()
        found = [(seconds[problem], on) for on, seconds in benches if problem in seconds]
    elif record := results.record(planned(budget, problem, what)):
        found = [(1 / record["inference"]["samples_per_second"], record.name)]
    seconds, on = min(found, default=(None, ""))
    return replace(plain(seconds, ".1e"), title=on)


def speedup_cell(results: Results, budget: Budget, problem: str, model: str) -> Cell:
    """The time of a training step over that of the ablated model, which took turns with it."""
    if problem != FLOW:  # the only one that `cno bench` trains
        return EMPTY
    name = model.removeprefix("cno-")
    steps = [(b["device"], b.get("training", {}).get("fused", {})) for b in results.benches]
    known = [
        (device, -step["rounds"], step["ratios"][name])
        for device, step in steps
        if name in step.get("ratios", {}) and "rounds" in step
    ]
    device, _, ratio = min(known, default=("", 0, None))
    return replace(plain(ratio, ".3f"), title=device)


def hyper_parameters(number: int, model: str) -> Pivot:
    """Tables 6 to 12: what the selected models are made of and trained with."""
    columns = {
        name.replace("_", " "): name
        for name in (*paper.HYPER_PARAMETER_COLUMNS[model], "batch_size")
    }
    return Pivot(
        f"Table {number}",
        f"{paper.MODEL_TITLES[model]}: hyper-parameters",
        ("problem",),
        by_problem,
        columns,
        lambda results, budget, problem, field: plain(our_value(model, problem, field)),
        lambda problem, field: plain(contradicted_value(model, problem, field)),
        by_budget=False,
    )


TABLES: dict[str, Pivot] = {
    "table-1": Pivot(
        "Table 1",
        "Median relative L1 error in percent, in and out of distribution",
        ("problem", "what"),
        partial(by_case, kinds={**SPLIT_TITLES, COST: "size, epoch"}),
        COLUMNS,
        table_1_cell,
        table_1_published,
        mark_networks,
    ),
    "table-4": Pivot(
        "Table 4",
        "Initialisations: mean ± standard deviation of the test error in percent",
        ("problem",),
        by_problem,
        titled(paper.SEEDED),
        seeds_cell,
        lambda problem, model: mean_and_deviation(vars(paper.SEEDS[problem][model])),
        mark_same_seeds,
    ),
    "table-13": Pivot(
        "Table 13",
        "Ablations: median relative L1 error in percent",
        ("problem", "split"),
        by_case,
        titled(paper.ABLATED),
        lambda results, budget, row, model: error_cell(results, budget, row[0], model, row[1]),
        lambda row, model: percent(paper.TABLE_13[row][model]),
        mark_beyond_chance,
    ),
    "ablation-times": Pivot(
        "Table 13, training time",
        "The CNO's training time over that of the ablated network",
        ("problem",),
        by_problem,
        titled(paper.ABLATION_SPEEDUPS),
        speedup_cell,
        lambda problem, model: span(paper.ABLATION_SPEEDUPS[model].get(problem)),
        by_budget=False,
    ),
    "table-2": Pivot(
        "Table 2",
        "Filters of the CNO, Navier-Stokes equations: test error in percent",
        ("upsampling",),
        lambda results: [((f"N_σ = {n}",), n) for n in sorted({n for n, _ in paper.FILTERS})],
        {f"c_h = {c:g}": c for c in paper.HALF_WIDTHS},
        lambda results, budget, *key: run_cell(results, filter_runs(budget).get(key)),
        lambda upsampling, half_width: percent(paper.FILTERS[upsampling, half_width]),
        mark_best,
    ),
    "table-3": Pivot(
        "Table 3",
        "Taps of the CNO's filters, Navier-Stokes equations: test error in percent",
        ("what",),
        lambda results: [(("error",), None)],
        {f"N_tap = {taps}": taps for taps in paper.TAPS},
        lambda results, budget, row, taps: run_cell(results, tap_runs(budget).get(taps)),
        lambda row, taps: percent(paper.TAPS[taps]),
        mark_best,
    ),
    "resolution": Pivot(
        "Figure 2, right, in numbers",
        "The largest test error on other grids over that on the grid of training",
        ("model",),
        lambda results: [((paper.MODEL_TITLES[m],), m) for m in paper.SEEDED],
        {f"{grids} grids": grids for grids in ("coarser", "finer", "any")},
        resolution_cell,
        lambda model, grids: plain(paper.RESOLUTION_FACTORS[model].get(grids), ".2f"),
    ),
    "scaling": Pivot(
        "Figures 3, right, and 27, in numbers",
        "Power laws E = (N / N_0)^(-r) of the test error E in percent against training samples N",
        ("problem", "model"),
        scaling_rows,
        {what: what for what in ("r", "N_0", "runs", "parameters (M)")},
        scaling_cell,
        scaling_published,
    ),
    "modes": Pivot(
        "Figure 26, in numbers",
        "Modes per axis that approximate the outputs",
        ("problem", "up to"),
        lambda results: [
            ((problem_title(problem), f"{said.statistic} error {said.error:.0%}"), problem)
            for problem, said in paper.MODES.items()
        ],
        {"modes": "modes_for_published_error"},
        lambda results, budget, problem, what: plain(
            (results.only(MODES) or {}).get(problem, {}).get(what)
        ),
        lambda problem, column: plain(paper.MODES[problem].modes),
        by_budget=False,
    ),
    "seconds": Pivot(
        "SM, times",
        "Seconds per sample of solvers and of trained networks",
        ("problem",),
        lambda results: [((problem_title(problem),), problem) for problem in paper.SECONDS],
        {"solver": "solver", **titled(("cno", "fno"))},
        seconds_cell,
        lambda problem, what: plain(paper.SECONDS[problem].get(what), ".0e"),
        by_budget=False,
    ),
    "vorticity": Pivot(
        "SM, vorticity",
        "A problem that coarse grids resolve: test error in percent",
        ("problem",),
        lambda results: [(("Vorticity",), "vorticity")],
        titled(paper.VORTICITY),
        lambda results, budget, problem, model: (
            error_cell(results, budget, problem, model, "test")
            if problem in budget.problems([problem])
            else EMPTY
        ),
        lambda row, model: percent(paper.VORTICITY[model]),
        mark_best,
    ),
    "table-1-physical": Pivot(
        "Table 1, physical",
        "Median relative L1 error of physical fields, in percent",
        ("problem", "split"),
        by_case,
        COLUMNS,
        partial(table_1_cell, space="physical"),
        mark=mark_networks,
    ),
    "departures": Pivot(
        "Table 1, protocol",
        "Where our preset “paper” departs from the paper's text",
        ("what", "models", "section of the SM"),
        lambda results: [((d.title, d.models, d.place), d) for d in departures()],
        {"value": None},
        lambda results, budget, row, column: plain(row.ours),
        lambda row, column: plain(row.text),
        by_budget=False,
    ),
    "hypernos": Pivot(
        "Another group",
        "Mean test error in percent, beside trainings of others on the authors' files",
        ("problem",),
        by_problem,
        titled(("cno", "fno")),
        lambda results, budget, *pair: run_cell(results, planned(budget, *pair), "mean"),
        lambda problem, model: plain(" → ".join(f"{e:g}" for e in paper.HYPERNOS[problem][model])),
    ),
    "table-5": Pivot(
        "Table 5",
        "Fewest and most parameters in the authors' search, in millions, as published",
        ("problem",),
        by_problem,
        titled(paper.PARAMETER_RANGES["poisson"]),
        lambda results, budget, problem, model: span(paper.PARAMETER_RANGES[problem][model]),
        by_budget=False,
    ),
    **{f"table-{n}": hyper_parameters(n, m) for n, m in paper.HYPER_PARAMETER_TABLES.items()},
}


# Ranks.


def ranks(errors: Mapping[str, float]) -> dict[str, int]:
    """1 for the least error; equal errors share a rank."""
    return {m: 1 + sum(other < error for other in errors.values()) for m, error in errors.items()}


def first(errors: Mapping[str, float]) -> set[str]:
    """The models of the least error."""
    return {model for model, rank in ranks(errors).items() if rank == 1}


def complete_rows(results: Results, budget: Budget) -> dict[tuple[str, str], dict[str, float]]:
    """The errors by model of the problems and splits where all models are measured."""
    found = {}
    for problem, split in cases(results):
        errors = {m: results.error(planned(budget, problem, m), split) for m in MODELS}
        known = {model: error for model, error in errors.items() if error is not None}
        if len(known) == len(MODELS):
            found[problem, split] = known
    return found


def spread(errors: Collection[float]) -> str:
    """The least and the largest of several errors in percent."""
    return "–".join(percent(end(errors)).text for end in (min, max))
