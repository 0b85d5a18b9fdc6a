"""Files of results beside the table of runs: audits, searches, validations, benchmarks.

A reader takes out of a file all that the page shows of it: a damaged file is found before anything
is drawn, and named with the command that makes it anew.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from torchcno.disk import read_json
from torchcno.runs.audit import RunAudit, read_audits
from torchcno.runs.folder import check_errors
from torchcno.runs.pictures.efficiency import Size

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Files of one kind."""

    pattern: str  # of their names in a folder of results
    read: Callable[[Path], T]
    remedy: str  # the command that makes the one at `path` anew

    def command(self, path: Path) -> str:
        """What makes a file of this kind."""
        return self.remedy.format(path=path)


@dataclass(frozen=True)
class Search:
    """The trials of `cno search`."""

    problem: str
    model: str
    trials: list[Size]


def read_search(path: Path) -> Search:
    """What a search came to, and its finished trials."""
    result = read_json(path)
    with path.with_name("trials.csv").open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        for column in ("validation_error", "parameters", "seconds_per_epoch"):
            if column not in (table.fieldnames or ()):  # of no trial, too
                raise KeyError(column)
        trials = [
            Size(
                int(row["parameters"]),
                float(row["seconds_per_epoch"]),
                100 * float(row["validation_error"]),
                row.get("device", ""),
            )
            for row in table
            if row["validation_error"]
        ]
    return Search(str(result["problem"]), str(result["model"]), trials)


def read_linear(path: Path) -> dict[str, dict[str, Any]]:
    """Errors of the best linear map by problem and split, as `result.json` has them."""
    errors = {problem: found["errors"] for problem, found in _measured(path).items()}
    for by_split in errors.values():
        check_errors(by_split)
    return errors


def read_modes(path: Path) -> dict[str, dict[str, Any]]:
    """The cases of figure 26: a problem each, or a problem with another constant."""
    names = ("modes", "median", "mean", "largest")
    return {
        case: {
            "curves": dict(
                zip(names, np.array([found["curves"][n] for n in names], dtype=float), strict=True)
            ),
            "published": {key: float(found["published"][key]) for key in ("modes", "error")},
            "modes_for_published_error": found["modes_for_published_error"],
        }
        for case, found in _measured(path).items()
    }


def read_solvers(path: Path) -> tuple[str, dict[str, float]]:
    """What solvers ran on, and the seconds that a sample of each problem took there."""
    bench = read_json(path)
    cores = f", {bench['cores']} cores" if bench["cores"] else ""
    seconds = {name: one["seconds"] / one["samples"] for name, one in bench["problems"].items()}
    return f"{bench['device']}{cores}", seconds


def _measured(path: Path) -> dict[str, Any]:
    """What a validation of several cases measured: at least one."""
    cases = read_json(path)
    if not cases:
        raise ValueError("it holds no case")
    return cases


def read_lines(path: Path) -> list[dict[str, Any]]:
    """One run, or one problem, a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


AUDITS: Kind[list[RunAudit]] = Kind(
    "audit-*.json", read_audits, "cno audit RUN [RUN ...] --json {path}"
)
SEARCHES = Kind(
    "search-*/result.json", read_search, "cno search PROBLEM MODEL [OPTION ...] --out {path.parent}"
)
LINEAR = Kind(
    "validation-linear.json", read_linear, "python validation/linear.py --out {path.parent}"
)
MODES = Kind("validation-modes.json", read_modes, "python validation/modes.py --out {path.parent}")
SOLVERS = Kind(
    "bench-solvers-*.json",
    read_solvers,
    "python benchmarks/solvers.py [--device cuda] --out {path}",
)
THEORY = Kind(
    "theory/*.json", read_json, "python -m validation.theory.{path.stem} --out {path.parent}"
)
TIME = Kind("time-study.jsonl", read_lines, "python validation/time_study.py --out {path}")
TRUST = Kind("trust.jsonl", read_lines, "python validation/trust_study.py --train --out {path}")
KINDS: tuple[Kind[Any], ...] = (AUDITS, SEARCHES, LINEAR, MODES, SOLVERS, THEORY, TIME, TRUST)
