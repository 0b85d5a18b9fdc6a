"""What a search came to: the table of its trials, the best configuration, its errors, figure 3."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import TrialState

from torchcno.disk import write_atomically, write_json
from torchcno.models import TITLES
from torchcno.runs.config import write_tree
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.folder import RunFolder
from torchcno.runs.pictures.drawing import png
from torchcno.runs.pictures.efficiency import Size, draw_efficiency
from torchcno.runs.search.study import Search, trial_folder

STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "diverged",
    TrialState.RUNNING: "unfinished",
}
NOTED = ("parameters", "seconds_per_epoch", "device", "folder", "error")


@dataclass(frozen=True)
class TrialRow:
    """One trial."""

    number: int
    state: str
    validation_error: float | None  # of the best weights, as a fraction; None if it did not finish
    choice: Mapping[str, Any]
    # What the driver noted in the trial:
    parameters: int | None = None  # a complex one counts once
    seconds_per_epoch: float | None = None
    device: str = ""  # whose time that is
    folder: str = ""
    error: str = ""  # why it did not finish

    @property
    def percent(self) -> float:
        """The validation error in percent; nan if it did not finish."""
        return math.nan if self.validation_error is None else 100 * self.validation_error

    @property
    def size(self) -> Size | None:
        """Its point in the figure; None if it did not finish."""
        if self.validation_error is None or not self.parameters or not self.seconds_per_epoch:
            return None
        return Size(self.parameters, self.seconds_per_epoch, self.percent, self.device)


def trial_rows(study: Study, trials: int) -> list[TrialRow]:
    """The first `trials` trials of a study."""
    rows = []
    for trial in (trial for trial in study.get_trials() if trial.number < trials):
        error = trial.value if trial.state == TrialState.COMPLETE else None
        noted = {key: value for key, value in trial.user_attrs.items() if key in NOTED}
        rows.append(TrialRow(trial.number, STATES[trial.state], error, trial.params, **noted))
    return rows


def best_of(rows: Sequence[TrialRow]) -> TrialRow:
    """The trial with the least validation error, the first of several."""
    finished = [row for row in rows if row.validation_error is not None]
    if not finished:
        reasons = [f" Trial {row.number}: {row.error}" for row in rows if row.error]
        raise ValueError(f"none of {len(rows)} trials finished.{''.join(reasons[:1])}")
    return min(finished, key=lambda row: (row.validation_error, row.number))


def write_report(
    search: Search, rows: Sequence[TrialRow], folder: Path, device: str = "auto"
) -> dict[str, Any]:
    """Write trials.csv, best.yaml, figure.png and result.json into `folder`; what the last says.

    Only the chosen configuration is evaluated on test data: by errors there nothing is chosen.
    """
    best = best_of(rows)
    write_atomically(folder / "trials.csv", table(rows).encode())
    write_tree(search.space.config(best.choice).to_tree(), folder / "best.yaml")
    base = search.space.base
    title = TITLES.get(base.model, base.model)
    sizes = {title: [row.size for row in rows if row.size is not None]}
    write_atomically(folder / "figure.png", png(draw_efficiency(sizes)))
    run = _find_run(best, folder)
    evaluations = evaluate_run(folder / run, device=device)
    result = {
        "problem": getattr(base.problem, "label", base.problem.name),
        "model": base.model,
        "trials": len(rows),
        "finished": sum(row.validation_error is not None for row in rows),
        "best": best.number,
        "folder": str(run),
        "validation_error": best.validation_error,
        "parameters": best.parameters,
        "seconds_per_epoch": best.seconds_per_epoch,
        "choice": dict(best.choice),
        "errors": {evaluation.split: evaluation.summary for evaluation in evaluations},
    }
    write_json(result, folder / "result.json")
    return result


def _find_run(best: TrialRow, folder: Path) -> Path:
    """The run of the best trial, seen from its search, which may have been moved."""
    for place in (trial_folder(Path(), best.number), Path(best.folder)):
        if RunFolder(folder / place).weights.exists():
            return place
    raise ValueError(
        f"the best trial, {best.number}, lies in {best.folder} of another machine; "
        f"run `cno evaluate {best.folder}` there."
    )


def table(rows: Sequence[TrialRow]) -> str:
    """The trials as a CSV file."""
    fields = ("number", "state", "validation_error", "parameters", "seconds_per_epoch", "device")
    names = list(dict.fromkeys(name for row in rows for name in row.choice))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, *names, "error"])
    for row in rows:
        values = (getattr(row, field) for field in fields)
        writer.writerow([*values, *(row.choice.get(name) for name in names), row.error])
    return text.getvalue()
