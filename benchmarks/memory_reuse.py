"""Training steps on a CPU with memory that is kept from step to step, and without.

    python benchmarks/memory_reuse.py [--rounds 3] [--out results/bench-cpu-memory.json]

The network and the batch are those of the paper's tables. Each measurement is a process of its own,
since an allocator cannot be told to forget; the two ways take turns. Writes, by problem and model,
seconds a step (the median of five) and the process's peak memory, round by round.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as `cno` does

import torch

from torchcno.runs.bench_work import Batch, Way, training_step
from torchcno.runs.config import RunConfig
from torchcno.runs.train import versions
from torchcno.training.hardware import device_name, reuse_memory

CASES = (
    ("navier-stokes", "cno"),
    ("poisson", "cno"),
    ("poisson", "resnet"),
    ("allen-cahn", "fno"),
)
WAYS = ("given back", "kept")


def measure(problem: str, model: str, way: str) -> dict[str, float]:
    """In this process: the step's seconds, and the peak of memory."""
    if way == "kept":
        reuse_memory()
    config = RunConfig.resolve(problem, model, preset="paper")
    batch = Batch(config.train.batch_size, config.resolution, torch.device("cpu"))
    step = training_step(Way(model), config.problem, batch)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # it counts KiB
    return {"seconds": round(statistics.median(seconds[1:]), 4), "peak_gib": round(peak, 3)}


def apart(*words: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--case", *words]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers: dict[str, float] = json.loads(found)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench-cpu-memory.json"))
    parser.add_argument("--case", nargs=3, metavar=("PROBLEM", "MODEL", "WAY"))
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(*arguments.case)))
        return
    report = {"device": device_name(torch.device("cpu")), "versions": versions(), "steps": {}}
    for problem, model in CASES:
        rounds = [[apart(problem, model, way) for way in WAYS] for _ in range(arguments.rounds)]
        by_way = dict(zip(WAYS, zip(*rounds, strict=True), strict=True))
        medians = [statistics.median(found["seconds"] for found in by_way[way]) for way in WAYS]
        report["steps"][f"{problem} {model}"] = {
            **by_way,
            "ratio": round(medians[1] / medians[0], 3),
        }
        print(problem, model, *(f"{way} {s:.3f} s" for way, s in zip(WAYS, medians, strict=True)))
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
