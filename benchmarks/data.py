"""The data of all benchmark problems, every split at the paper's size: seconds and peak memory.

    python benchmarks/data.py [--problem darcy ...] [--device cpu|cuda] [--workers 2]

Makes the files in a temporary folder and writes `results/bench-data-<device>.json`, problem by
problem; one named again is measured again and the others are kept.
"""

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from torchcno.data.generate import available_cores, generate
from torchcno.problems import PROBLEMS, SPLITS

RESULTS = Path(__file__).parents[1] / "results"
BENCHMARK = [name for name in PROBLEMS if name != "vorticity"]  # a counter-example, not of the set
GIB = 2**30


def family_memory(pid: int) -> int:
    """Bytes held by a process and all that descend from it, shared pages counted once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
        return 0
    own = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return 1024 * own + sum(family_memory(int(child)) for child in children)


class PeakMemory:
    """The most memory this process and its workers held while inside."""

    def __enter__(self) -> "PeakMemory":
        self.peak, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.peak = max(self.peak, family_memory(os.getpid()))

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def processor() -> str:
    """The name of this machine's CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def measure(name: str, device: str, workers: int | None) -> dict[str, Any]:
    """All splits of one problem."""
    problem = PROBLEMS[name]()
    if device == "cuda":
        torch.zeros(1, device=device)  # the start of the device is no part of a problem
        torch.cuda.reset_peak_memory_stats()
    seconds = {}
    with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
        for split in SPLITS:
            start = time.perf_counter()
            generate(problem, split, folder=folder, device=device, workers=workers)
            seconds[split] = round(time.perf_counter() - start, 2)
    figures = {
        "samples": dict(problem.samples),
        "seconds": round(sum(seconds.values()), 2),
        "seconds_by_split": seconds,
        "peak_memory_gib": round(memory.peak / GIB, 2),
        "load_average": round(os.getloadavg()[0], 1),  # how much else the machine did
    }
    if device == "cuda":
        figures["peak_device_memory_gib"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", nargs="+", default=BENCHMARK, choices=BENCHMARK)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    path = RESULTS / f"bench-data-{given.device}.json"
    path.parent.mkdir(exist_ok=True)
    report = json.loads(path.read_text()) if path.exists() else {"problems": {}}
    on_gpu = given.device == "cuda"
    report["device"] = torch.cuda.get_device_name() if on_gpu else processor()
    report["cores"] = available_cores()
    report["torch"] = torch.__version__
    for name in given.problem:
        report["problems"][name] = measure(name, given.device, given.workers)
        path.write_text(json.dumps(report, indent=2) + "\n")
        print(name, json.dumps(report["problems"][name]), flush=True)


if __name__ == "__main__":
    main()
