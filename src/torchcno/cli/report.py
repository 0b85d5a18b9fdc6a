"""`cno report`: all results on one page, beside the paper's."""

from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import parse, parser_of
from torchcno.experiments.report import make_report, write_report


def main(arguments: Sequence[str]) -> None:
    """Write the page, and say what is on it."""
    parser = parser_of(
        "report RESULTS [--out report.html]",
        "Turn whatever is in a folder of results into one page: tables and figures under their\n"
        "numbers in the paper, with the published ones beside. A JSON file of all numbers and a\n"
        "folder of LaTeX tables lie beside the page.",
        """
        cno report results/ --out report.html
        cno report results/quick --out quick.html
        """,
    )
    parser.add_argument("results", type=Path, help="the --out folder of `cno study`")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page")
    given = parse(parser, arguments)
    report = make_report(given.results)
    page, numbers, tables = write_report(report, given.out)
    drawn = sum(picture.figure is not None for picture in report.pictures)
    print(
        f"{len(report.results.finished)} runs, {len(report.tables)} tables and {drawn} of "
        f"{len(report.pictures)} figures on {page}; numbers in {numbers}, LaTeX in {tables}."
    )
