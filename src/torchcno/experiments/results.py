"""What was measured: the finished runs in a folder of results, found by the names of the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torchcno.experiments.studies import BUDGETS, STUDIES, Budget, PlannedRun
from torchcno.experiments.trained import read_json


@dataclass(frozen=True)
class Results:
    """A folder with `runs/` in it, such as `results` or `results/quick`."""

    folder: Path

    @cached_property
    def budgets(self) -> list[Budget]:
        """Those of which there are runs; the measured ones where there is nothing yet."""
        there = [b for b in BUDGETS.values() if any(f"-{b.name}-" in run for run in self.finished)]
        return there or [b for b in BUDGETS.values() if not b.trial]

    @cached_property
    def finished(self) -> Mapping[str, dict[str, Any]]:
        """result.json of every finished run, by the run's name."""
        paths = sorted(self.folder.glob("runs/*/result.json"))
        return {path.parent.name: read_json(path) for path in paths}

    def run_folder(self, run: PlannedRun) -> Path:
        """Where the run lies, or would."""
        return self.folder / "runs" / run.name

    def error(self, run: PlannedRun, split: str, space: str = "normalized") -> float | None:
        """The median of the relative L1 error in percent."""
        return self._median(run, "errors", split, space)

    def mean_field_error(self, run: PlannedRun, split: str, space: str) -> float | None:
        """The same of the mean training output, on the run's problem."""
        return self._median(run, "mean_field_errors", split, space)

    def _median(self, run: PlannedRun, key: str, split: str, space: str) -> float | None:
        summary = self.finished.get(run.name, {}).get(key, {}).get(split)
        return None if summary is None else float(summary["relative_l1_median_percent"][space])

    def missing(self) -> Iterator[tuple[str, Budget, list[str], int]]:
        """For every study and budget: the names of runs not finished, of how many."""
        for name, study in STUDIES.items():
            for budget in self.budgets:
                names = [run.name for run in study.plan(budget)]
                yield name, budget, [n for n in names if n not in self.finished], len(names)

    def extra(self, name: str) -> dict[str, Any] | None:
        """A further file of results, such as a validation's; None where there is none."""
        path = self.folder / name
        return read_json(path) if path.exists() else None
