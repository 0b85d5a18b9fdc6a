"""`cno report`: all results on one page, beside the paper's."""

import os
from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import parse, parser_of
from torchcno.paper.records import collect
from torchcno.paper.report.documents import write_documents
from torchcno.paper.report.page import make_report, write_report


def main(arguments: Sequence[str]) -> None:
    """Write the page, and say what is on it."""
    parser = parser_of(
        "report RESULTS [--out report.html] [--collect] [--documents README.md ...]",
        "Turn whatever is in a folder of results into one page: tables and figures under their\n"
        "numbers in the paper, with the published ones beside. All numbers (JSON) and the tables\n"
        "(LaTeX) lie beside the page.",
        """
        cno report results/ --out report.html
        cno report results/quick --out quick.html
        cno report results/ --collect --out results/report/report.html --documents README.md
        """,
    )
    parser.add_argument("results", type=Path, help="the --out folder of `cno study`")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page")
    parser.add_argument(
        "--collect", action="store_true", help="put run folders into the table RESULTS/runs.jsonl"
    )
    parser.add_argument(
        "--documents",
        type=Path,
        nargs="+",
        default=[],
        help="Markdown files whose blocks <!-- results: NAME --> are rendered anew",
    )
    given = parse(parser, arguments)
    refuse_bad_paths(given.out, given.documents)
    if given.collect and given.results.is_dir():
        count = len(collect(given.results).rows)
        print(f"{count} runs in {given.results / 'runs.jsonl'}.")
    report = make_report(given.results)
    if not (report.results.finished or report.results.unreadable):
        raise ValueError(
            f"{given.results} holds no runs; make them: cno study table1 --out {given.results}"
        )
    page, numbers, tables = write_report(report, given.out)
    count = len(report.results.unreadable)
    more = f" {count} more runs or files cannot be read; the page says why." if count else ""
    print(
        f"{len(report.results.finished)} runs, {len(report.tables)} tables and "
        f"{len(report.drawn)} figures on {page}; numbers in {numbers}, LaTeX in {tables}.{more}"
    )
    for path in write_documents(given.documents, report):
        print(f"The results in {path} are those of the page.")


def refuse_bad_paths(out: Path, documents: Sequence[Path]) -> None:
    """Refuse what could not be written, before all is drawn."""
    if out.is_dir() or out.suffix in (".json", ".tex"):
        raise ValueError(f"{out} is no name for a page; use --out {out.with_suffix('')}.html.")
    there = next(folder for folder in out.absolute().parents if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ValueError(
            f"{out} cannot be written, since {there} is no folder that you may write to."
        )
    for path in documents:
        if not path.is_file():
            raise ValueError(f"{path} does not exist; name Markdown files.")
