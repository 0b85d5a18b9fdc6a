"""The files of results beside runs, read with care, as `run_files` reads those of a run.

A reader takes out of a file what the page shows of it, so that whatever the page would miss is
found before anything is made of the rest.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from torchcno.disk import read_json
from torchcno.runs.audit import RunAudit, read_audits
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.folder import check_errors
from torchcno.runs.pictures.efficiency import Size

T = TypeVar("T")
Both = tuple[float, float]  # in and out of distribution, in percent


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Files of one kind."""

    pattern: str  # of their names in a folder of results
    read: Callable[[Path], T]
    remedy: str  # the command that makes the one at `path` anew

    def files(self, folder: Path) -> list[Path]:
        """Those in a folder of results."""
        return sorted(path for path in folder.glob(self.pattern) if path.exists())

    def command(self, path: Path) -> str:
        """What makes a file of this kind."""
        return self.remedy.format(path=path)


def read_search(path: Path) -> tuple[str, str]:
    """The problem and the model of a search."""
    result = read_json(path)
    return str(result["problem"]), str(result["model"])


def read_trials(path: Path) -> list[Size]:
    """The finished trials of a search."""
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        for column in ("validation_error", "parameters", "seconds_per_epoch"):
            if column not in (table.fieldnames or ()):
                raise KeyError(column)
        rows = [row for row in table if row["validation_error"]]
    return [
        Size(
            int(row["parameters"]),
            float(row["seconds_per_epoch"]),
            100 * float(row["validation_error"]),
            row.get("device", ""),
        )
        for row in rows
    ]


def read_linear(path: Path) -> dict[str, dict[str, Any]]:
    """Errors of the best linear map by problem and split, as `result.json` has them."""
    errors = {problem: found["errors"] for problem, found in _measured(path).items()}
    for by_split in errors.values():
        check_errors(by_split)
    return errors


def read_disks(path: Path) -> tuple[Both, Both]:
    """On disks with stairs: errors of the true disk, and of the input translated exactly."""
    measured = read_json(path)
    disk, moved = (_both(measured, "percent", "sampled", answer) for answer in ("disk", "moved"))
    return disk, moved


def read_fronts(path: Path) -> tuple[int, Both, Both]:
    """DeepONet on Allen-Cahn: its functions, the least errors they allow, and the published."""
    found = read_json(path)["allen-cahn"]["deeponet"]
    return (
        int(found["dimensions"]),
        _both(found, "floor_percent"),
        _both(found, "published_percent"),
    )


def read_darcy(path: Path) -> tuple[Both, Both]:
    """Errors of kernel regression on our Darcy flow, the first reading, and of FFNN, published."""
    measured = read_json(path)
    ours, *_ = measured["readings"].values()
    return _both(ours["[0, 1]"]["regression"]), _both(measured["published"]["ffnn"])


def read_masks(path: Path) -> tuple[Both, Both]:
    """The least mean errors that the mask of an airfoil allows, and the likely ones."""
    measured = read_json(path)
    least, likely = (
        _both(measured, f"{which}_mean_error_percent") for which in ("least", "likely")
    )
    return least, likely


def read_modes(path: Path) -> dict[str, dict[str, Any]]:
    """The cases of figure 26, as `draw_modes` takes them."""
    return {name: _case(found) for name, found in _measured(path).items()}


def _case(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("modes", "median", "mean", "largest")
    curves = np.array([found["curves"][name] for name in names], dtype=float)  # of one length
    return {
        "curves": dict(zip(names, curves, strict=True)),
        "published": {key: float(found["published"][key]) for key in ("modes", "error")},
        "modes_for_published_error": found["modes_for_published_error"],
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


def _both(by_split: Mapping[str, Any], *keys: str) -> Both:
    """The numbers under `keys` of test and ood data."""
    test, ood = (float(reduce(getitem, keys, by_split[split])) for split in EVALUATED)
    return test, ood


def _validation(name: str, read: Callable[[Path], T], script: str) -> Kind[T]:
    remedy = f"python validation/{script}.py --out {{path.parent}}"
    return Kind(f"validation-{name}.json", read, remedy)


SEARCH = "cno search PROBLEM MODEL [OPTION ...] --out {path.parent}"

AUDITS: Kind[list[RunAudit]] = Kind(
    "audit-*.json", read_audits, "cno audit RUN [RUN ...] --json {path}"
)
SEARCHES = Kind("search-*/result.json", read_search, SEARCH)
TRIALS = Kind("search-*/trials.csv", read_trials, SEARCH)
LINEAR = _validation("linear", read_linear, "linear")
DISKS = _validation("disks", read_disks, "disks")
FRONTS = _validation("output-space", read_fronts, "output_space")
DARCY = _validation("darcy", read_darcy, "darcy_readings")
MASKS = _validation("airfoil-masks", read_masks, "airfoil_masks")
MODES = _validation("modes", read_modes, "modes")
SOLVERS = Kind(
    "bench-solvers-*.json",
    read_solvers,
    "python benchmarks/solvers.py [--device cuda] --out {path}",
)
KINDS: tuple[Kind[Any], ...] = (
    AUDITS, SEARCHES, TRIALS, LINEAR, DISKS, FRONTS, DARCY, MASKS, MODES, SOLVERS,
)  # fmt: skip
