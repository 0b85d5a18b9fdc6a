"""What helps a CNO to learn? Short runs that differ from the preset `best` in one or two fields.

    python validation/recipes.py PROBLEM [--epochs 100] [--device cuda] [--only 'optimizer=muon*']
    python validation/recipes.py poisson --small --epochs 60          two minutes a run on one core

Errors are of the validation set, since they are there to choose by. Writes a row as each run ends
to `results/validation-recipes-PROBLEM.json` (`-small` for the small network on 32² points) and
leaves out what that file has already, with the same configuration.
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from torchcno import PROBLEMS, RunConfig, train_run
from torchcno.disk import read_json, write_json
from torchcno.runs.config import differences
from torchcno.runs.search.space import Space
from torchcno.training import Hardware

Changes = Mapping[str, Any]  # fields of a run, such as {"train.loss": "relative-l2"}

RATES = (1e-3, 2e-3, 4e-3, 8e-3)
SYMMETRIES = {
    "poisson": "square",
    "wave": "square",
    "allen-cahn": "square",
    "darcy": "square",
    "navier-stokes": "reflections",
    "smooth-transport": "exchange",
    "discontinuous-transport": "exchange",
}
SMALL = {
    "model.width": 8,
    "model.lift_width": 16,
    "model.neck_blocks": 2,
    "model.skip_blocks": 1,
    "train.samples": 256,
}


def variants(base: RunConfig) -> dict[str, Changes]:
    """What is tried in the place of `base`, by a name that says it."""
    tried: list[Changes] = [
        {"train.optimizer": optimizer, "train.learning_rate": rate}
        for rate in RATES
        for optimizer in ("adamw", "muon")
    ]
    muon = {"train.optimizer": "muon", "train.learning_rate": 4e-3}
    tried += [{**muon, "train.frozen_statistics": part} for part in (0.1, 0.25, 0.5, 0.75)]
    tried += [{"train.loss": loss} for loss in ("relative-l2", "weighted-l2")]
    others = {"zero", "periodic", "even", "odd"} - {base.architecture.boundary}
    tried += [{"model.boundary": boundary} for boundary in sorted(others)]
    tried += [{"train.batch_size": 16}, {"train.weight_decay": 1e-2}]
    tried += [{"train.averaging_half_life": None}]
    symmetries = {"none", SYMMETRIES.get(base.problem.name, "none")} - {base.train.augmentation}
    tried += [{"train.augmentation": augmentation} for augmentation in sorted(symmetries)]
    return {_name(changes): changes for changes in tried}


def _name(changes: Changes) -> str:
    words = (f"{field.partition('.')[2]}={value}" for field, value in changes.items())
    return " ".join(words)


def measure(config: RunConfig, folder: Path) -> dict[str, Any]:
    """What a run came to."""
    result = train_run(config, folder, splits=("val",))
    return {
        "validation_error_percent": 100 * result["best_validation_error"],
        "best_epoch": result["best_epoch"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "device": result["device"],
        "versions": result["versions"],
        "config": config.to_tree(),
    }


def is_same(there: Mapping[str, Any], here: RunConfig) -> bool:
    """Whether a row is of that run, on whatever device."""
    return bool(there) and not differences(RunConfig.from_tree(there), here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--only", default="*", help="a pattern of names, as in the file")
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    base = RunConfig.resolve(given.problem, "cno", "best", resolution=32 if given.small else None)
    base = replace(base, hardware=Hardware(given.device))
    # Names say what is frozen, also where `best` has it so.
    fixed = {"train.epochs": given.epochs, "train.frozen_statistics": 0.0}
    fixed |= SMALL if given.small else {}
    path = given.out / f"validation-recipes-{given.problem}{'-small' * given.small}.json"
    rows = read_json(path) if path.exists() else {}
    for name, changes in variants(base).items():
        config = Space(base, {}).config({**fixed, **changes})
        there = rows.get(name, {"config": {}})["config"]
        if is_same(there, config) or not fnmatch(name, given.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = measure(config, Path(folder, "run"))
        write_json(rows, path)
        print(f"{rows[name]['validation_error_percent']:7.3f} %  {name}", flush=True)


if __name__ == "__main__":
    main()
