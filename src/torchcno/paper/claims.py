"""The claims of the paper's discussion, each counted over what is measured."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torchcno.paper import published as paper
from torchcno.paper.results import Results
from torchcno.paper.studies import Budget, efficiency, planned, scaling_series
from torchcno.paper.tables import MODELS, fit_law, resolution_cell, series_errors

Pair = tuple[float, float]  # the error of the CNO, and the least of those that it is compared with
CONSTANT = 1.05  # the largest ratio of errors on two grids that counts as none


@dataclass(frozen=True)
class Claim:
    """In how many of the measured cases a claim holds."""

    holds: int
    measured: int
    of: int  # cases that the paper has
    published: int | None = None  # in how many of those it holds by the published numbers

    @property
    def verdict(self) -> Literal["reproduced", "not reproduced", "open"]:
        """By the majority of the measured cases; open where less than half are measured."""
        if 2 * self.measured < self.of:
            return "open"
        return "reproduced" if 2 * self.holds > self.measured else "not reproduced"


def find_claims(results: Results) -> dict[str, Claim]:
    """Every claim, by the protocol of the paper."""
    protocol = results.budgets[0]
    others = [model for model in MODELS if model != "cno"]
    return {
        "accuracy": compare(results, protocol, "test", others),
        "accuracy-fno": compare(results, protocol, "test", ["fno"]),
        "ood": compare(results, protocol, "ood", others),
        "ood-fno": compare(results, protocol, "ood", ["fno"]),
        "resolution": count_resolutions(results, protocol),
        "cost": compare_costs(results, protocol),
        "samples": count_laws(results, protocol),
        "filters": count_ablation(results, protocol, "cno-no-filters"),
        "skip-blocks": count_ablation(results, protocol, "cno-no-skip-blocks"),
    }


def count(cases: Iterable[Pair | None]) -> tuple[int, int]:
    """In how many of the known cases the CNO has the smaller error, and how many there are."""
    known = [case for case in cases if case is not None]
    return sum(ours < theirs for ours, theirs in known), len(known)


def compare(results: Results, budget: Budget, split: str, others: list[str]) -> Claim:
    """The CNO against the best of `others`, problem by problem, where all are measured."""

    def case(problem: str) -> Pair | None:
        errors = [results.error(planned(budget, problem, m), split) for m in ("cno", *others)]
        known = [error for error in errors if error is not None]
        return (known[0], min(known[1:])) if len(known) == len(errors) else None

    problems = results.problems()
    rows = [paper.TABLE_1[problem, split] for problem in problems]
    published = sum(row["cno"] < min(row[model] for model in others) for row in rows)
    return Claim(*count(map(case, problems)), len(problems), published)


def count_ablation(results: Results, budget: Budget, ablated: str) -> Claim:
    """The CNO against itself without a part of it, by problem and split."""

    def case(row: tuple[str, str]) -> Pair | None:
        problem, split = row
        ours, theirs = (
            results.error(planned(budget, problem, model), split) for model in ("cno", ablated)
        )
        return None if ours is None or theirs is None else (ours, theirs)

    published = sum(row["cno"] < row[ablated] for row in paper.TABLE_13.values())
    return Claim(*count(map(case, paper.TABLE_13)), len(paper.TABLE_13), published)


def count_resolutions(results: Results, budget: Budget) -> Claim:
    """The CNO's error on other grids is that at training, and FNO's and U-Net's is not."""

    def ratio(model: str) -> float | None:
        value = resolution_cell(results, budget, model, "any").value
        return value if isinstance(value, float) else None

    cno, *others = (ratio(model) for model in paper.SEEDED)
    known = [other for other in others if other is not None]
    if cno is None or len(known) < len(others):
        return Claim(0, 0, 1, 1)
    return Claim(int(cno <= CONSTANT < min(known)), 1, 1, 1)


def compare_costs(results: Results, budget: Budget) -> Claim:
    """No FNO of Figure 3 that takes at most the best CNO's time per epoch has a smaller error."""
    runs = efficiency(budget)
    done = [record for run in runs if (record := results.record(run)) is not None]
    sizes = {
        model: [
            (r["best_validation_error"], r["seconds_per_epoch"])
            for r in done
            if r["model"] == model
        ]
        for model in ("cno", "fno")
    }
    if 2 * len(done) < len(runs) or not all(sizes.values()):
        return Claim(0, 0, 1)
    error, seconds = min(sizes["cno"])
    return Claim(int(all(e > error for e, s in sizes["fno"] if s <= seconds)), 1, 1)


def count_laws(results: Results, budget: Budget) -> Claim:
    """By the fitted laws, the CNO needs fewer samples than FNO for an error of one percent."""
    series = scaling_series(budget)

    def needed(problem: str, model: str) -> float | None:
        law = fit_law(series_errors(results, series.get((problem, model), {})))
        return None if law is None else law.samples_for_one_percent

    def case(problem: str) -> Pair | None:
        ours, theirs = (needed(problem, model) for model in ("cno", "fno"))
        return None if ours is None or theirs is None else (ours, theirs)

    problems = list(dict.fromkeys(problem for problem, _ in series))
    return Claim(*count(map(case, problems)), len(problems))
