"""Which figures the report has: found in results, under their numbers in the paper."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from torchcno.evaluation.spectra import NO_TRUTH
from torchcno.paper import published as paper
from torchcno.paper.figures.curves import (
    Scaling,
    draw_data,
    draw_distributions,
    draw_examples,
    draw_failures,
    draw_modes,
    draw_scaling,
)
from torchcno.paper.figures.depictions import draw_cuts, draw_figure_22, draw_filters
from torchcno.paper.report.cells import SPLIT_TITLES, problem_title
from torchcno.paper.report.other_files import AUDITS, MODES, SEARCHES, TRIALS
from torchcno.paper.report.results import Results
from torchcno.paper.report.statements import rounded, scaling_of, series_title
from torchcno.paper.studies import (
    EFFICIENCY,
    FLOW,
    SMALL_CNO,
    Budget,
    PlannedRun,
    complexity,
    efficiency,
    planned,
    scaling_series,
    spectra,
)
from torchcno.problems import PROBLEMS
from torchcno.runs.audit import RunAudit
from torchcno.runs.evidence import Examples
from torchcno.runs.measurements import RESOLUTIONS, SAME_WEIGHTS, SPECTRA, Spectra
from torchcno.runs.pictures.drawing import HEADINGS
from torchcno.runs.pictures.efficiency import Size, draw_efficiency, timed_device
from torchcno.runs.pictures.equivalence import draw_audits, draw_resolutions
from torchcno.runs.pictures.spectra import DECADES, draw_spectra, draw_truths

BEYOND = 99  # the place of figures that the paper does not have


@dataclass(frozen=True)
class Picture:
    """A figure under its number in the paper; where nothing was measured, the remedy."""

    name: str
    number: str
    title: str
    draw: Callable[[], Figure] | None = None
    remedy: str = ""  # the command that would measure it
    numbers: dict[str, Any] = field(default_factory=dict)  # what it shows
    note: str = ""  # what stands below it: what it does not show, and why
    caption: str = ""  # what its lines and panels do not say themselves

    @property
    def place(self) -> tuple[int, str, str]:
        """The order of the paper."""
        digits = self.number.removeprefix("Figure ").split(",")[0]
        return int(digits) if digits.isdigit() else BEYOND, self.number, self.name


def all_pictures(results: Results) -> list[Picture]:
    """Every figure of the paper but the drawing of the architecture, and ours after them."""
    return sorted((p for make in PICTURES for p in make(results)), key=lambda p: p.place)


def compared(results: Results, problem: str) -> dict[str, PlannedRun]:
    """The finished runs that figures of a problem compare, by their titles.

    The models of Table 4, each by the first budget that has it, and the CNO by every one.
    """
    runs = {}
    for model in paper.SEEDED:
        by_budget = {budget.name: planned(budget, problem, model) for budget in results.budgets}
        there = {name: run for name, run in by_budget.items() if run.name in results.finished}
        for name in list(there)[: None if model == "cno" else 1]:
            first = name == results.budgets[0].name
            title = paper.MODEL_TITLES[model]
            runs[title if first else f"{title}, {name}"] = there[name]
    return runs


def absent(results: Results, problem: str, found: Iterable[str]) -> list[str]:
    """The titles that a figure of a problem would compare, less those that it has."""
    runs = compared(results, problem)
    trained = {run.config.model for run in runs.values()}
    untrained = [paper.MODEL_TITLES[model] for model in paper.SEEDED if model not in trained]
    return [title for title in (*runs, *untrained) if title not in found]


def note_of(absent: Iterable[str], foreign: Iterable[str] = ()) -> str:
    """Which models a figure lacks: those never measured, and those measured by other weights."""
    missing = [title for title in absent if title not in foreign]
    words = [f"Not measured: {'; '.join(missing)}."] if missing else []
    words += [
        f"{title}: measured with other weights than Table 1's; left out." for title in foreign
    ]
    return " ".join(words)


def covered(results: Results, problems: Iterable[str]) -> list[str]:
    """Those of `problems` that the budgets cover, or what stands in for them."""
    names = list(problems)
    return list(dict.fromkeys(p for budget in results.budgets for p in budget.problems(names)))


def filter_picture(results: Results) -> Iterator[Picture]:
    """Figure 4."""
    yield Picture(
        "figure-4",
        "Figure 4",
        "Filters of the CNO, by their half-width c_h",
        draw_filters,
        caption="Responses in frequency (left) and to an impulse (right), at the rate s = 128 and "
        "12 taps, upsampled by 2. Dotted: s/2, the highest frequency of the coarse grid.",
    )


def cut_picture(results: Results) -> Iterator[Picture]:
    """Figure 13."""
    yield Picture(
        "figure-13",
        "Figure 13",
        "Discontinuous transport: a sample, and cuts through its disks",
        draw_cuts,
        caption="A line across a disk is where the curve of its colour is taken.",
    )


def mesh_picture(results: Results) -> Iterator[Picture]:
    """Figure 22."""
    yield Picture(
        "figure-22",
        "Figure 22",
        "Compressible Euler: the mesh of 243 × 43 nodes about RAE2822",
        draw_figure_22,
        caption="The window of the data, and the nose; lengths in chords. The paper's mesh is "
        "elliptic. Ours has as many nodes and solves no equation: a C-mesh by a conformal map and "
        "a shear. In colour: the airfoil and the cut behind it.",
    )


def distributions(results: Results) -> Iterator[Picture]:
    """Figures 5, 8, 10 …: how errors spread over samples."""
    for problem in covered(results, paper.PROBLEM_TITLES):
        kept: dict[str, dict[str, Any]] = {
            title: {
                name: found
                for name, run in compared(results, problem).items()
                if (found := results.finished[run.name].sample_errors(split)) is not None
            }
            for split, title in HEADINGS.items()
        }
        drawable = {
            title: {name: some for name, one in models.items() if (some := one[_drawn(one)]).size}
            for title, models in kept.items()
        }
        errors = in_every_split(drawable)
        first = errors[HEADINGS["test"]]
        yield Picture(
            f"figure-{paper.DISTRIBUTION_FIGURES[problem]}",
            f"Figure {paper.DISTRIBUTION_FIGURES[problem]}",
            f"{problem_title(problem)}: errors over samples",
            partial(draw_distributions, errors) if all(errors.values()) else None,
            _remedy("table1", results.budgets[0], f"{problem}-*"),
            {
                title: {name: _quartiles(values) for name, values in models.items()}
                for title, models in errors.items()
            },
            " ".join(filter(None, (note_of(absent(results, problem, first)), _undrawn(kept)))),
            "Vertical lines are medians. Errors are those of Table 1, of fields scaled as there.",
        )


def in_every_split(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By split the models that every split has: a figure compares the same ones in all."""
    whole = [name for name in next(iter(found.values())) if all(name in m for m in found.values())]
    return {split: {name: models[name] for name in whole} for split, models in found.items()}


def _drawn(errors: Any) -> Any:
    """Which errors a logarithmic axis can show."""
    return np.isfinite(errors) & (errors > 0)


def _undrawn(errors: Mapping[str, Mapping[str, Any]]) -> str:
    """How many errors of whom a logarithmic axis cannot show."""
    lost: Counter[str] = Counter()
    for models in errors.values():
        lost.update({name: int((~_drawn(one)).sum()) for name, one in models.items()})
    said = [f"{number} of {name}" for name, number in lost.items() if number]
    return f"Errors that are zero or not finite, left out: {'; '.join(said)}." if said else ""


def _quartiles(errors: Any) -> dict[str, float]:
    """In percent, to the digits that do not depend on how a machine rounds."""
    values = np.quantile(errors.astype(np.float64), (0.25, 0.5, 0.75))
    return {f"q{q}": rounded(100 * value) for q, value in zip((25, 50, 75), values, strict=True)}


def examples(results: Results) -> Iterator[Picture]:
    """Figures 6, 9, 11 …: one sample in and one out of distribution."""
    for problem in covered(results, paper.PROBLEM_TITLES):
        runs = compared(results, problem)
        splits = {title.lower(): split for split, title in SPLIT_TITLES.items()}
        found = in_every_split(
            {title: _examples(results, runs, split) for title, split in splits.items()}
        )
        errors = {title: _first_errors(results, runs, split) for title, split in splits.items()}
        yield Picture(
            f"figure-{paper.SAMPLE_FIGURES[problem]}",
            f"Figure {paper.SAMPLE_FIGURES[problem]}",
            f"{problem_title(problem)}: samples and predictions",
            partial(draw_examples, found, errors) if all(found.values()) else None,
            _remedy("table1", results.budgets[0], f"{problem}-*"),
            {
                title: {
                    name: rounded(100 * error)
                    for name, error in by_model.items()
                    if name in found[title]
                }
                for title, by_model in errors.items()
            },
            note_of(absent(results, problem, found["in"])),
            "The first sample in and out of distribution. Predictions have the colours of "
            "their truth, each |error| its own scale; above it stands the relative L1 error of "
            "the sample, of fields scaled as in Table 1.",
        )


def failures(results: Results) -> Iterator[Picture]:
    """Figure 12: models that do not generalise."""
    problem, budget = "smooth-transport", results.budgets[0]
    runs = {
        paper.MODEL_TITLES[model]: planned(budget, problem, model) for model in ("deeponet", "ffnn")
    }
    found = _examples(results, runs, "ood")
    yield Picture(
        "figure-12",
        "Figure 12",
        f"{problem_title(problem)}: a sample out of distribution",
        partial(draw_failures, found) if found else None,
        _remedy("table1", budget, f"{problem}-*"),
        note=note_of(title for title in runs if title not in found),
        caption="Predictions have the colours of the truth, and beyond its range the last of them.",
    )


def data_pictures(results: Results) -> Iterator[Picture]:
    """Figures 28 to 35: samples of the data, which every run keeps some of."""
    for problem in covered(results, paper.PROBLEM_TITLES):
        runs = (planned(b, problem, m) for b in results.budgets for m in paper.COMPARED)
        record = next(filter(None, map(results.record, runs)), None)
        found = {
            title.lower(): some
            for split, title in SPLIT_TITLES.items()
            if record is not None and (some := record.examples(split)) is not None
        }
        yield Picture(
            f"figure-{paper.DATA_FIGURES[problem]}",
            f"Figure {paper.DATA_FIGURES[problem]}",
            f"{problem_title(problem)}: inputs and outputs",
            partial(draw_data, found) if found else None,
            _remedy("table1", results.budgets[0], f"{problem}-*"),
            caption="Inputs above, their outputs below, each with its own colour scale.",
        )


def _examples(results: Results, runs: Mapping[str, PlannedRun], split: str) -> dict[str, Examples]:
    return {
        name: some
        for name, run in runs.items()
        if (record := results.record(run)) is not None
        and (some := record.examples(split)) is not None
    }


def _first_errors(results: Results, runs: Mapping[str, PlannedRun], split: str) -> dict[str, float]:
    """The relative L1 error of the first sample of a split, normalised as in Table 1."""
    return {
        name: float(errors[0])
        for name, run in runs.items()
        if (errors := results.finished[run.name].sample_errors(split)) is not None
    }


def resolution_picture(results: Results) -> Iterator[Picture]:
    """Figure 2, right."""
    for problem in covered(results, [FLOW]):
        runs = compared(results, problem)
        curves = [curve for name, run in runs.items() if (curve := results.resolutions(run, name))]
        found = [curve.name for curve in curves]
        foreign = [
            name
            for name, run in runs.items()
            if results.finished[run.name].is_foreign(RESOLUTIONS.file)
        ]
        yield Picture(
            "figure-2-right",
            "Figure 2, right",
            f"{problem_title(problem)}: error against resolution",
            partial(draw_resolutions, curves) if curves else None,
            _remedy("resolution", results.budgets[0]),
            {curve.name: {str(n): error for n, error in curve.errors.items()} for curve in curves},
            note_of(absent(results, problem, found), foreign),
            "Dotted: the resolution of training. The right panel, which the paper does not have, "
            "is the error over that at training, with a grey band of ±5 %.",
        )


def spectra_pictures(results: Results) -> Iterator[Picture]:
    """Figure 2, left, and figure 7."""
    numbers = {FLOW: "Figure 2, left", "poisson": "Figure 7"}
    plans = (spectra(budget) for budget in results.budgets)
    for problem in dict.fromkeys(run.config.problem.name for plan in plans for run in plan):
        runs = compared(results, problem)
        records = {name: results.finished[run.name] for name, run in runs.items()}
        found = {name: one for name, record in records.items() if (one := record.spectra())}
        foreign = [name for name, record in records.items() if record.is_foreign(SPECTRA.file)]
        yield Picture(
            f"spectra-{problem}",
            numbers[problem],
            f"{problem_title(problem)}: spectra of truth and predictions",
            partial(draw_spectra, found) if found else None,
            _remedy("spectra", results.budgets[0]),
            {name: {"band_errors": _by_band(one)} for name, one in found.items()},
            note_of(absent(results, problem, found), foreign),
            "Above: amplitudes, as in the paper. Below, which it does not have: the energy of all "
            f"modes of a wavenumber, down to 1e-{2 * DECADES} of the largest, and the error in "
            "bands of wavenumbers. Dotted: the error of a prediction that is zero in the band.",
        )


def scaling_pictures(results: Results) -> Iterator[Picture]:
    """Figures 3, right, and 27."""
    numbers = {FLOW: "Figure 3, right", "poisson": "Figure 27, left", "wave": "Figure 27, right"}
    for budget in results.budgets:
        series = scaling_series(budget)
        for problem in dict.fromkeys(problem for problem, _ in series):
            found: dict[str, Scaling] = {}
            missing: list[str] = []
            for (_, label), runs in (item for item in series.items() if item[0][0] == problem):
                title, one = series_title(label), scaling_of(results, runs)
                lacking = [str(n) for n in runs if n not in one.samples]
                if one.samples:
                    found[title] = one
                if lacking:
                    at = f" of {', '.join(lacking)} samples" if one.samples else ""
                    missing.append(f"{title}{at}")
            laws = {paper.MODEL_TITLES[model]: law for model, law in paper.SCALING.items()}
            enough = any(len(one.samples) > 1 for one in found.values())
            yield Picture(
                f"scaling-{problem}-{budget.name}",
                numbers[problem],
                f"{problem_title(problem)}: error against training samples, {budget.name}",
                partial(draw_scaling, found, laws if problem == FLOW else {}) if enough else None,
                _remedy("scaling", budget),
                {name: _scaling_numbers(one) for name, one in found.items()},
                note_of(missing),
                "Lines are the laws E = (N/N₀)^−r fitted to the points"
                + ("; the published are dotted." if problem == FLOW else "."),
            )


def _scaling_numbers(one: Scaling) -> dict[str, Any]:
    law = one.law
    needed = law and law.samples_for_one_percent
    return {
        "samples": list(one.samples),
        "errors_percent": list(one.errors),
        "rate": law and rounded(law.rate),
        "samples_for_one_percent": needed and rounded(needed),
    }


def efficiency_pictures(results: Results) -> Iterator[Picture]:
    """Figure 3, left and centre."""
    for budget in results.budgets:
        (problem,) = budget.problems([FLOW])
        small = planned(budget, problem, "cno", **SMALL_CNO).name
        found: dict[str, list[Size]] = {paper.MODEL_TITLES[model]: [] for model in EFFICIENCY}
        for run in efficiency(budget):
            result = results.finished.get(run.name)
            if result is not None and np.isfinite(result["best_validation_error"]):
                sizes = found[paper.MODEL_TITLES[run.config.model]]
                sizes.append(Size.of(result, small=run.name == small))
        enough = any(len(sizes) > 1 for sizes in found.values())
        yield _sizes(
            Picture(
                f"figure-3-left-{budget.name}",
                "Figure 3, left and centre",
                f"{problem_title(problem)}: error against size and against the time of an epoch, "
                f"{budget.name}",
                remedy=_remedy("efficiency", budget),
                caption="A point is a network.",
            ),
            found if enough else {},
        )


def search_pictures(results: Results) -> Iterator[Picture]:
    """The trials of searches, as figure 3 has those of the paper's."""
    searches = results.every(SEARCHES)
    for path, trials in results.every(TRIALS).items():
        result = path.with_name("result.json")
        if result in searches:
            problem, model = searches[result]
            title = f"{problem_title(problem)}: the trials of a search"
            sizes = {paper.MODEL_TITLES.get(model, model): trials}
            caption = "A point is a trial."
            yield _sizes(Picture(path.parent.name, "Search", title, caption=caption), sizes)


def _sizes(picture: Picture, found: Mapping[str, list[Size]]) -> Picture:
    """The picture with its networks, where there are any."""
    models = {model: sizes for model, sizes in found.items() if sizes}
    if not models:
        return picture
    device = timed_device(models)
    others = sum(size.device != device for sizes in models.values() for size in sizes)
    notes = [
        note_of(model for model in found if model not in models),
        "Runs may have shared the device, which lengthens their epochs.",
        f"Times are those of {device} alone, not of {others} trained elsewhere." if others else "",
    ]
    return replace(
        picture,
        draw=partial(draw_efficiency, models),
        numbers={model: [vars(size) for size in sizes] for model, sizes in models.items()},
        note=" ".join(filter(None, notes)),
    )


def truth_spectra(results: Results) -> Iterator[Picture]:
    """Figure 25: the two flows side by side."""
    found = {
        problem_title(run.config.problem.name): one
        for budget in reversed(results.budgets)
        for run in complexity(budget)
        if (record := results.record(run)) and (one := record.spectra())
    }
    yield Picture(
        "figure-25",
        "Figure 25",
        "Central frequencies of the outputs",
        partial(draw_truths, found) if len(found) == len(covered(results, ["vorticity", FLOW]))
        else None,
        _remedy("complexity", results.budgets[0]),
        caption="Amplitudes over the largest of the flow.",
    )  # fmt: skip


def complexity_picture(results: Results) -> Iterator[Picture]:
    """Figure 26."""
    modes = results.only(MODES)
    yield Picture(
        "figure-26",
        "Figure 26",
        "How many modes a solution needs: its error when cut to so many an axis",
        partial(draw_modes, {problem_title(name): case for name, case in modes.items()})
        if modes
        else None,
        "python validation/modes.py",
        {name: case["modes_for_published_error"] for name, case in (modes or {}).items()},
        "s is the scale of the covariance s (−Δ + τ²)^{−α} of the initial vorticity. The paper "
        "prints s = 7^{3/2}, which is the left panel; 7³ is what it would be if that were the "
        "amplitude of the noise and not its variance.",
        "Of the errors over samples the median, the mean and the largest; the median lies mostly "
        "under the mean. A star is what the paper's text says of the largest error of vorticity "
        "and of the mean one of the Navier-Stokes equations.",
    )


def audit_pictures(results: Results) -> Iterator[Picture]:
    """Aliasing, which the paper argues about and does not measure: `cno audit --json`."""
    for path, found in results.every(AUDITS).items():
        problem = _audited(path, found)
        runs = compared(results, problem) if problem else {}
        titles = {run.name: title for title, run in runs.items()}
        measured = [replace(a, name=titles.get(a.name, a.name)) for a in found]
        foreign = [a.name for a in measured if not _is_of_its_run(results, runs, a)]
        lacking = absent(results, problem, [a.name for a in measured]) if problem else []
        subject = problem_title(problem) if problem else path.stem.removeprefix("audit-")
        audits = [a for a in measured if a.name not in foreign]
        yield Picture(
            path.stem,
            "Aliasing",
            f"{subject}: between grids, under translations, and layer by layer",
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
            note_of(lacking, foreign),
            "Above, relative L2 errors: of the output on a grid against that on the finest, in the "
            "modes that the grid has (left), and of the output of a moved input against the moved "
            "output (right). Below: the energy beyond the band of the grid, which sampling folds "
            "back, as a share of the layer's output.",
        )


def _audited(path: Path, audits: Iterable[RunAudit]) -> str | None:
    """The problem that the file's name or else a run's begins with; None: nobody knows."""
    names = [path.stem.removeprefix("audit-"), *(audit.name for audit in audits)]
    known = (p for name in names for p in PROBLEMS if f"{name}-".startswith(f"{p}-"))
    return next(known, None)


def _is_of_its_run(results: Results, runs: Mapping[str, PlannedRun], audit: RunAudit) -> bool:
    """Whether an audit was made with the weights of the run that has its title."""
    run = runs.get(audit.name)
    if run is None:  # of no run of these results, and shown by its own name
        return True
    error = results.error(run, "test")
    known = audit.error is not None and error is not None
    return not known or abs(audit.error - error) <= SAME_WEIGHTS * error


PICTURES: list[Callable[[Results], Iterator[Picture]]] = [
    spectra_pictures,
    resolution_picture,
    efficiency_pictures,
    search_pictures,
    scaling_pictures,
    filter_picture,
    distributions,
    examples,
    failures,
    cut_picture,
    mesh_picture,
    truth_spectra,
    complexity_picture,
    data_pictures,
    audit_pictures,
]


def _by_band(spectra: Spectra) -> dict[str, float]:
    """The errors by their wavenumbers, where the truth has any energy to compare with."""
    bands = zip(spectra.band_edges.tolist(), spectra.band_errors.tolist(), strict=True)
    return {f"{a} to {b - 1}": error for (a, b), error in bands if error < NO_TRUTH}


def _remedy(study: str, budget: Budget, only: str = "") -> str:
    return f"cno study {study} --budget {budget.name}" + (f" --only '{only}'" if only else "")
