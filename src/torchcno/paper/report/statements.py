"""What the paper has in its text and in no table: its numbers beside ours, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.paper import published as paper
from torchcno.paper.figures.curves import Scaling
from torchcno.paper.report.cells import (
    EMPTY,
    PUBLISHED,
    Cell,
    Row,
    Table,
    begun,
    ends,
    given,
    ours,
    plain,
    problem_title,
    row_of_errors,
)
from torchcno.paper.report.other_files import MODES, SOLVERS
from torchcno.paper.report.protocol import millions
from torchcno.paper.report.results import Results
from torchcno.paper.studies import (
    FLOW,
    PlannedRun,
    planned,
    scaling_series,
)
from torchcno.runs.bench import prediction_name
from torchcno.runs.presets import build_problem, parameter_count

FACTORS = ("coarser", "finer", "any")  # grids, as `paper.RESOLUTION_FACTORS` has them


def resolution_changes(results: Results) -> Table:
    """How much larger errors are on other grids than that of training."""
    rows: list[Row] = []
    for model in paper.SEEDED:
        title = paper.MODEL_TITLES[model]
        group = [_factors((title, PUBLISHED), paper.RESOLUTION_FACTORS[model])]
        for budget in results.budgets:
            (problem,) = budget.problems([FLOW])
            curve = results.resolutions(planned(budget, problem, model), title)
            group.append(_factors((title, ours(budget)), factors(curve) if curve else {}))
        rows += begun(group)
    return Table(
        "resolution",
        "Figure 2, right, in numbers",
        "The largest test error on other grids over that on the grid of training, Navier-Stokes "
        "equations",
        ("model", "by"),
        tuple(f"{which} grids" for which in FACTORS),
        tuple(rows),
        "The text calls the CNO's error invariant, and has only the largest factor of U-Net."
        + stands_in(results),
    )


def factors(curve: ResolutionCurve) -> dict[str, float]:
    """The largest error on coarser, on finer and on any grids over that at the trained one."""
    grids = {
        "coarser": [ratio for n, ratio in curve.relative.items() if n < curve.training],
        "finer": [ratio for n, ratio in curve.relative.items() if n > curve.training],
        "any": list(curve.relative.values()),
    }
    return {which: rounded(max(ratios)) for which, ratios in grids.items() if ratios}


def _factors(labels: tuple[str, ...], found: Mapping[str, float]) -> Row:
    cells = tuple(plain(found.get(which), ".2f") for which in FACTORS)
    return Row(labels, cells, published=labels[-1] == PUBLISHED)


def scaling_laws(results: Results) -> Table:
    """Figures 3 (right) and 27: E = (N / N_0)^{−r}, and the size of the network."""
    by_budget = {budget.name: scaling_series(budget) for budget in results.budgets}
    rows: list[Row] = []
    for problem, label in dict.fromkeys(key for series in by_budget.values() for key in series):
        labels = paper.PROBLEM_TITLES[problem], series_title(label)
        published = _published_law(problem, label)
        group = [Row((*labels, PUBLISHED), published, published=True)] if published else []
        for budget in results.budgets:
            runs = by_budget[budget.name].get((problem, label))
            if runs is not None:
                group.append(Row((*labels, ours(budget)), _our_law(results, runs)))
        rows += begun(group)
    return Table(
        "scaling",
        "Figures 3, right, and 27, in numbers",
        "Power laws E = (N / N_0)^(-r) of the test error E in percent against the number N of "
        "training samples, fitted to so many runs, and parameters in millions",
        ("problem", "model", "by"),
        ("r", "N_0", "runs", "parameters"),
        tuple(rows),
        f"The text's best CNO has {paper.SCALING_PARAMETERS['cno']:g}M parameters, and its "
        f"settings are not given. That of Table 12 has {paper.PARAMETERS[FLOW]['cno']:g}M: ours is "
        f"that one. The rate of {paper.FIGURE_27_CNO_RATE:g} is given beside Figure 27 for CNO "
        "without saying on which problem. Printed is (N_0 / N)^(-r), which would grow with N. "
        "Errors that do not fall with N have no N_0.",
    )


def _published_law(problem: str, label: str) -> tuple[Cell, ...]:
    """r, N_0 and the size, where they are given; nothing where none is."""
    if problem != FLOW:
        return (plain(paper.FIGURE_27_CNO_RATE), Cell(), EMPTY, Cell()) if label == "cno" else ()
    size = plain(paper.SCALING_PARAMETERS.get(label))
    law = paper.SCALING.get(label)
    if law is None:
        return plain(paper.SMALL_CNO_RATE), Cell(), EMPTY, size
    samples = law.samples_for_one_percent
    return plain(law.rate), plain(samples and rounded(samples), ".0f"), EMPTY, size


def _our_law(results: Results, runs: Mapping[int, PlannedRun]) -> tuple[Cell, ...]:
    config = next(iter(runs.values())).config
    count = parameter_count(config.model, config.architecture)
    size = given(plain(millions(config.model, count), ".2f"))
    found = scaling_of(results, runs)
    number = given(plain(len(found.samples)) if found.samples else Cell())
    if found.law is None:
        return Cell(), Cell(), number, size
    rate, samples = found.law.rate, found.law.samples_for_one_percent
    needed = Cell() if samples is None else plain(rounded(samples), ".0f")
    return plain(rounded(rate), "z.2f"), needed, number, size


def series_title(label: str) -> str:
    """How a series of `scaling_series` is called: a model, or the small CNO."""
    return paper.MODEL_TITLES.get(label, label.replace("cno", "CNO"))


def scaling_of(results: Results, runs: Mapping[int, PlannedRun]) -> Scaling:
    """The test errors of those runs of a series that are finished, by their numbers of samples."""
    errors = {n: e for n, run in runs.items() if (e := results.error(run, "test"))}
    return Scaling(list(errors), list(errors.values()))


def modes(results: Results) -> Table:
    """Figure 26: how many modes an axis a solution needs."""
    found = results.only(MODES) or {}
    rows: list[Row] = []
    for problem, published in paper.MODES.items():
        title = problem_title(problem)
        what = f"{published.statistic} error {published.error:.0%}"
        group = [Row((title, what, PUBLISHED), (plain(published.modes),), published=True)]
        # A case is a problem, or a problem with another reading of a constant.
        cases = [name for name in found if name.split(",")[0] == problem] or [problem]
        for name in cases:
            by = name.removeprefix(problem).replace(", ", "ours, ") or "ours"
            needed = found.get(name, {}).get("modes_for_published_error")
            group.append(Row((title, what, by), (plain(needed),)))
        rows += begun(group)
    return Table(
        "modes",
        "Figure 26, in numbers",
        "Modes an axis that approximate the outputs",
        ("problem", "up to", "by"),
        ("modes",),
        tuple(rows),
        "N modes are those of N points an axis, |k| < N/2, as the paper's text counts them; its "
        "formula, |k| ≤ N, would halve ours. The published ones are round numbers. s is the factor "
        "of the covariance of the initial vorticity: 7^(3/2) as printed, or 7³ where that is read "
        "as an amplitude.",
    )


def inference_times(results: Results) -> Table:
    """What the supplement compares: seconds a sample of solvers and of trained networks."""
    rows: list[Row] = []
    for problem, published in paper.SECONDS.items():
        title = problem_title(problem)
        said = {paper.MODEL_TITLES.get(what, what): value for what, value in published.items()}
        found: list[tuple[str, float | None]] = []
        for what in published:
            if what in paper.MODEL_TITLES:
                measured = _network_seconds(results, problem, what)
            else:
                measured = _solver_seconds(results, problem)
            found += measured or [(paper.MODEL_TITLES.get(what, what), None)]
        group = [
            Row((title, f"{PUBLISHED}, {what}"), (plain(seconds, ".0e"),), published=True)
            for what, seconds in said.items()
        ]
        group += [Row((title, f"ours, {what}"), (plain(value, ".2e"),)) for what, value in found]
        rows += begun(group)
    return Table(
        "seconds",
        "SM, times",
        "Seconds a sample of solvers and of trained networks",
        ("problem", "by"),
        ("seconds",),
        tuple(rows),
        "The published ones are orders of magnitude: of the solver on a grid that suffices for the "
        "network's error, and of networks on an NVIDIA Quadro T2000. Ours are of the solver as "
        "data are made, a process a core or in batches (python benchmarks/solvers.py), and of "
        "networks by cno bench unless a row says otherwise.",
    )


def _solver_seconds(results: Results, problem: str) -> list[tuple[str, float]]:
    """On each device that was measured."""
    benches = results.every(SOLVERS).values()
    return [(f"solver, {on}", seconds[problem]) for on, seconds in benches if problem in seconds]


def _network_seconds(results: Results, problem: str, model: str) -> list[tuple[str, float]]:
    """By `cno bench` where it has the network, else as runs measured it at their ends."""
    if model == "cno" and (benched := _benched_seconds(results, problem)):
        found = benched
    else:
        found = _run_seconds(results, problem, model)
    return [(f"{paper.MODEL_TITLES[model]}, {how}", seconds) for how, seconds in found]


def _benched_seconds(results: Results, problem: str) -> list[tuple[str, float]]:
    """Of the CNO, on each device and in each way."""
    one = build_problem(problem)
    name = prediction_name(one, one.resolution, "throughput")
    found = []
    for suffix in ("", "-eager"):
        for device, (row, *_) in results.benched("inference", name + suffix).items():
            graph = row["device_kind"] == "cuda" and not suffix
            way = "in one CUDA graph" if graph else "operation by operation"
            how = f"{device}, batches of {row['batch']} {way}"
            found.append((how, row["milliseconds_a_sample"] / 1e3))
    return found


def _run_seconds(results: Results, problem: str, model: str) -> list[tuple[str, float]]:
    """At the ends of runs, each budget's."""
    found = []
    for budget in results.budgets:
        result = results.finished.get(planned(budget, problem, model).name)
        if result is not None:
            speed = result["inference"]
            how = (
                f"{budget.name}, {result['device']}, batches of {speed['batch_size']} "
                "operation by operation, perhaps beside other runs"
            )
            found.append((how, 1 / speed["samples_per_second"]))
    return found


def ablation_times(results: Results, problems: Sequence[str]) -> Table:
    """By how much faster an ablated CNO trains."""
    ablated = tuple(paper.ABLATION_SPEEDUPS)
    rows: list[Row] = []
    for problem in problems:
        title = paper.PROBLEM_TITLES[problem]
        said = [paper.ABLATION_SPEEDUPS[model].get(problem) for model in ablated]
        published = tuple(Cell() if one is None else ends(one) for one in said)
        group = [Row((title, PUBLISHED), published, published=True)]
        rows += begun(
            [*group, *(_our_speedups(results, title, ablated) if problem == FLOW else ())]
        )
    return Table(
        "ablation-times",
        "Table 13, training time",
        "The CNO's training time over that of the ablated network",
        ("problem", "by"),
        tuple(paper.MODEL_TITLES[model] for model in ablated),
        tuple(rows),
        "The published ones are round numbers. Ours are of training steps that took turns on one "
        "device (cno bench --only training --out results/bench-NAME.json), which are measured of "
        "the Navier-Stokes networks alone: other problems have no row of ours. Our runs may have "
        "shared a device, so that their times compare nothing.",
    )


def _our_speedups(results: Results, title: str, ablated: Sequence[str]) -> list[Row]:
    """A row for each device that was measured, or one that says that none was."""
    rows = [
        Row(
            (title, f"ours, {device}"),
            tuple(plain(_speedup(steps, model), ".3f") for model in ablated),
        )
        for device, steps in results.benched("training", "fused").items()
    ]
    return rows or [Row((title, "ours"), (Cell(),) * len(ablated))]


def _speedup(steps: Sequence[Mapping[str, Any]], model: str) -> float | None:
    """The time of a step over that of the ablated model, by the first who has both."""
    name = model.removeprefix("cno-")
    return next((step["ratios"][name] for step in steps if name in step["ratios"]), None)


def vorticity(results: Results) -> Table:
    """The errors in the text of the supplement on a problem that coarse grids resolve."""
    models = tuple(paper.VORTICITY)
    rows = [row_of_errors((PUBLISHED,), paper.VORTICITY.values())]
    for budget in results.budgets:
        if "vorticity" in budget.problems(["vorticity"]):
            runs = (planned(budget, "vorticity", m) for m in models)
            rows.append(row_of_errors((ours(budget),), [results.error(r, "test") for r in runs]))
    return Table(
        "vorticity",
        "SM, vorticity",
        "The counter-example of “On the Choice of the RPB benchmarks”: test error in percent",
        ("by",),
        tuple(paper.MODEL_TITLES[m] for m in models),
        tuple(begun(rows)),
    )


def stands_in(results: Results) -> str:
    """Which problem a trial has instead of the flow."""
    trial = [budget for budget in results.budgets if budget.trial]
    return f" Our trial is on the {trial[0].problems([])[0]} problem." if trial else ""


def rounded(value: float) -> float:
    """Six digits: what fits, quotients and quantiles have on every machine."""
    return float(f"{value:.6g}")
