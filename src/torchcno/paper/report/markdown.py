"""Table 1 for a Markdown page, kept between two marks there."""

from collections.abc import Sequence

from torchcno.paper import published as paper
from torchcno.paper.report.cells import SPLIT_TITLES, Cell, mark_best, percent
from torchcno.paper.report.results import Results
from torchcno.paper.report.tables import mean_field
from torchcno.paper.studies import BUDGETS, planned

BEGIN, END = "<!-- table 1: made by `make report` -->", "<!-- end of table 1 -->"


def table_1_block(results: Results) -> str:
    """Table 1: our errors by the preset `paper`, the published ones in brackets."""
    further = ("CNO, `best`", "mean field", "linear")
    lines = [
        BEGIN,
        _line(["", "", *(paper.MODEL_TITLES[m] for m in paper.COMPARED), *further]),
        _line(["---", "---", *["---:"] * (len(paper.COMPARED) + len(further))]),
    ]
    for problem, title in paper.PROBLEM_TITLES.items():
        for split, where in SPLIT_TITLES.items():
            published = paper.TABLE_1[problem, split]
            runs = [planned(BUDGETS["paper"], problem, model) for model in paper.COMPARED]
            cells = mark_best([percent(results.error(run, split)) for run in runs])
            best = percent(results.error(planned(BUDGETS["best"], problem, "cno"), split))
            lines.append(
                _line(
                    [
                        title if split == "test" else "",
                        where.lower(),
                        *(
                            f"{_bold(cell)} ({percent(published[model]).text})"
                            for model, cell in zip(paper.COMPARED, cells, strict=True)
                        ),
                        _bold(best),
                        mean_field(results, problem, split).text,
                        percent(results.linear_error(problem, split)).text,
                    ]
                )
            )
    return "\n".join([*lines, *_footnotes(results), END])


def _footnotes(results: Results) -> list[str]:
    """What runs in the table are not as their budget has them."""
    budgets = {"paper": paper.COMPARED, "best": ("cno",)}
    shown = {
        planned(BUDGETS[budget], problem, model).name
        for budget, models in budgets.items()
        for problem in paper.PROBLEM_TITLES
        for model in models
    }
    notes = {words: sorted(shown & set(names)) for words, names in results.deviations.items()}
    return [f"\nNot as planned: {words} ({', '.join(names)})." for words, names in notes.items()
            if names]  # fmt: skip


def with_block(page: str, block: str) -> str:
    """The page with what lies between its marks replaced by the block."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the table; add the lines {BEGIN} and {END}.")
    return before + block + after


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.best else cell.text
