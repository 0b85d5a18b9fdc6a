"""What was measured: the finished runs in a folder of results, found by the names of the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torchcno.evaluation.resolution import ResolutionCurve
from torchcno.experiments.measurements import resolution_curve
from torchcno.experiments.run_config import read_config
from torchcno.experiments.studies import BUDGETS, STUDIES, Budget, PlannedRun
from torchcno.experiments.trained import read_json

DECIDING = ("problem", "model", "train", "preset", "seed", "resolution")  # what makes a run itself
EITHER_WAY = ("train.fast", "train.checkpoint_every")  # how its steps are run and kept

# How far errors of the same weights may differ, relatively: by TF32 on one device and float32 on
# another, say.
SAME_WEIGHTS = 0.02


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

    @cached_property
    def plan(self) -> list[tuple[str, Budget, list[PlannedRun]]]:
        """The runs of every study and budget."""
        return [
            (name, budget, study.plan(budget))
            for name, study in STUDIES.items()
            for budget in self.budgets
        ]

    def run_folder(self, run: PlannedRun) -> Path:
        """Where the run lies, or would."""
        return self.folder / "runs" / run.name

    def error(self, run: PlannedRun, split: str, space: str = "normalized") -> float | None:
        """The median of the relative L1 error in percent."""
        return self._median(run, "errors", split, space)

    def mean_field_error(self, run: PlannedRun, split: str, space: str) -> float | None:
        """The same of the mean training output, on the run's problem."""
        return self._median(run, "mean_field_errors", split, space)

    def linear_error(self, problem: str, split: str, space: str = "normalized") -> float | None:
        """The same of the best linear map (`validation/linear.py`)."""
        found = (self.extra("validation-linear.json") or {}).get(problem, {"errors": {}})
        return _median(found["errors"].get(split), space)

    def _median(self, run: PlannedRun, key: str, split: str, space: str) -> float | None:
        return _median(self.finished.get(run.name, {}).get(key, {}).get(split), space)

    def resolutions(self, run: PlannedRun, title: str) -> ResolutionCurve | None:
        """The published error against the resolution; None where the run was not measured so."""
        curve = self.measured_resolutions(run, title)
        return curve if curve and self.is_of(run, curve.errors.get(curve.training)) else None

    def measured_resolutions(self, run: PlannedRun, title: str) -> ResolutionCurve | None:
        """The same by whatever weights: perhaps those of an earlier run of the name.

        It lies in the run's folder, or with those of other runs of the problem in one file.
        """
        together = self.extra(f"resolution-{run.config.problem.name}.json") or {}
        alone = self.extra(f"runs/{run.name}/resolution.json")
        found = alone or together.get(run.name)
        return found and resolution_curve(found, title)

    def is_of(self, run: PlannedRun, error: float | None) -> bool:
        """Whether weights with this test error are those of the run; None: nobody knows, so yes."""
        published = self.error(run, "test")
        return error is None or (
            published is not None and abs(error - published) <= SAME_WEIGHTS * published
        )

    def missing(self) -> Iterator[tuple[str, Budget, list[str], int]]:
        """For every study and budget: the names of runs not finished, of how many."""
        for name, budget, runs in self.plan:
            names = [run.name for run in runs]
            yield name, budget, [n for n in names if n not in self.finished], len(names)

    @cached_property
    def deviations(self) -> Mapping[str, list[str]]:
        """What of finished runs is not as planned, and of which; runs of no plan are left out."""
        planned = {run.name: run for _, _, runs in self.plan for run in runs}
        found: dict[str, list[str]] = {}
        for name in self.finished:
            if name in planned and (words := self._deviations(planned[name])):
                found.setdefault("; ".join(words), []).append(name)
        return found

    def _deviations(self, run: PlannedRun) -> list[str]:
        folder = self.run_folder(run)
        if not (folder / "config.yaml").exists():
            return ["its configuration is not there"]
        there, here = (_flat(config.to_tree()) for config in (read_config(folder), run.config))
        return [f"{key} is {there.get(key)}, not {value}" for key, value in here.items()
                if there.get(key) != value]  # fmt: skip

    def extra(self, name: str) -> dict[str, Any] | None:
        """A further file of results, such as a validation's; None where there is none."""
        path = self.folder / name
        return read_json(path) if path.exists() else None


def _median(summary: Mapping[str, Any] | None, space: str) -> float | None:
    return None if summary is None else float(summary["relative_l1_median_percent"][space])


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run, by dotted names."""
    flat: dict[str, Any] = {}
    for key in DECIDING:
        section = tree[key]
        fields = section if isinstance(section, dict) else {"": section}
        flat |= {f"{key}.{name}".rstrip("."): value for name, value in fields.items()}
    return {name: value for name, value in flat.items() if name not in EITHER_WAY}
