"""`cno report`: all results on one page, beside the paper's."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import describe


def report(
    results: Annotated[Path, describe("folder of results: --out of `cno study`")],
    /,
    *,
    out: Annotated[Path, describe("page to write", metavar="FILE")] = Path("report.html"),
    collect: Annotated[bool, describe("first add new run folders to RESULTS/runs.jsonl")] = False,
    documents: Annotated[
        tuple[Path, ...], describe("Markdown files whose tables are renewed", "", "FILES")
    ] = (),
) -> None:
    """Write one page of all results, beside the paper's.

    The page has the tables and figures under their numbers in the paper. All
    numbers (JSON) and the tables (LaTeX) lie beside it. In documents, what stands
    between <!-- results: NAME --> and <!-- end --> is rendered.

    examples:
      cno report results/ --out report.html
      cno report results/quick --out quick.html
      cno report results/ --collect --documents README.md docs/training.md
    """
    from torchcno.paper.records import TABLE
    from torchcno.paper.records import collect as collect_runs
    from torchcno.paper.report.page import make_report, write_documents, write_report

    refuse_bad_paths(out, documents)
    if collect and results.is_dir():
        print(f"{len(collect_runs(results).rows)} runs in {results / TABLE}.")
    made = make_report(results)
    if not (made.results.finished or made.results.unreadable):
        raise ValueError(f"{results} holds no runs; make them: cno study table1 --out {results}")
    page, numbers, tables = write_report(made, out)
    count = len(made.results.unreadable)
    more = f" {count} more runs or files cannot be read; the page says why." if count else ""
    print(
        f"{len(made.results.finished)} runs, {len(made.tables)} tables and "
        f"{len(made.drawn)} figures on {page}; numbers in {numbers}, LaTeX in {tables}.{more}"
    )
    for path in write_documents(documents, made):
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
