"""`cno report`: all results on one page, beside the paper's."""

import os
from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import parse, parser_of
from torchcno.paper.report.markdown import table_1_block, with_block
from torchcno.paper.report.page import make_report, write_report


def main(arguments: Sequence[str]) -> None:
    """Write the page, and say what is on it."""
    parser = parser_of(
        "report RESULTS [--out report.html] [--markdown README.md]",
        "Turn whatever is in a folder of results into one page: tables and figures under their\n"
        "numbers in the paper, with the published ones beside. A JSON file of all numbers and a\n"
        "folder of LaTeX tables lie beside the page.",
        """
        cno report results/ --out report.html
        cno report results/quick --out quick.html
        cno report results/ --out results/report/report.html --markdown README.md
        """,
    )
    parser.add_argument("results", type=Path, help="the --out folder of `cno study`")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page")
    parser.add_argument(
        "--markdown", type=Path | None, help="a page whose Table 1, between two marks, is renewed"
    )
    given = parse(parser, arguments)
    refuse_bad_paths(given.out, given.markdown)
    report = make_report(given.results)
    if not (report.results.finished or report.results.damaged):
        raise ValueError(
            f"{given.results} holds no runs; make them: cno study table1 --out {given.results}"
        )
    page, numbers, tables = write_report(report, given.out)
    count = len(report.unreadable)
    more = f" {count} more runs or files cannot be read; the page says why." if count else ""
    print(
        f"{len(report.results.finished)} runs, {len(report.tables)} tables and "
        f"{len(report.drawn)} figures on {page}; numbers in {numbers}, LaTeX in {tables}.{more}"
    )
    if given.markdown:
        page = given.markdown.read_text(encoding="utf-8")
        given.markdown.write_text(with_block(page, table_1_block(report.results)), encoding="utf-8")
        print(f"Table 1 of {given.markdown} is that of the page.")


def refuse_bad_paths(out: Path, markdown: Path | None) -> None:
    """Refuse what could not be written, before all is drawn."""
    if out.is_dir() or out.suffix == ".json":
        raise ValueError(f"{out} is no name for a page; use --out {out.with_suffix('')}.html.")
    there = next(folder for folder in out.absolute().parents if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ValueError(
            f"{out} cannot be written, since {there} is no folder that you may write to."
        )
    if markdown is not None:
        if not markdown.is_file():
            raise ValueError(f"{markdown} does not exist; name a page that has a Table 1.")
        with_block(markdown.read_text(encoding="utf-8"), "")  # whether it has a place for it
