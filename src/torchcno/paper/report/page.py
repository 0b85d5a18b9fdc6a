"""All results on one page, beside the paper's: HTML, a LaTeX file a table, and every number.

The same results make the same page: nothing on it depends on when or where it was rendered.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from torchcno.disk import write_atomically, write_json
from torchcno.paper.report.cells import Table
from torchcno.paper.report.figures import Picture, all_pictures
from torchcno.paper.report.rankings import findings
from torchcno.paper.report.results import Results, Unreadable
from torchcno.paper.report.tables import all_tables, cases
from torchcno.runs.pictures.drawing import data_uri


@dataclass(frozen=True)
class Report:
    """What the page shows."""

    results: Results
    findings: list[str]
    tables: list[Table]
    pictures: list[Picture]

    @property
    def drawn(self) -> list[Picture]:
        """The figures that results were found for."""
        return [picture for picture in self.pictures if picture.draw is not None]

    @property
    def undrawn(self) -> list[Picture]:
        """Those that no results were found for."""
        return [picture for picture in self.pictures if picture.draw is None]

    @property
    def unfilled(self) -> list[str]:
        """The numbers of tables and figures that have a place on the page and few measurements."""
        half = [table.number for table in self.tables if table.missing > 0.5]
        drawn = {picture.number for picture in self.drawn}  # for one budget, not for another
        undrawn = [picture.number for picture in self.undrawn if picture.number not in drawn]
        return list(dict.fromkeys([*half, *undrawn]))

    @property
    def complete(self) -> bool:
        """Whether everything that has a place on the page is measured."""
        dashes = any(table.missing for table in self.tables)
        lacking = any(names for _, _, names, _ in self.results.missing())
        return not (dashes or lacking or self.undrawn or self.unreadable)

    @property
    def unreadable(self) -> list[Unreadable]:
        """The runs, and the files beside them, that damage keeps off the page."""
        return [*self.results.unreadable(), *self.results.unreadable_others]

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number of the page; JSON has none that is not finite, so these are null."""
        numbers = {
            "runs": sorted(self.results.finished),
            "tables": {table.name: table.numbers for table in self.tables},
            "figures": {picture.name: picture.numbers for picture in self.drawn},
            "missing": {
                f"{study}, {budget.name}": names
                for study, budget, names, _ in self.results.missing()
                if names
            },
            "unreadable": {one.name: one.damage.file.name for one in self.unreadable},
            "deviations": self.results.deviations,
        }
        return {key: _finite(value) for key, value in numbers.items()}


def _finite(value: Any) -> Any:
    """The same with None for numbers that are not finite, however deep."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_report(folder: Path) -> Report:
    """The report on a folder of results."""
    results = Results(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; name the --out folder of `cno study`.")
    said = findings(results, cases(results))
    return Report(results, said, all_tables(results), all_pictures(results))


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


def embedded(picture: Picture) -> str:
    """The picture as an address that holds it whole."""
    assert picture.draw is not None
    return data_uri(picture.draw())


def render(report: Report, embed: Callable[[Picture], str] = embedded) -> str:
    """The page, with the addresses that `embed` gives its pictures."""
    templates = Environment(
        loader=PackageLoader("torchcno.paper"),
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
        versions=sorted({result["versions"]["torch"] for result in finished}),
        missing=list(report.results.missing()),
        embed=embed,
    )


def latex(table: Table) -> str:
    """A table for \\input, with booktabs; ours in black, published rows in grey."""
    templates = Environment(
        loader=PackageLoader("torchcno.paper"),
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
    "³": r"$^3$",
    "τ": r"$\tau$",
    "≤": r"$\leq$",
    "^": r"\^{}",
    "×": r"$\times$",
    "γ": r"$\gamma$",
    "“": "``",
    "”": "''",
}


SYMBOL = re.compile(r"\b([A-Za-z])_(\w+)")  # N_σ, c_h, N_tap


def escape_tex(text: str) -> str:
    """Text for LaTeX, with the paper's symbols as mathematics."""
    before, *rest = SYMBOL.split(text)
    escaped = _escaped(before)
    for letter, index, after in zip(*(iter(rest),) * 3, strict=True):
        index = r"\sigma" if index == "σ" else rf"\mathrm{{{index}}}"
        escaped += f"${letter}_{{{index}}}$" + _escaped(after)
    return escaped


def _escaped(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)
