"""What Table 1 comes to, as numbers; the templates put them into words."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from scipy.stats import kendalltau

from torchcno.paper import published as paper
from torchcno.paper.results import LEAST_SEEDS, Results
from torchcno.paper.studies import Budget, planned
from torchcno.paper.tables import (
    MODELS,
    SPLIT_TITLES,
    cases,
    complete_rows,
    first,
    problem_title,
    spread,
)

WIDE = 2.0  # times the least error: initialisations further apart than this are named


def correlation(ours: Mapping[str, float], published: Mapping[str, float]) -> float:
    """Kendall's τ_b of two orders of models: 1 where they are the same, −1 where opposite."""
    pairs = [(published[model], error) for model, error in ours.items()]
    return round(float(kendalltau(*zip(*pairs, strict=True)).statistic), 6)


def find(results: Results) -> dict[str, Any]:
    """How much is measured, who is first, how alike the orders are, and how far chance goes."""
    protocol, *others = results.budgets
    every = cases(results)
    errors = [results.error(planned(protocol, p, m), split) for p, split in every for m in MODELS]
    rows = complete_rows(results, protocol)
    taus = [correlation(errors, paper.TABLE_1[row]) for row, errors in rows.items()]
    return {
        "budget": protocol.name,
        "errors": len(errors),
        "measured": sum(error is not None for error in errors),
        "rows": len(every),
        "complete_rows": len(rows),
        "cno_first": sum("cno" in first(errors) for errors in rows.values()),
        "cno_first_published": sum("cno" in first(paper.TABLE_1[row]) for row in rows),
        "same_winner": sum(bool(first(e) & first(paper.TABLE_1[row])) for row, e in rows.items()),
        "kendall": round(mean(taus), 2) if taus else None,
        "others": [found for budget in others if (found := _ahead(results, budget, rows))["of"]],
        "seeds": _scatter(results, protocol),
    }


def _ahead(
    results: Results, budget: Budget, rows: Mapping[tuple[str, str], Mapping[str, float]]
) -> dict[str, Any]:
    """In how many rows the CNO of another budget is better than every model of the first."""
    pairs = [
        (error, min(errors.values()))
        for (problem, split), errors in rows.items()
        if (error := results.error(planned(budget, problem, "cno"), split)) is not None
    ]
    return {"budget": budget.name, "ahead": sum(a < b for a, b in pairs), "of": len(pairs)}


def _scatter(results: Results, budget: Budget) -> dict[str, Any]:
    """How much of Table 1 is chance: whose initialisations differ most in their errors."""
    scattered = {
        (problem, split, model): errors.values()
        for problem, split in cases(results)
        for model in paper.SEEDED
        if len(errors := results.errors_by_seed(budget, problem, model, split)) >= LEAST_SEEDS
    }
    wide = [
        f"{paper.MODEL_TITLES[model]} on {problem_title(problem)}, {SPLIT_TITLES[split]} "
        f"({spread(errors)})"
        for (problem, split, model), errors in scattered.items()
        if max(errors) > WIDE * min(errors)
    ]
    return {"errors": len(scattered), "least": LEAST_SEEDS, "factor": WIDE, "wide": wide}
