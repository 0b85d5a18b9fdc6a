"""All results on one page, beside the paper's: HTML, a LaTeX file a table, and every number.

The same results make the same page: nothing on it depends on when or where it was rendered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from torchcno.experiments import paper
from torchcno.experiments.equivalence_figures import draw_resolutions
from torchcno.experiments.evidence import read_errors, read_examples
from torchcno.experiments.figures import (
    Scaling,
    Size,
    draw_distributions,
    draw_efficiency,
    draw_examples,
    draw_modes,
    draw_scaling,
    draw_spectra,
    draw_truths,
)
from torchcno.experiments.measurements import read_resolutions, read_spectra
from torchcno.experiments.pictures import data_uri
from torchcno.experiments.results import Results
from torchcno.experiments.studies import (
    FLOW,
    Budget,
    PlannedRun,
    complexity,
    efficiency,
    planned,
    scaling_series,
    spectra,
)
from torchcno.experiments.tables import Table, all_tables, rankings
from torchcno.experiments.trained import write_json
from torchcno.training.checkpoint import write_atomically

SPLITS = {"test": "in distribution", "ood": "out of distribution"}


@dataclass(frozen=True)
class Picture:
    """A figure under its number in the paper; where nothing was measured, the remedy."""

    name: str
    number: str
    title: str
    figure: Figure | None = None
    remedy: str = ""  # the command that would measure it
    numbers: dict[str, Any] = field(default_factory=dict)  # what it shows


@dataclass(frozen=True)
class Report:
    """What the page shows."""

    results: Results
    tables: list[Table]
    pictures: list[Picture]
    rankings: list[dict[str, Any]]

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number of the page."""
        return {
            "runs": sorted(self.results.finished),
            "tables": {table.name: table.numbers for table in self.tables},
            "figures": {picture.name: picture.numbers for picture in self.pictures},
            "rankings": self.rankings,
            "missing": {
                f"{study}, {budget.name}": names
                for study, budget, names, _ in self.results.missing()
                if names
            },
        }


def make_report(folder: Path) -> Report:
    """The report on a folder of results."""
    results = Results(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; name the --out folder of `cno study`.")
    pictures = [
        picture
        for budget in results.budgets
        for make in PICTURES
        for picture in make(results, budget)
    ]
    return Report(results, all_tables(results), sorted(pictures, key=_place), rankings(results))


def write_report(report: Report, page: Path) -> list[Path]:
    """Write the page, its numbers beside it, and a folder of LaTeX tables; what was written."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, render(report).encode())
    numbers = page.with_suffix(".json")
    write_json(report.numbers, numbers)
    folder = page.with_name(f"{page.stem}-tables")
    folder.mkdir(exist_ok=True)
    for table in report.tables:
        write_atomically(folder / f"{table.name}.tex", latex(table).encode())
    return [page, numbers, folder]


def render(report: Report) -> str:
    """The page."""
    templates = Environment(
        loader=PackageLoader("torchcno.experiments"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    finished = report.results.finished.values()
    return templates.get_template("report.html.j2").render(
        report=report,
        trial=any(budget.trial for budget in report.results.budgets),
        devices=sorted({result["device"] for result in finished}),
        versions=sorted({f"torch {result['versions']['torch']}" for result in finished}),
        missing=list(report.results.missing()),
        models=paper.MODEL_TITLES,
        problems=paper.PROBLEM_TITLES,
        splits=SPLITS,
        data_uri=data_uri,
    )


def latex(table: Table) -> str:
    """A table for \\input, with booktabs; ours in black, published rows in grey."""
    templates = Environment(
        loader=PackageLoader("torchcno.experiments"),
        undefined=StrictUndefined,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["tex"] = escape_tex
    return templates.get_template("table.tex.j2").render(table=table)


TEX = {
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "±": r"$\pm$",
    "σ": r"$\sigma$",
    "–": "--",
    "²": r"$^2$",
}


def escape_tex(text: str) -> str:
    """Text for LaTeX."""
    return "".join(TEX.get(character, character) for character in text)


def distributions(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figures 5, 8, 10 …: how errors spread over samples."""
    for problem in budget.problems(paper.PROBLEM_TITLES):
        errors = {
            title: {
                paper.MODEL_TITLES[model]: found
                for model in paper.SEEDED
                if (found := read_errors(_folder(results, budget, problem, model), split))
                is not None
            }
            for split, title in SPLITS.items()
        }
        there = all(errors.values())
        yield Picture(
            f"figure-{paper.DISTRIBUTION_FIGURES[problem]}-{budget.name}",
            f"Figure {paper.DISTRIBUTION_FIGURES[problem]}",
            f"{paper.PROBLEM_TITLES[problem]}: errors over samples, {budget.name}",
            draw_distributions(errors) if there else None,
            _remedy("table1", budget, f"{problem}-*"),
        )


def examples(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figures 6, 9, 11 …: one sample in and one out of distribution."""
    for problem in budget.problems(paper.PROBLEM_TITLES):
        found = {
            title: {
                paper.MODEL_TITLES[model]: some
                for model in paper.SEEDED
                if (some := read_examples(_folder(results, budget, problem, model), split))
                is not None
            }
            for split, title in {"test": "in", "ood": "out"}.items()
        }
        there = all(found.values())
        yield Picture(
            f"figure-{paper.SAMPLE_FIGURES[problem]}-{budget.name}",
            f"Figure {paper.SAMPLE_FIGURES[problem]}",
            f"{paper.PROBLEM_TITLES[problem]}: samples and predictions, {budget.name}",
            draw_examples(found) if there else None,
            _remedy("table1", budget, f"{problem}-*"),
        )


def resolution_picture(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figure 2, right."""
    (problem,) = budget.problems([FLOW])
    curves = [
        curve
        for model in paper.SEEDED
        if (
            curve := read_resolutions(
                _folder(results, budget, problem, model), paper.MODEL_TITLES[model]
            )
        )
    ]
    yield Picture(
        f"figure-2-right-{budget.name}",
        "Figure 2, right",
        f"{_title(problem)}: error against resolution, {budget.name}",
        draw_resolutions(curves) if curves else None,
        _remedy("resolution", budget),
        {curve.name: {str(n): error for n, error in curve.errors.items()} for curve in curves},
    )


def spectra_pictures(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figure 2, left, and figure 7."""
    numbers = {FLOW: "Figure 2, left", "poisson": "Figure 7"}
    for problem in dict.fromkeys(run.config.problem.name for run in spectra(budget)):
        found = {
            paper.MODEL_TITLES[model]: one
            for model in paper.SEEDED
            if (one := read_spectra(_folder(results, budget, problem, model)))
        }
        yield Picture(
            f"spectra-{problem}-{budget.name}",
            numbers[problem],
            f"{_title(problem)}: spectra of truth and predictions, {budget.name}",
            draw_spectra(found) if found else None,
            _remedy("spectra", budget),
            {name: {"band_errors": one.band_errors.tolist()} for name, one in found.items()},
        )


def scaling_pictures(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figures 3, right, and 27."""
    numbers = {FLOW: "Figure 3, right", "poisson": "Figure 27, left", "wave": "Figure 27, right"}
    series = scaling_series(budget)
    for problem in dict.fromkeys(problem for problem, _ in series):
        found: dict[str, Scaling] = {}
        for (where, label), runs in series.items():
            errors = {n: e for n, run in runs.items() if (e := results.error(run, "test"))}
            if where == problem and errors:
                title = paper.MODEL_TITLES.get(label, "small CNO")
                found[title] = Scaling(list(errors), list(errors.values()))
        laws = {paper.MODEL_TITLES[model]: law for model, law in paper.SCALING.items()}
        enough = any(len(one.samples) > 1 for one in found.values())
        yield Picture(
            f"scaling-{problem}-{budget.name}",
            numbers[problem],
            f"{_title(problem)}: error against training samples, {budget.name}",
            draw_scaling(found, laws if problem == FLOW else {}) if enough else None,
            _remedy("scaling", budget),
            {name: _scaling_numbers(one) for name, one in found.items()},
        )


def _scaling_numbers(one: Scaling) -> dict[str, Any]:
    law = one.law
    return {
        "samples": list(one.samples),
        "errors_percent": list(one.errors),
        "rate": law and law.rate,
        "samples_for_one_percent": law and law.samples_for_one_percent,
    }


def efficiency_picture(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figure 3, left and centre."""
    (problem,) = budget.problems([FLOW])
    found: dict[str, list[Size]] = {}
    for run in efficiency(budget):
        result = results.finished.get(run.name)
        if result is not None:
            found.setdefault(paper.MODEL_TITLES[run.config.model], []).append(
                Size(
                    result["parameters"],
                    result["seconds_per_epoch"],
                    100 * result["best_validation_error"],
                )
            )
    enough = any(len(sizes) > 1 for sizes in found.values())
    yield Picture(
        f"figure-3-left-{budget.name}",
        "Figure 3, left and centre",
        f"{_title(problem)}: error against size and against the time of an epoch, {budget.name}",
        draw_efficiency(found) if enough else None,
        _remedy("efficiency", budget),
        {name: [vars(size) for size in sizes] for name, sizes in found.items()},
    )


def truth_spectra(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figure 25: the two flows side by side."""
    runs = {run.config.problem.name: results.run_folder(run) for run in complexity(budget)}
    found = {problem: one for problem, folder in runs.items() if (one := read_spectra(folder))}
    yield Picture(
        f"figure-25-{budget.name}",
        "Figure 25",
        f"Central frequencies of the outputs, {budget.name}",
        draw_truths(found) if len(found) == len(runs) else None,
        _remedy("complexity", budget),
    )


def complexity_picture(results: Results, budget: Budget) -> Iterator[Picture]:
    """Figure 26, and the times beside it."""
    if budget.name != results.budgets[0].name:
        return  # the truth's spectrum knows no budget
    modes = results.extra("validation-modes.json")
    yield Picture(
        "figure-26",
        "Figure 26",
        "How many modes a solution needs: its error when cut to so many an axis",
        draw_modes(modes) if modes else None,
        "python validation/modes.py",
        {name: case["modes_for_published_error"] for name, case in (modes or {}).items()}
        | {"seconds_a_sample": _times(results)},
    )


def _times(results: Results) -> dict[str, dict[str, float]]:
    """Seconds a sample of the solver on each device measured, and of surrogates in batches."""
    times: dict[str, dict[str, float]] = {}
    for name in ("cpu", "cuda"):
        bench = results.extra(f"bench-solvers-{name}.json") or {"problems": {}}
        for problem in (FLOW, "vorticity"):
            if problem in bench["problems"]:
                case = bench["problems"][problem]
                times.setdefault(problem, {})[f"solver, {bench['device']}"] = (
                    case["seconds"] / case["samples"]
                )
    for budget in results.budgets:
        for run in complexity(budget):
            result = results.finished.get(run.name)
            if result is not None:
                label = f"{run.config.model} {budget.name}, {result['device']}"
                times.setdefault(run.config.problem.name, {})[label] = (
                    1 / result["inference"]["samples_per_second"]
                )
    return times


PICTURES: list[Callable[[Results, Budget], Iterator[Picture]]] = [
    spectra_pictures,
    resolution_picture,
    efficiency_picture,
    scaling_pictures,
    distributions,
    examples,
    truth_spectra,
    complexity_picture,
]


def _place(picture: Picture) -> tuple[int, str]:
    """The order of the paper."""
    number = picture.number.removeprefix("Figure ").split(",")[0]
    return int(number), picture.number


def _folder(results: Results, budget: Budget, problem: str, model: str) -> Path:
    run: PlannedRun = planned(budget, problem, model)
    return results.run_folder(run)


def _title(problem: str) -> str:
    return paper.PROBLEM_TITLES.get(problem, problem)


def _remedy(study: str, budget: Budget, only: str = "") -> str:
    return f"cno study {study} --budget {budget.name}" + (f" --only '{only}'" if only else "")
