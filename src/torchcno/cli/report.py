"""`cno report`: all results on one page, beside the paper's."""

import os
from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import describe


def report(
    results: Annotated[Path, describe("the --out folder of `cno study`")],
    /,
    *,
    out: Annotated[Path, describe("the page")] = Path("report.html"),
    markdown: Annotated[Path | None, describe("page whose Table 1 is renewed", "none")] = None,
) -> None:
    """Write one page of all results, beside the paper's.

    The page has the tables and figures under their numbers in the paper. A JSON
    file of all numbers and a folder of LaTeX tables lie beside it.

    examples:
      cno report results/ --out report.html
      cno report results/quick --out quick.html
      cno report results/ --out results/report/report.html --markdown README.md
    """
    from torchcno.paper.report.markdown import table_1_block, with_block
    from torchcno.paper.report.page import make_report, write_report

    refuse_bad_paths(out, markdown)
    made = make_report(results)
    if not (made.results.finished or made.results.damaged):
        raise ValueError(f"{results} holds no runs; make them: cno study table1 --out {results}")
    page, numbers, tables = write_report(made, out)
    count = len(made.unreadable)
    more = f" {count} more runs or files cannot be read; the page says why." if count else ""
    print(
        f"{len(made.results.finished)} runs, {len(made.tables)} tables and "
        f"{len(made.drawn)} figures on {page}; numbers in {numbers}, LaTeX in {tables}.{more}"
    )
    if markdown:
        text = markdown.read_text(encoding="utf-8")
        markdown.write_text(with_block(text, table_1_block(made.results)), encoding="utf-8")
        print(f"Table 1 of {markdown} is that of the page.")


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
        from torchcno.paper.report.markdown import with_block

        with_block(markdown.read_text(encoding="utf-8"), "")  # whether it has a place for it
