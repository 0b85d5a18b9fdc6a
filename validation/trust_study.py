"""How far networks can be trusted, problem by problem: bands, scores, spread.

    python validation/trust_study.py runs/poisson runs/wave ... [--out FILE] [--device cuda]
    python validation/trust_study.py --train --members 5 --problem poisson [--folder runs/trust]

RUNs are finished run folders. With --train, a CNO of --members members is trained on each problem
by the preset `best`, into --folder, unless it is there already. One line of JSON a run is added to
--out: the AUROC of the score, in against out of distribution; how often bands hold on test data and
out of distribution; the rank correlation of an ensemble's spread with its error; the error against
shift, amplitude, noise and resolution; and the break-even. Runs whose line is there are left out,
so that an interrupted study goes on.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torchcno.problems import PROBLEMS
from torchcno.runs.audit import audit_trust
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.pretrained import find_run
from torchcno.runs.sections import describe_page
from torchcno.runs.train import train_run
from torchcno.training import Hardware

EIGHT = ("poisson", "wave", "smooth-transport", "discontinuous-transport", "allen-cahn",
         "navier-stokes", "darcy", "airfoil")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--train", action="store_true", help="train the runs first")
    parser.add_argument("--problem", nargs="*", default=EIGHT, choices=list(PROBLEMS))
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="of the preset, unless given")
    parser.add_argument("--width", type=int, help="of the preset, unless given")
    parser.add_argument("--folder", type=Path, default=Path("runs/trust"))
    parser.add_argument("--samples", type=int, default=256, help="of test and of ood")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/trust.jsonl"))
    options = parser.parse_args()
    if bool(options.runs) == options.train:
        parser.error("name finished runs, or give --train")
    there = options.out.read_text().splitlines() if options.out.exists() else []
    done = {(row["problem"], row["weights"]) for row in map(json.loads, there)}
    runs = options.runs or (train(name, options) for name in options.problem)  # one after another
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for run in runs:
        folder = RunFolder(find_run(run))
        name, digest = folder.description()["problem"], folder.hash_weights()
        if (name, digest) in done:
            print(f"{name}: done already")
            continue
        row = measure(folder, options) | {"problem": name, "weights": digest}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def train(name: str, options: argparse.Namespace) -> Path:
    """The folder of an ensemble on a problem; trained, or gone on with, if it is not finished."""
    hardware = Hardware(accelerator=options.device)
    config = RunConfig.resolve(name, "cno", hardware=hardware, data=options.data)
    config = replace(config, members=options.members)
    if options.epochs:
        config = replace(config, train=replace(config.train, epochs=options.epochs))
    if options.width:
        config = replace(config, architecture=replace(config.architecture, width=options.width))
    folder = options.folder / name
    print(f"{name}: training {options.members} members into {folder}", flush=True)
    train_run(config, folder, mode="either")
    return folder


def measure(folder: RunFolder, options: argparse.Namespace) -> dict[str, Any]:
    data = options.data
    page = audit_trust(folder.path, samples=options.samples, device=options.device, data=data)
    print(folder.path)
    for title, lines in describe_page(page).items():
        print(f"  {title}", *lines, sep="\n    ")
    kept = asdict(page)
    kept["detection"].pop("scores")
    result = folder.result()
    told = {} if result is None else {"members": len(result.get("members", [1]))}
    return {"model": folder.description()["model"], **told, **kept}


if __name__ == "__main__":
    main()
