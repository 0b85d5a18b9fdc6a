"""All results on one page, beside the paper's: HTML, LaTeX tables, every number as JSON.

The same results make the same page: nothing on it depends on when or where it was rendered.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from torchcno.disk import write_atomically, write_json
from torchcno.paper.claims import find_claims
from torchcno.paper.costs import estimate_on_gpu
from torchcno.paper.figures import all_pictures
from torchcno.paper.figures.picture import Picture
from torchcno.paper.files import TIME, TRUST
from torchcno.paper.findings import find
from torchcno.paper.pivots import Table
from torchcno.paper.results import Results
from torchcno.paper.tables import all_tables
from torchcno.runs.pictures.drawing import data_uri
from torchcno.runs.pretrained import describe_pretrained


@dataclass(frozen=True)
class Report:
    """What the page shows."""

    results: Results
    findings: dict[str, Any]
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

    @cached_property
    def missing(self) -> list[tuple[str, str, list[str], int]]:
        """The studies that lack runs or measurements: study, budget, names, of how many."""
        found = self.results.missing()
        return [(study, b.name, names, count) for study, b, names, count in found if names]

    @cached_property
    def hours(self) -> dict[tuple[str, str], tuple[float, int]]:
        """By study and budget, GPU hours that its runs still take, and how many are guessed.

        A guess is by the number of parameters alone, where no run of model and problem is known.
        """
        rows = [record.row for record in self.results.finished.values()]
        found = {}
        for study, budget, runs in self.results.plan:
            new = {run.name: run for run in runs if self.results.record(run) is None}
            costs = [estimate_on_gpu(run, rows) for run in new.values()]
            guesses = sum(cost.basis == "guessed" for cost in costs)
            found[study, budget.name] = (sum(cost.seconds for cost in costs) / 3600, guesses)
        return found

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number of the page; JSON has none that is not finite, so these are null."""
        numbers = {
            "runs": sorted(self.results.finished),
            "findings": self.findings,
            "tables": {table.name: table.numbers for table in self.tables},
            "figures": {picture.name: picture.numbers for picture in self.drawn},
            "missing": {f"{study}, {budget}": names for study, budget, names, _ in self.missing},
            "unreadable": {one.name: one.damage.file.name for one in self.results.unreadable},
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
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; name the --out folder of `cno study`.")
    results = Results(folder)
    return Report(results, find(results), all_tables(results), all_pictures(results))


def write_report(report: Report, page: Path) -> list[Path]:
    """Write the page, and beside it its numbers and its tables for LaTeX; what was written."""
    numbers, tables = page.with_suffix(".json"), page.with_suffix(".tex")
    write_atomically(page, render(report).encode())
    write_json(report.numbers, numbers)
    write_atomically(tables, latex(report.tables).encode())
    return [page, numbers, tables]


def embedded(picture: Picture) -> str:
    """The picture as an address that holds it whole."""
    assert picture.draw is not None
    return data_uri(picture.draw())


def render(report: Report, embed: Callable[[Picture], str] = embedded) -> str:
    """The page, with the addresses that `embed` gives its pictures."""
    records = report.results.finished.values()
    return (
        templates(autoescape=True)
        .get_template("report.html.j2")
        .render(
            report=report,
            results=report.results,
            trial=any(budget.trial for budget in report.results.budgets),
            devices=sorted({record["device"] for record in records}),
            versions=sorted({record["versions"]["torch"] for record in records}),
            embed=embed,
        )
    )


def templates(**options: Any) -> Environment:
    """The templates of this package."""
    return Environment(
        loader=PackageLoader("torchcno.paper"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def latex(tables: list[Table]) -> str:
    """All tables for \\input, with booktabs; ours in black, the paper's beside them in grey."""
    environment = templates(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters["tex"] = escape_tex
    return environment.get_template("tables.tex.j2").render(tables=tables)


TEX = {
    "%": r"\%", "&": r"\&", "_": r"\_", "±": r"$\pm$", "σ": r"$\sigma$", "–": "--", "²": r"$^2$",
    "³": r"$^3$", "τ": r"$\tau$", "≤": r"$\leq$", "^": r"\^{}", "×": r"$\times$",
    "γ": r"$\gamma$", "“": "``", "”": "''", "→": r"$\to$",
}  # fmt: skip
SYMBOL = re.compile(r"\b([A-Za-z])_(\w+)|.")  # N_σ, c_h, N_tap; else any character


def escape_tex(text: str) -> str:
    """Text for LaTeX, with the paper's symbols as mathematics."""

    def escape(found: re.Match[str]) -> str:
        letter, index = found.groups()
        if letter is None:
            return TEX.get(found[0], found[0])
        below = r"\sigma" if index == "σ" else rf"\mathrm{{{index}}}"
        return f"${letter}_{{{below}}}$"

    return SYMBOL.sub(escape, text)


# Numbers in Markdown documents: what stands between <!-- results: NAME --> and <!-- end -->, where
# NAME is a table (`TABLES`) or a macro of `templates/documents.md.j2`, which has the words.
MARKED = re.compile(r"^(<!-- results: ([\w-]+) -->\n).*?^(<!-- end -->)", re.DOTALL | re.MULTILINE)


def fill(text: str, report: Report) -> str:
    """The document with every block rendered anew."""
    return MARKED.sub(lambda found: found[1] + render_block(found[2], report) + found[3], text)


def render_block(name: str, report: Report) -> str:
    """What stands between the marks of that name."""
    tables = {table.name: table for table in report.tables}
    values = {
        "report": report,
        "tables": tables,
        "said": report.findings,
        "theory": report.results.theory,
        "claims": partial(find_claims, report.results),
        "rollouts": report.results.only(TIME) or [],
        "trusted": report.results.only(TRUST) or [],
        "shipped": describe_pretrained(),
    }
    blocks = vars(templates().get_template("documents.md.j2").make_module(values))
    known = [*tables, *(block for block in blocks if not block.startswith("_"))]
    if name not in known:
        raise ValueError(f"no table or block is called {name!r}; there are {', '.join(known)}.")
    return str(blocks["table"](tables[name]) if name in tables else blocks[name]())


def write_documents(paths: Iterable[Path], report: Report) -> list[Path]:
    """Fill the blocks of documents; which ones have any."""
    marked = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if MARKED.search(text):
            marked.append(path)
            write_atomically(path, fill(text, report).encode())
    return marked
