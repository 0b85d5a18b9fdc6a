"""Which optimiser, and which rate? A small CNO on poisson at 32² points, trained by each.

    python validation/optimizers.py [--out results] [--epochs 60] [--device cpu]

Everything else is the preset `best`: a cosine to zero, averaged weights. The errors are of the
validation set, since they are there to choose by. Writes `validation-optimizers.json`, a row as
each run ends; a file that has rows already is added to. About two minutes a run on one core.
"""

import argparse
import json
import tempfile
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from torchcno import RunConfig, train_run
from torchcno.training import Hardware

OPTIMIZERS = ("adamw", "muon")
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
NETWORK = {"width": 8, "lift_width": 16, "neck_blocks": 2, "skip_blocks": 1}
SAMPLES = 256


def measure(optimizer: str, rate: float, epochs: int, device: str, folder: str) -> dict[str, Any]:
    """The row of one run."""
    config = RunConfig.resolve("poisson", "cno", preset="best", resolution=32)
    config = replace(
        config,
        architecture=replace(config.architecture, **NETWORK),
        train=replace(
            config.train,
            optimizer=optimizer,
            learning_rate=rate,
            epochs=epochs,
            samples=SAMPLES,
        ),
        data=Path(folder, "data"),
        hardware=Hardware(device),
    )
    result = train_run(config, Path(folder, f"{optimizer}-{rate:g}"), splits=("val",))
    return {
        "optimizer": optimizer,
        "learning_rate": rate,
        "validation_error_percent": 100 * result["best_validation_error"],
        "best_epoch": result["best_epoch"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "train": asdict(config.train),
        "model": NETWORK,
        "device": result["device"],
        "versions": result["versions"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    path = given.out / "validation-optimizers.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text()) if path.exists() else []
    known = {(row["optimizer"], row["learning_rate"], row["train"]["epochs"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for rate, optimizer in product(RATES, OPTIMIZERS):
            if (optimizer, rate, given.epochs) in known:
                continue
            rows.append(measure(optimizer, rate, given.epochs, given.device, folder))
            path.write_text(json.dumps(rows, indent=2) + "\n")
            print(
                f"{optimizer:6} {rate:g} {rows[-1]['validation_error_percent']:.3f} %", flush=True
            )


if __name__ == "__main__":
    main()
