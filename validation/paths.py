"""Does it matter to training how the filtered activation is computed?

    python validation/paths.py [--device cuda] [--epochs 100] [--seeds 3] [--jobs 3]
    python validation/paths.py --small --device cpu     a small network on 32² points, without half

Trains the CNO of the paper's poisson row for some epochs of the preset `best`: with the fused
activation, by its definition (one matrix an axis), and with fields in float16 and in bfloat16, from
several seeds each. Writes medians of the test error, as each run ends, to
`results/validation-paths-poisson.json` (`-small`), with the configuration of the first.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from torchcno import RunConfig, train_run
from torchcno.arithmetic import Precision
from torchcno.evaluation.errors import published_error
from torchcno.operators.fused import choice
from torchcno.runs.search.space import Space
from torchcno.training import Hardware

Task = tuple[str, RunConfig]

SMALL = {  # two minutes a run on one core
    "model.width": 8,
    "model.lift_width": 16,
    "model.neck_blocks": 2,
    "model.skip_blocks": 1,
    "train.samples": 256,
}


def by_matrices(*arguments: object, **keywords: object) -> str:
    """In the place of a decision; a mock would keep every field that it is asked of."""
    return "the definition is asked for"


def by_definition() -> AbstractContextManager[Any]:
    """Within the context no activation finds a kernel."""
    return mock.patch.object(choice, "why_not_in_one_pass", by_matrices)


PATHS: dict[str, tuple[Precision, Callable[[], AbstractContextManager[Any]]]] = {
    "fused": ("tf32", nullcontext),
    "by definition": ("tf32", by_definition),
    "fused, float16": ("fp16-mixed", nullcontext),
    "fused, bfloat16": ("bf16-mixed", nullcontext),
}


def measure(task: Task) -> dict[str, Any]:
    """One run, and what it came to."""
    path, config = task
    _, context = PATHS[path]
    with context(), tempfile.TemporaryDirectory() as folder:
        result = train_run(config, Path(folder, "run"), splits=("test",))
    return {
        "path": path,
        "seed": config.seed,
        "test_error_percent": published_error(result["errors"]["test"]),
        "validation_error_percent": 100 * result["best_validation_error"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "device": result["device"],
        "versions": result["versions"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    resolution = 32 if given.small else None
    base = RunConfig.resolve("poisson", "cno", "best", resolution, hardware=Hardware(given.device))
    fixed = {"train.epochs": given.epochs} | (SMALL if given.small else {})

    def config(precision: Precision, seed: int) -> RunConfig:
        return Space(replace(base, seed=seed), {}).config({**fixed, "train.precision": precision})

    tasks = [
        (path, config(precision, seed))
        for seed in range(given.seeds)
        for path, (precision, _) in PATHS.items()
        if precision == "tf32" or not given.small  # half precision is slow on a CPU
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out / f"validation-paths-poisson{'-small' * given.small}.json"
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(measure, task) for task in tasks]):
            rows.append(future.result())
            rows.sort(key=lambda row: (list(PATHS).index(row["path"]), row["seed"]))
            report = {"config": tasks[0][1].to_tree(), "rows": rows}
            out.write_text(json.dumps(report, indent=1) + "\n")
    for path in dict.fromkeys(path for path, _ in tasks):
        errors = [row["test_error_percent"] for row in rows if row["path"] == path]
        spread = statistics.stdev(errors) if len(errors) > 1 else float("nan")
        print(f"{path:16} {statistics.mean(errors):.4f} ± {spread:.4f} %")


if __name__ == "__main__":
    main()
