"""What a table of the report is: cells, rows, and a pivot of the table of runs that makes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchcno.paper import published as paper
from torchcno.paper.results import Results
from torchcno.paper.studies import Budget


@dataclass(frozen=True)
class Cell:
    """A number of a table, several by their names, or a word; without a value, not measured."""

    value: float | str | Mapping[str, float] | None = None
    text: str = "–"
    best: bool = False
    title: str = ""  # what it is of: the name of its run
    heat: float | None = None  # 0: the best of its row, 1: `HOT` times as large

    @property
    def rank(self) -> float | None:
        """What it is compared by: its number, or its mean."""
        value = self.value.get("mean") if isinstance(self.value, Mapping) else self.value
        return value if isinstance(value, int | float) else None


EMPTY = Cell(text="")  # where there is nothing to measure


@dataclass(frozen=True)
class Row:
    """Our numbers, and the paper's beside them."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    published: tuple[Cell, ...] = ()
    begins: bool = False  # a group of rows that belong together


@dataclass(frozen=True)
class Table:
    """A table under its number in the paper."""

    name: str
    number: str
    title: str
    labels: tuple[str, ...]  # heads of the columns of words
    columns: tuple[str, ...]  # heads of the columns of numbers
    rows: tuple[Row, ...]

    @property
    def missing(self) -> float:
        """Which part of our numbers is not measured."""
        places = [cell for row in self.rows for cell in row.cells if cell.text]
        return sum(cell.value is None for cell in places) / max(len(places), 1)

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """The rows for a JSON file."""
        return [
            {
                **dict(zip(self.labels, row.labels, strict=True)),
                "values": {c: cell.value for c, cell in zip(self.columns, row.cells, strict=True)},
                "published": {
                    c: cell.value
                    for c, cell in zip(self.columns, row.published, strict=False)
                    if cell.value is not None
                },
            }
            for row in self.rows
        ]


Rows = Iterable[tuple[tuple[str, ...], Any]]  # labels, and what the row is of
Mark = Callable[[Results, Budget, Any, Sequence[Cell]], list[Cell]]


@dataclass(frozen=True)
class Pivot:
    """A table: its rows, its columns, and what stands where two of them meet.

    Every row stands once per budget that has a number there, the first one with the paper's
    numbers beside ours.
    """

    number: str
    title: str
    labels: tuple[str, ...]
    rows: Callable[[Results], Rows]
    columns: Mapping[str, Any]  # titles, and what each is of
    ours: Callable[[Results, Budget, Any, Any], Cell]
    published: Callable[[Any, Any], Cell] = lambda row, column: EMPTY
    mark: Mark = lambda results, budget, row, cells: list(cells)
    by_budget: bool = True  # else ours is the same whatever the budget

    def make(self, name: str, results: Results) -> Table:
        """The table of these results."""
        groups: dict[str, list[Row]] = {}
        for labels, key in self.rows(results):
            groups.setdefault(labels[0], []).extend(self._rows(results, labels, key))
        rows = [
            replace(row, begins=i == 0) for group in groups.values() for i, row in enumerate(group)
        ]
        labels = (*self.labels, "recipe") if self.by_budget else self.labels
        return Table(name, self.number, self.title, labels, tuple(self.columns), tuple(rows))

    def _rows(self, results: Results, labels: tuple[str, ...], key: Any) -> Iterator[Row]:
        columns = self.columns.values()
        said = [self.published(key, column) for column in columns]
        published = tuple(EMPTY if cell.value is None else cell for cell in said)
        first = results.budgets[0]
        for budget in results.budgets if self.by_budget else (first,):
            cells = [self.ours(results, budget, key, column) for column in columns]
            if budget == first or any(cell.value is not None for cell in cells):
                by = (*labels, budget.name) if self.by_budget else labels
                marked = tuple(self.mark(results, budget, key, cells))
                yield Row(by, marked, published if budget == first else ())


def percent(value: float | None, title: str = "") -> Cell:
    """An error as the paper prints it."""
    if value is None:
        return Cell(title=title)
    return Cell(value, f"{value:.2f}" if value < 100 else f"{value:.1f}", title=title)


def plain(value: float | str | None, form: str = "g") -> Cell:
    """Any other number in that form, or a word as it is."""
    if value is None:
        return Cell()
    return Cell(value, value if isinstance(value, str) else f"{value:{form}}")


def span(values: paper.Range | None) -> Cell:
    """The least and the most; one number where they are the same."""
    if values is None:
        return Cell()
    return Cell(values.least if values.least == values.most else vars(values), str(values))


def mark_best(results: Results, budget: Budget, row: Any, cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the least of them marked, if all are measured: a best of few is none."""
    known = [cell.rank for cell in cells if cell.rank is not None]
    if not known or len(known) < len(cells):
        return list(cells)
    return [replace(cell, best=cell.rank == min(known)) for cell in cells]


def rounded(value: float) -> float:
    """Six digits: what fits, quotients and quantiles have on every machine."""
    return float(f"{value:.6g}")
