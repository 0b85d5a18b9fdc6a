"""The order of the models by their errors, ours beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import kendalltau

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
    ours,
)
from torchcno.paper.report.results import LEAST_SEEDS, Results
from torchcno.paper.studies import Budget, planned

WIDE = 2.0  # times the least error: initialisations further apart than this are named


@dataclass(frozen=True)
class Ranking:
    """Errors of all models of Table 1 on one split of a problem, published and ours."""

    problem: str
    split: str
    budget: Budget
    errors: Mapping[str, float]  # ours, by model

    @property
    def published(self) -> Mapping[str, float]:
        """The paper's errors, by model."""
        return paper.TABLE_1[self.problem, self.split]

    @property
    def correlation(self) -> float:
        """Kendall's τ_b of the two orders: 1 where they are the same, −1 where opposite."""
        pairs = [(self.published[model], error) for model, error in self.errors.items()]
        return round(float(kendalltau(*zip(*pairs, strict=True)).statistic), 6)

    @property
    def same_winner(self) -> bool:
        """Whether our best model is the paper's, or one of those that share its first place."""
        return bool(first(self.errors) & first(self.published))


def ranks(errors: Mapping[str, float]) -> dict[str, int]:
    """1 for the least error; equal errors share a rank."""
    return {
        model: 1 + sum(other < error for other in errors.values())
        for model, error in errors.items()
    }


def first(errors: Mapping[str, float]) -> set[str]:
    """The models of the least error."""
    return {model for model, rank in ranks(errors).items() if rank == 1}


def rankings(results: Results, cases: Sequence[tuple[str, str]]) -> list[Ranking]:
    """Of those problems and splits, and of every budget, where all models are measured."""
    found = []
    for problem, split in cases:
        for budget in results.budgets:
            errors = {
                model: error
                for model in paper.COMPARED
                if (error := results.error(planned(budget, problem, model), split)) is not None
            }
            if len(errors) == len(paper.COMPARED):
                found.append(Ranking(problem, split, budget, errors))
    return found


def ranking_table(results: Results, cases: Sequence[tuple[str, str]]) -> Table:
    """Ranks of the models, ours beside the published ones, and how alike the two orders are."""
    found = rankings(results, cases)
    rows: list[Row] = []
    for problem, split in cases:
        labels = paper.PROBLEM_TITLES[problem], SPLIT_TITLES[split]
        published = (*_cells(paper.TABLE_1[problem, split]), EMPTY)
        group = [Row((*labels, PUBLISHED), published, published=True)]
        for one in found:
            if (one.problem, one.split) == (problem, split):
                tau = Cell(one.correlation, f"{one.correlation:.2f}")
                group.append(Row((*labels, ours(one.budget)), (*_cells(one.errors), tau)))
        if len(group) == 1:
            unknown = (Cell(),) * (len(paper.COMPARED) + 1)
            group.append(Row((*labels, ours(results.budgets[0])), unknown))
        rows += begun(group)
    return Table(
        "ranking",
        "Table 1, ranking",
        "Ranks of the models by the errors of Table 1, and Kendall's τ between ours and the "
        "published order",
        ("problem", "split", "by"),
        (*(paper.MODEL_TITLES[m] for m in paper.COMPARED), "τ"),
        tuple(rows),
        _summary(results, found),
    )


def findings(results: Results, cases: Sequence[tuple[str, str]]) -> list[str]:
    """What Table 1 comes to: what is measured, where the CNO is first, and how far chance goes."""
    protocol, *others = results.budgets
    cells = [(problem, split, model) for problem, split in cases for model in paper.COMPARED]
    errors = [results.error(planned(protocol, p, model), split) for p, split, model in cells]
    measured = sum(error is not None for error in errors)
    so_many = "All" if measured == len(cells) else f"{measured} of the"
    said = [f"{so_many} {len(cells)} errors of Table 1 are measured ({protocol.name})."]
    whole = [one for one in rankings(results, cases) if one.budget == protocol]
    if whole:
        by_us, by_paper = _cno_first(whole)
        rows = f"{len(whole)} of its {len(cases)}" if len(whole) < len(cases) else f"{len(cases)}"
        said.append(
            f"In {rows} rows all models are measured: the CNO is first in {by_us} of them, by the "
            f"published errors in {by_paper}."
        )
    for budget in others:
        ours_and_least = [
            (error, min(one.errors.values()))
            for one in whole
            if (error := results.error(planned(budget, one.problem, "cno"), one.split)) is not None
        ]
        if ours_and_least:
            ahead = sum(error < least for error, least in ours_and_least)
            said.append(
                f"Trained by {budget.name}, it has a smaller error than every model of "
                f"{protocol.name} in {ahead} of {len(ours_and_least)} rows."
            )
    return [*said, *_scatter(results, protocol, cases)]


def _scatter(results: Results, budget: Budget, cases: Sequence[tuple[str, str]]) -> list[str]:
    """How much of Table 1 is chance: whose initialisations differ most in their errors."""
    scattered = {
        (problem, split, model): list(errors.values())
        for problem, split in cases
        for model in paper.SEEDED
        if len(errors := results.errors_by_seed(budget, problem, model, split)) >= LEAST_SEEDS
    }
    if not scattered:
        return []
    wide = [
        f"{paper.MODEL_TITLES[model]} on {paper.PROBLEM_TITLES[problem]}, "
        f"{SPLIT_TITLES[split].lower()} ({between(errors).text})"
        for (problem, split, model), errors in scattered.items()
        if max(errors) > WIDE * min(errors)
    ]
    return [
        f"{len(scattered)} of these errors were measured from {LEAST_SEEDS} initialisations or "
        f"more: the largest is over {WIDE:g} times the least for {'; '.join(wide) or 'none'}."
    ]


def _cno_first(found: Sequence[Ranking]) -> tuple[int, int]:
    """In how many rows the CNO is first, by our errors and by the published ones."""
    by_us = sum("cno" in first(one.errors) for one in found)
    return by_us, sum("cno" in first(one.published) for one in found)


def _cells(errors: Mapping[str, float]) -> tuple[Cell, ...]:
    by_model = ranks(errors)
    cells = (by_model[model] for model in paper.COMPARED)
    return tuple(Cell(rank, str(rank), best=rank == 1) for rank in cells)


def _summary(results: Results, found: Sequence[Ranking]) -> str:
    """Of the first budget: in how many rows the best model is the paper's, or the CNO."""
    budget = results.budgets[0]
    whole = [one for one in found if one.budget == budget]
    if not whole:
        return "In no row are all models measured yet, so nothing is said of their ranking."
    met = sum(one.same_winner for one in whole)
    by_us, by_paper = _cno_first(whole)
    scatter = "; how far others scatter Table 1 says, and with them models change places"
    seeds = any(
        len(results.errors_by_seed(budget, one.problem, model, one.split)) > 1
        for one in whole
        for model in paper.SEEDED
    )
    return (
        f"In {len(whole)} rows all models are measured ({budget.name}), with one initialisation "
        f"each{scatter if seeds else ''}. In {met} of these rows the best model is the paper's; "
        f"the CNO is first in {by_us} by our errors and in {by_paper} by the published ones. "
        "Equal errors share a rank."
    )
