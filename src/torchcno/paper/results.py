"""A folder of results, as tables and figures ask for it: runs by the names of the plan."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torchcno.disk import read_json
from torchcno.paper import published as paper
from torchcno.paper.files import KINDS, LINEAR, THEORY, Kind
from torchcno.paper.records import Record, Records, find_changes, known_error, read_records
from torchcno.paper.studies import BUDGETS, STUDIES, Budget, PlannedRun, planned
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
        there = [
            budget
            for budget in BUDGETS.values()
            if any(run.name in names for study in STUDIES.values() for run in study.runs(budget))
        ]
        measured = [b for b in BUDGETS.values() if not b.trial]
        return [b for b in there if b in measured] or there or measured

    def problems(self, names: Iterable[str] = paper.PROBLEM_TITLES) -> list[str]:
        """Those of `names` that the budgets cover, or what stands in for them."""
        return list(dict.fromkeys(p for budget in self.budgets for p in budget.problems(names)))

    @cached_property
    def plan(self) -> list[tuple[str, Budget, list[PlannedRun]]]:
        """The runs of every study and budget."""
        return [
            (name, budget, study.runs(budget))
            for name, study in STUDIES.items()
            for budget in self.budgets
        ]

    @cached_property
    def wanted(self) -> Mapping[str, tuple[str, Budget, PlannedRun]]:
        """The planned runs by name, with the first study and budget that has each."""
        return {r.name: (study, b, r) for study, b, runs in reversed(self.plan) for r in runs}

    def record(self, run: PlannedRun) -> Record | None:
        """What a run came to."""
        return self.finished.get(run.name)

    def error(self, run: PlannedRun, split: str, space: str = "normalized") -> float | None:
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
            measures = STUDIES[name].measures
            lacking = {}
            for run in runs:
                record = self.record(run)
                if record is None:
                    lacking[run.name] = run.name
                elif measures is not None and measures.file not in record["measured"]:
                    lacking[run.name] = f"{run.name} ({measures.file})"
            yield name, budget, list(lacking.values()), len({run.name for run in runs})

    @cached_property
    def unreadable(self) -> list[Unreadable]:
        """What damage keeps off the page, and what to do about each."""
        runs = [
            Unreadable(name, damage, self._command(name, damage))
            for name, damage in self.records.damages.items()
        ]
        return [*runs, *self._files[1]]

    def _command(self, name: str, damage: Damage) -> str:
        """What brings a damaged run back: its study, its configuration, or a copy of the table."""
        if name in self.wanted:
            study, budget, _ = self.wanted[name]
            return f"cno study {study} --budget {budget.name} --only '{name}'"
        folder = damage.file.parent
        if folder.parent.parent == self.folder:
            return RunFolder(folder).command_to_train_again()
        return f"git checkout {damage.file}"

    @cached_property
    def _files(self) -> tuple[dict[str, dict[Path, Any]], list[Unreadable]]:
        """What the files beside the table say, by pattern, and those that cannot be read."""
        contents: dict[str, dict[Path, Any]] = {kind.pattern: {} for kind in KINDS}
        damaged = []
        for kind in KINDS:
            for path in sorted(filter(Path.exists, self.folder.glob(kind.pattern))):
                damage = damage_of(path, kind.read)
                if damage is None:
                    contents[kind.pattern][path] = kind.read(path)
                else:
                    name = str(path.relative_to(self.folder))
                    damaged.append(Unreadable(name, damage, kind.command(path)))
        return contents, damaged

    def every(self, kind: Kind[T]) -> dict[Path, T]:
        """What each file of a kind says that can be read."""
        return self._files[0][kind.pattern]

    def only(self, kind: Kind[T]) -> T | None:
        """What the one file of a kind says; None where it is not there, or cannot be read."""
        return next(iter(self.every(kind).values()), None)

    @property
    def theory(self) -> dict[str, Any]:
        """What the experiments of `validation/theory` found, by their names."""
        return {path.stem: found for path, found in self.every(THEORY).items()}

    @property
    def unplanned(self) -> list[str]:
        """The finished runs that no study of the page has: they are nowhere on it."""
        return sorted(self.finished.keys() - self.wanted.keys())

    @cached_property
    def deviations(self) -> Mapping[str, list[str]]:
        """What of finished runs is not as planned, and of which; runs of no plan are left out."""
        found: dict[str, list[str]] = {}
        for name, record in self.finished.items():
            if name in self.wanted:
                _, _, run = self.wanted[name]
                words = [*_not_finite(record["errors"]), *find_changes(record.row, run.config)]
                if words:
                    found.setdefault("; ".join(words), []).append(name)
        return found

    @cached_property
    def benches(self) -> list[dict[str, Any]]:
        """What `cno bench` wrote; other benchmarks, and damaged files, are left out."""
        paths = sorted(self.folder.glob("bench-*.json"))
        contents = [read_json(path) for path in paths if damage_of(path, read_json) is None]
        return [content for content in contents if "device_kind" in content]


def _not_finite(errors: Mapping[str, Any]) -> list[str]:
    """Which medians of a run are no numbers, in words."""
    found = {
        (split, str(value))
        for split, summary in errors.items()
        for value in summary["relative_l1_median_percent"].values()
        if not math.isfinite(value)
    }
    return [f"its error of {split} is {value}, and left out" for split, value in sorted(found)]
