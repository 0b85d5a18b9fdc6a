"""The statistics of inputs that scores compare with, measured anew for the shipped networks.

    python validation/trust_inputs.py poisson darcy ... [--rows results/trust.jsonl]

For when the features of a score change (`torchcno.evaluation.ood`). Inputs are drawn and not
solved, so this takes seconds where `torchcno.calibrate` needs all data. Bands stay as they are.
`trust.npz` of each network is written over, and `detection` in its line of --rows, on as many
samples as that line has. No network may be an ensemble: a spread needs its predictions.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from torchcno.data.samples import Samples
from torchcno.disk import write_atomically
from torchcno.evaluation.ood import KnownInputs
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.pretrained import find_run
from torchcno.runs.sections import detect
from torchcno.runs.trust import KNOWN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--rows", type=Path, default=Path("results/trust.jsonl"))
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    for name in options.runs:
        folder = RunFolder(find_run(name))
        config, trust, layout = folder.config(), folder.trust(), folder.operator().grid.layout
        if trust is None:
            raise ValueError(f"{name} has no bands; use torchcno.calibrate.")
        train, val = (draw_inputs(config, *one) for one in (("train", KNOWN), ("val", None)))
        known = KnownInputs.of(train, val, layout)
        folder.write_trust(replace(trust, inputs=known))
        for row in rows:
            if row["weights"] != folder.hash_weights():
                continue
            count = row["calibration"]["coverages"][0]["samples"]
            test, ood = (draw_inputs(config, split, count) for split in ("test", "ood"))
            distances = {
                s: known.distances_of(u, layout) for s, u in (("test", test), ("ood", ood))
            }
            found = detect(known, distances, "test")
            row["detection"] = asdict(replace(found, scores={}))
            row["detection"].pop("scores")
            print(f"{name}: {count} samples, {row['detection']}")
    write_atomically(options.rows, "".join(json.dumps(row) + "\n" for row in rows).encode())


def draw_inputs(config: RunConfig, split: str, count: int | None) -> Tensor:
    """The first inputs of a split as networks see them, without their solutions."""
    samples = Samples.of(config.problem, split, config.resolution, samples=count)
    problem = samples.split_problem
    grid = problem.solver_grid(config.resolution)
    generators = (Generator().manual_seed(samples.sample_seed(i)) for i in range(samples.count))
    states = (problem.sample_inputs(grid, 1, one) for one in generators)
    seen = [problem.restrict(problem.observe(one), config.resolution) for one in states]
    return torch.cat(seen).float()


if __name__ == "__main__":
    main()
