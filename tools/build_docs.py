"""The site: pages of docs/, and pages made from the code, as HTML in build/docs/site.

    python tools/build_docs.py

What pages link to outside docs/ comes along under `repository/`. Zensical builds the site by
mkdocs.yml, and a warning or a dead link is an error. Nothing is fetched, here or by a reader.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES, SITE = ROOT / "build" / "docs" / "pages", ROOT / "build" / "docs" / "site"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
ALONG = ("CHANGELOG", "SECURITY", "CONTRIBUTING")  # pages beside docs/
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def stage(path: Path, staged: set[Path]) -> Path:
    """Copy a file of the repository, and what it links to, to the site's sources; where it went."""
    inside = path.is_relative_to(ROOT / "docs")
    there = PAGES / (
        path.relative_to(ROOT / "docs") if inside else f"repository/{path.relative_to(ROOT)}"
    )
    if path in staged:
        return there
    staged.add(path)
    there.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md":
        shutil.copyfile(path, there)
        return there

    def relink(link: re.Match[str]) -> str:
        before, target, heading = link.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        linked = Path(os.path.normpath(path.parent / target))
        if linked.is_relative_to(ROOT / "docs"):  # a page, or one that is made from the code
            to = PAGES / linked.relative_to(ROOT / "docs")
        else:
            to = stage(linked, staged)
        return f"{before}{os.path.relpath(to, there.parent)}{heading})"

    parts = CODE.split(path.read_text(encoding="utf-8"))
    there.write_text(
        "".join(part if i % 2 else LINK.sub(relink, part) for i, part in enumerate(parts)),
        encoding="utf-8",
    )
    return there


def write_commands() -> str:
    """The page of the command line: what each verb says of itself."""
    from torchcno.cli import VERBS

    lines = ["# Command line", "", "`cno VERB --help` prints the same.", ""]
    for verb in ("", *VERBS):
        words = [part for part in ("cno", verb) if part]
        command = [sys.executable, "-m", "torchcno.cli", *words[1:], "--help"]
        plain = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
        said = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
        lines += [f"## {' '.join(words)}", "", "```text", said.stdout.rstrip(), "```", ""]
    return "\n".join(lines)


def write_configuration() -> str:
    """The page of settings: every field of networks, recipe and problems, in words."""
    from torchcno.models import MODELS
    from torchcno.problems import PROBLEMS
    from torchcno.training import Recipe

    lines = [
        "# Settings",
        "",
        "A run's `config.yaml` has these fields, and each is an option of `cno train`:",
        "`--train.epochs 300`, `--model.width 16`, `--problem.K 20`. In Python they are fields of",
        "frozen dataclasses. Defaults here are those of the class. Presets lay the paper's or our",
        "values over them: `cno train PROBLEM MODEL --help` shows those.",
        "",
        "## Training recipe: `--train`",
        "",
        *table_of_fields(Recipe, "train"),
    ]
    seen: set[type] = set()
    for name, model in MODELS.items():
        config = model.Config
        if config not in seen:
            seen.add(config)
            lines += ["", f"## Network `{name}`: `--model`", "", *table_of_fields(config, "model")]
    for name, problem in PROBLEMS.items():
        lines += ["", f"## Problem `{name}`: `--problem`", "", *table_of_fields(problem, "problem")]
    return "\n".join([*lines, ""])


def table_of_fields(config: type, section: str) -> Iterator[str]:
    """A row for every field of a dataclass: its name, what it says of itself, and its default."""
    yield from ("| field | what it is | default |", "| --- | --- | --- |")
    for field in dataclasses.fields(config):
        help, default = field.metadata.get("help", ""), field.default
        named = getattr(default, "kind", default)
        if dataclasses.is_dataclass(named):
            named = "see `--help`"
        if choices := field.metadata.get("choices"):
            help = f"{help}. One of {', '.join(f'`{choice}`' for choice in choices)}"
        shown = "" if default is dataclasses.MISSING or named is None else f"`{named}`"
        yield f"| `{section}.{field.name}` | {help} | {shown} |".replace("|k|", "\\|k\\|")


ROOMS = {  # of public names, by the package that is their home
    "Train and predict": ("runs", "training"),
    "Data": ("data", "grids", "spectral"),
    "Networks": ("models", "operators"),
    "Problems": ("problems",),
    "Evaluation": ("evaluation",),
}


SETTINGS = "Its fields are listed under [settings](configuration.md)."
MEMBERS = {"RunFolder": ("state", "config", "result", "rows", "operator", "errors")}


def is_settings(found: object) -> bool:
    """Whether it is a dataclass whose fields say what they are."""
    return dataclasses.is_dataclass(found) and any(
        "help" in field.metadata for field in dataclasses.fields(found)
    )


def write_names() -> str:
    """The page of the Python interface: the public names of torchcno, from their docstrings."""
    import torchcno

    lines = ["# Python", "", "All of these are names of `torchcno`: `from torchcno import train`."]
    for title, packages in ROOMS.items():
        lines += ["", f"## {title}"]
        for name, home in sorted(torchcno._HOMES.items(), key=lambda one: one[0].swapcase()):
            if home.split(".")[0] in packages:
                found = getattr(torchcno, name)
                lines += ["", f"::: {getattr(found, '__module__', f'torchcno.{home}')}.{name}"]
                if is_settings(found):
                    lines += ["    options: {show_signature: false}", "", f"{SETTINGS}"]
                if name in MEMBERS:
                    lines += [f"    options: {{members: [{', '.join(MEMBERS[name])}]}}"]
    return "\n".join([*lines, ""])


GENERATED = {
    "reference/python.md": write_names,
    "reference/cli.md": write_commands,
    "reference/configuration.md": write_configuration,
}


def main() -> None:
    """Stage all pages, and build the site."""
    shutil.rmtree(PAGES, ignore_errors=True)
    staged: set[Path] = set()
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            stage(path, staged)
    for name in ALONG:
        stage(ROOT / f"{name}.md", staged)
    for name, write in GENERATED.items():
        (PAGES / name).write_text(write(), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"The site is in {SITE.relative_to(ROOT)}; open index.html.")


if __name__ == "__main__":
    main()
