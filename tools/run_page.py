"""Run the code of a page of docs/, and write what it prints below it.

    python tools/run_page.py docs/tutorials/*.md

A block ```python is Python, with one namespace per page. A block ```sh is commands of `cno`, one a
line. A block ```output under either holds what it printed, and is written anew. A picture that the
code saves as NAME.png, in any folder, is copied to the page's `pictures/`.
Everything runs in an empty folder. The tests run the same pages, and leave the files alone.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```\n(?:\n```output\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)
PICTURE = re.compile(r"!\[[^\]]*\]\(((?:\.\./)?pictures/[\w.-]+)\)")
COLUMNS = 96  # of what commands print


def run_code(kind: str, code: str, names: dict[str, Any], where: str) -> str:
    """What a block prints; `names` are those that the page has made so far."""
    from torchcno.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        if kind == "python":
            exec(compile(code, where, "exec"), names)
        else:
            for line in code.replace("\\\n", " ").strip().splitlines():
                if main(shlex.split(line, comments=True)[1:]) != 0:
                    raise RuntimeError(f"{where}: `{line}` failed:\n{printed.getvalue()}")
    bars = re.compile(r"^.*━.*$\n?", re.MULTILINE)
    return bars.sub("", printed.getvalue())


def run_page(path: Path) -> tuple[dict[str, Any], str]:
    """Run a page's code in the current folder: the names it made, and the page with outputs."""
    names: dict[str, Any] = {"__name__": path.stem}

    def run_block(block: re.Match[str]) -> str:
        kind, code = block.groups()
        printed = "\n".join(
            line.rstrip() for line in run_code(kind, code, names, path.name).splitlines()
        )
        shown = f"\n```output\n{printed.strip(chr(10))}\n```\n" if printed.strip() else ""
        return f"```{kind}\n{code}```\n{shown}"

    return names, BLOCK.sub(run_block, path.read_text(encoding="utf-8"))


def renew_page(path: Path) -> None:
    """Run a page in an empty folder, and keep its outputs and its pictures."""
    path, here = path.resolve(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _, text = run_page(path)
            for target in PICTURE.findall(text):
                for drawn in Path().rglob(Path(target).name):
                    (path.parent / target).parent.mkdir(exist_ok=True)
                    shutil.copyfile(drawn, path.parent / target)
        finally:
            os.chdir(here)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = str(COLUMNS)
    for page in sys.argv[1:]:
        print(page)
        renew_page(Path(page))
