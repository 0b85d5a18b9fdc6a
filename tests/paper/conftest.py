"""Results made up, whose every number is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchcno.paper.studies import PlannedRun

Finish = Callable[..., Path]


def summary(error: float, mean: float | None = None) -> dict[str, dict[str, float]]:
    """What a run says of the errors of a split."""
    found = {"relative_l1_median_percent": {"normalized": error, "physical": 7 * error}}
    if mean is not None:
        found["relative_l1_mean_percent"] = {"normalized": mean, "physical": 7 * mean}
    return found


@pytest.fixture
def finish(tmp_path: Path) -> Finish:
    """Write what a finished run with these errors in percent would leave; its folder."""

    def write(
        run: PlannedRun, test: float, ood: float = 9.0, mean_field: float = 50.0, **others: Any
    ) -> Path:
        result = {
            "problem": run.config.problem.name,
            "model": run.config.model,
            "parameters": 1_000_000,
            "seconds_per_epoch": 0.5,
            "best_validation_error": test / 100,
            "inference": {"samples_per_second": 100.0, "batch_size": 32},
            "device": "made up",
            "versions": {"torch": "2"},
            "errors": {"test": summary(test), "ood": summary(ood, 2 * ood)},
            "mean_field_errors": {split: summary(mean_field) for split in ("test", "ood")},
            **others,
        }
        path = tmp_path / "runs" / run.name / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(result))
        return path.parent

    return write
