"""Measured numbers in Markdown documents: blocks between two marks, rendered from results.

    <!-- results: NAME -->
    …
    <!-- end -->

NAME is a table (`TABLES`) or a macro of `templates/documents.md.j2`, which has the words.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from torchcno.disk import write_atomically
from torchcno.paper.report.page import Report, templates

MARKED = re.compile(r"^(<!-- results: ([\w-]+) -->\n).*?^(<!-- end -->)", re.DOTALL | re.MULTILINE)


def fill(text: str, report: Report) -> str:
    """The document with every block rendered anew."""
    return MARKED.sub(lambda found: found[1] + render_block(found[2], report) + found[3], text)


def render_block(name: str, report: Report) -> str:
    """What stands between the marks of that name."""
    tables = {table.name: table for table in report.tables}
    values = {"report": report, "tables": tables, "said": report.findings}
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
