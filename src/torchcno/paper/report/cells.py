"""A table as data: what HTML, LaTeX and JSON are made of."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchcno.paper.published import PROBLEM_TITLES, Range
from torchcno.paper.studies import Budget

SPLIT_TITLES = {"test": "In", "ood": "Out"}
PUBLISHED = "published"  # whose numbers a row has; ours have the name of their budget


@dataclass(frozen=True)
class Cell:
    """A number of a table, several by their names, or a word; without a value, not measured."""

    value: float | str | Mapping[str, float] | None = None
    text: str = "–"
    best: bool = False
    given: bool = False  # known without any run

    @property
    def rank(self) -> float | None:
        """What it is compared by: its number, or its mean."""
        value = self.value.get("mean") if isinstance(self.value, Mapping) else self.value
        return value if isinstance(value, int | float) else None


EMPTY = Cell(text="")  # where there is nothing to measure


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
    def missing(self) -> float:
        """Which part of our numbers is not measured, of those that need a run."""
        cells = [cell for row in self.rows if not row.published for cell in row.cells]
        places = [cell for cell in cells if cell.text and not cell.given]
        return sum(cell.value is None for cell in places) / max(len(places), 1)

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


def problem_title(problem: str) -> str:
    """As the paper calls a problem of its Table 1; others by their names."""
    return PROBLEM_TITLES.get(problem, problem.capitalize())


def ours(budget: Budget) -> str:
    """How rows of our runs are labelled."""
    return f"ours, {budget.name}"


def percent(value: float | None) -> Cell:
    """An error as the paper prints it."""
    if value is None:
        return Cell()
    return Cell(value, f"{value:.2f}" if value < 100 else f"{value:.1f}")


def plain(value: float | str | None, form: str = "g") -> Cell:
    """Any other number in that form, or a word as it is."""
    if value is None:
        return Cell()
    return Cell(value, value if isinstance(value, str) else f"{value:{form}}")


def given(cell: Cell) -> Cell:
    """The cell as one that needs no run."""
    return replace(cell, given=True)


def ends(values: Range) -> Cell:
    """The least and the most; one number where they are the same."""
    return Cell(values.least if values.least == values.most else vars(values), str(values))


def between(errors: Collection[float]) -> Cell:
    """The least and the largest of several errors in percent."""
    least, most = min(errors), max(errors)
    return Cell({"least": least, "most": most}, f"{percent(least).text}–{percent(most).text}")


def row_of_errors(labels: tuple[str, ...], errors: Iterable[float | None]) -> Row:
    """A row of errors in percent, the least of them marked."""
    cells = tuple(mark_best([percent(error) for error in errors]))
    return Row(labels, cells, published=labels[-1] == PUBLISHED)


def mark_best(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the least of them marked, if all are measured: a best of few is none."""
    known = [cell.rank for cell in cells if cell.rank is not None]
    if len(known) < len(cells):
        return list(cells)
    return [replace(cell, best=cell.rank == min(known)) for cell in cells]


def unmarked(row: Row) -> Row:
    """The row with none marked as best."""
    return replace(row, cells=tuple(replace(cell, best=False) for cell in row.cells))


def begun(rows: Sequence[Row]) -> list[Row]:
    """The rows as a group of their own."""
    return [replace(row, begins=i == 0) for i, row in enumerate(rows)]
