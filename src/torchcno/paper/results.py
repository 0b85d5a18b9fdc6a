"""A folder of results, as tables and figures ask for it: runs by the names of the plan."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torchcno.disk import read_json
from torchcno.paper.files import KINDS, LINEAR, Kind
from torchcno.paper.records import Record, Records, find_changes, known_error, read_records
from torchcno.paper.studies import BUDGETS, STUDIES, Budget, PlannedRun, Study, planned
from torchcno.runs.folder import Damage, RunFolder, damage_of

T = TypeVar("T")
LEAST_SEEDS = 3  # initialisations that say anything of how far others scatter


@dataclass(frozen=True)
class Unreadable:
    """A run, or another file of results, that damage keeps off the page."""

    name: str
    damage: Damage
    remedy: str  # the command that makes it anew, once what is damaged is moved away


@dataclass(frozen=True)
class Results:
    """A folder with a table of runs, run folders, or both: `results`, say, or `results/quick`."""

    folder: Path

    @cached_property
    def records(self) -> Records:
        """The table, and the run folders beside it."""
        return read_records(self.folder)

    @cached_property
    def finished(self) -> Mapping[str, Record]:
        """The finished runs of studies, by name."""
        return {record.name: record for record in self.records if record["group"] == "runs"}

    @cached_property
    def budgets(self) -> list[Budget]:
        """Those that plan runs of these; the measured ones where there is nothing yet.

        A trial beside measurements is none of them.
        """
        names = {*self.finished, *self.records.damages}
        there = [b for b in BUDGETS.values() if names & _names(b)]
        measured = [b for b in BUDGETS.values() if not b.trial]
        return [b for b in there if b in measured] or there or measured

    @cached_property
    def plan(self) -> list[tuple[str, Budget, list[PlannedRun]]]:
        """The runs of every study and budget."""
        return [
            (name, budget, study.runs(budget))
            for name, study in STUDIES.items()
            for budget in self.budgets
        ]

    def record(self, run: PlannedRun | None) -> Record | None:
        """What a run came to."""
        return None if run is None else self.finished.get(run.name)

    def error(self, run: PlannedRun | None, split: str, space: str = "normalized") -> float | None:
        """The median of the relative L1 error in percent."""
        record = self.record(run)
        return None if record is None else record.error(split, space)

    def errors_by_seed(
        self, budget: Budget, problem: str, model: str, split: str = "test"
    ) -> dict[int, float]:
        """The errors of all initialisations that were trained."""
        runs = {seed: planned(budget, problem, model, seed=seed) for seed in range(budget.seeds)}
        errors = ((seed, self.error(run, split)) for seed, run in runs.items())
        return {seed: error for seed, error in errors if error is not None}

    def linear_error(self, problem: str, split: str, space: str = "normalized") -> float | None:
        """The same of the best linear map (`validation/linear.py`)."""
        found = (self.only(LINEAR) or {}).get(problem, {})
        return known_error(found.get(split), space)

    def missing(self) -> Iterator[tuple[str, Budget, list[str], int]]:
        """For every study and budget: the names of runs not finished or not measured, of how many.

        A run that is only to be measured is named with the file that it lacks.
        """
        for name, budget, runs in self.plan:
            lacking = dict.fromkeys(self._lacking(run, STUDIES[name]) for run in runs)
            count = len({run.name for run in runs})
            yield name, budget, [words for words in lacking if words], count

    def _lacking(self, run: PlannedRun, study: Study) -> str:
        """The name of the run, where a study still needs something of it."""
        record = self.record(run)
        if record is None:
            return run.name
        if study.measures is None or record.has(study.measures.file):
            return ""
        return f"{run.name} ({study.measures.file})"

    @cached_property
    def unreadable(self) -> list[Unreadable]:
        """What damage keeps off the page, and what to do about each."""
        studies = {run.name: (name, b) for name, b, runs in reversed(self.plan) for run in runs}
        runs = [
            Unreadable(name, damage, _command(name, damage, self.folder, studies.get(name)))
            for name, damage in self.records.damages.items()
        ]
        return [*runs, *self._files[1]]

    @cached_property
    def _files(self) -> tuple[dict[Path, Any], list[Unreadable]]:
        """What the files beside the table say, and those that cannot be read."""
        contents: dict[Path, Any] = {}
        damaged = []
        for kind in KINDS:
            for path in kind.files(self.folder):
                damage = damage_of(path, kind.read)
                if damage is None:
                    contents[path] = kind.read(path)
                else:
                    name = str(path.relative_to(self.folder))
                    damaged.append(Unreadable(name, damage, kind.command(path)))
        return contents, damaged

    def every(self, kind: Kind[T]) -> dict[Path, T]:
        """What each file of a kind says that can be read."""
        contents, _ = self._files
        return {path: contents[path] for path in kind.files(self.folder) if path in contents}

    def only(self, kind: Kind[T]) -> T | None:
        """What the one file of a kind says; None where it is not there, or cannot be read."""
        return next(iter(self.every(kind).values()), None)

    @property
    def unplanned(self) -> list[str]:
        """The finished runs that no study of the page has: they are nowhere on it."""
        names = {run.name for _, _, runs in self.plan for run in runs}
        return sorted(self.finished.keys() - names)

    @cached_property
    def deviations(self) -> Mapping[str, list[str]]:
        """What of finished runs is not as planned, and of which; runs of no plan are left out."""
        by_name = {run.name: run for _, _, runs in self.plan for run in runs}
        found: dict[str, list[str]] = {}
        for name, record in self.finished.items():
            if name in by_name:
                words = [
                    *_not_finite(record["errors"]),
                    *find_changes(record.row, by_name[name].config),
                ]
                if words:
                    found.setdefault("; ".join(words), []).append(name)
        return found

    def benched(self, section: str, row: str) -> dict[str, list[dict[str, Any]]]:
        """That row of `cno bench` by device, of every file that has it, most rounds first."""
        found: dict[str, list[dict[str, Any]]] = {}
        for bench in self._benches:
            numbers = bench.get(section, {}).get(row, {})
            if "rounds" in numbers:
                found.setdefault(bench["device"], []).append(numbers)
        for rows in found.values():
            rows.sort(key=lambda numbers: -numbers["rounds"])
        return found

    @cached_property
    def _benches(self) -> list[dict[str, Any]]:
        return [_bench(path) for path in sorted(self.folder.glob("bench-*.json"))]


def _not_finite(errors: Mapping[str, Any]) -> list[str]:
    """Which medians of a run are no numbers, in words."""
    found = {
        (split, str(value))
        for split, summary in errors.items()
        for value in summary["relative_l1_median_percent"].values()
        if not math.isfinite(value)
    }
    return [f"its error of {split} is {value}, and left out" for split, value in sorted(found)]


def _names(budget: Budget) -> set[str]:
    """What the runs of a budget are called, of all studies."""
    return {run.name for study in STUDIES.values() for run in study.runs(budget)}


def _bench(path: Path) -> dict[str, Any]:
    """What `cno bench` wrote; nothing where it was another benchmark, or the file is damaged."""
    try:
        content = read_json(path)
    except ValueError:
        return {}
    return content if "device_kind" in content else {}


def _command(name: str, damage: Damage, results: Path, wanted: tuple[str, Budget] | None) -> str:
    """What brings a damaged run back: its study, its configuration, or a copy of the table."""
    if wanted is not None:
        study, budget = wanted
        return f"cno study {study} --budget {budget.name} --only '{name}'"
    folder = damage.file.parent
    if folder.parent.parent == results:
        return RunFolder(folder).command_to_train_again()
    return f"git checkout {damage.file}"
