"""A figure under its number in the paper, and which runs figures compare."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from matplotlib.figure import Figure

from torchcno.paper import published as paper
from torchcno.paper.records import Record
from torchcno.paper.results import Results
from torchcno.paper.studies import Budget, planned

T = TypeVar("T")
BEYOND = 99  # the place of figures that the paper does not have


@dataclass(frozen=True)
class Picture:
    """A figure; where nothing was measured, the remedy."""

    name: str
    number: str
    title: str
    draw: Callable[[], Figure] | None = None
    remedy: str = ""  # the command that would measure it
    numbers: dict[str, Any] = field(default_factory=dict)  # what it shows
    absent: tuple[str, ...] = ()  # what it would compare and was not measured
    foreign: tuple[str, ...] = ()  # what was measured with other weights than Table 1's
    unshown: int = 0  # errors that are zero or not finite, which no logarithmic axis shows
    kind: str = ""  # the entry of `FIGURES` that made it, under which `words.j2` may have a caption

    @classmethod
    def numbered(cls, number: int, title: str, *rest: Any, **more: Any) -> "Picture":
        """The figure of that number."""
        return cls(f"figure-{number}", f"Figure {number}", title, *rest, **more)

    @property
    def place(self) -> tuple[int, str, str]:
        """The order of the paper."""
        digits = self.number.removeprefix("Figure ").split(",")[0]
        return int(digits) if digits.isdigit() else BEYOND, self.number, self.name


Maker = Callable[[Results], Iterator[Picture]]


def compared(results: Results, problem: str) -> dict[str, Record]:
    """The finished runs that figures of a problem compare, by their titles.

    The models of Table 4, each by the first budget that has it, and the CNO by every one.
    """
    found: dict[str, Record] = {}
    for model in paper.SEEDED:
        title = paper.MODEL_TITLES[model]
        records = {b.name: results.record(planned(b, problem, model)) for b in results.budgets}
        there = {name: record for name, record in records.items() if record is not None}
        for name in list(there)[: None if model == "cno" else 1]:
            first = name == results.budgets[0].name
            found[title if first else f"{title}, {name}"] = there[name]
    return found


def read_all(
    records: Mapping[str, Record | None], read: Callable[[Record], T | None]
) -> dict[str, T]:
    """What those of the runs have of something that have any."""
    found = {name: read(record) for name, record in records.items() if record is not None}
    return {name: one for name, one in found.items() if one is not None}


def absent(results: Results, problem: str, found: Iterable[str]) -> tuple[str, ...]:
    """The titles that a figure of a problem would compare, less those that it has."""
    titles = list(compared(results, problem))
    trained = {title.partition(",")[0] for title in titles}
    untrained = [t for model in paper.SEEDED if (t := paper.MODEL_TITLES[model]) not in trained]
    return tuple(title for title in (*titles, *untrained) if title not in found)


def study_command(study: str, budget: Budget, only: str = "") -> str:
    """What would measure a figure."""
    return f"cno study {study} --budget {budget.name}" + (f" --only '{only}'" if only else "")
