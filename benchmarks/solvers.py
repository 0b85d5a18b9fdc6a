"""Time and memory of making each problem's sets at the paper's sizes.

    python benchmarks/solvers.py [--cores 2] [--measured 4] [--problem darcy ...] [--out FILE]
    python benchmarks/solvers.py --device cuda

On the CPU, each of `--cores` processes makes `--measured` samples of the training and of the ood
set on one thread, all at once as `cno generate` does, and the sets' time follows in proportion. On
CUDA the sets are made whole. Peak memory is that of the largest process, or of the GPU.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from torchcno.data.samples import Samples
from torchcno.problems import PROBLEMS, SPLITS, Problem

GIB = 2**30


def timed(problem: Problem, split: str, indices: range, device: str) -> float:
    """Seconds to make the samples `indices`."""
    samples = Samples.of(problem, split)
    start = time.perf_counter()
    samples.make(indices, device)
    return time.perf_counter() - start


def in_one_process(name: str, measured: int, worker: int) -> tuple[dict[str, float], int]:
    """Seconds a sample, by split, and the process' peak memory in bytes."""
    torch.set_num_threads(1)
    problem = PROBLEMS[name]()
    first = worker * measured + 1
    timed(problem, "train", range(1), "cpu")  # matrices and transforms are prepared once
    seconds = {
        split: timed(problem, split, range(first, first + measured), "cpu") / measured
        for split in ("train", "ood")
    }
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def on_cpu(name: str, cores: int, measured: int) -> dict[str, Any]:
    # A fresh process for each problem, so that peak memory is its own.
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(in_one_process, name, measured, worker) for worker in range(cores)]
        results = [job.result() for job in jobs]
    sizes = PROBLEMS[name].samples

    def mean(split: str) -> float:
        return sum(seconds[split] for seconds, _ in results) / cores

    whole = sum(sizes[split] * mean("ood" if split == "ood" else "train") for split in SPLITS)
    return {
        "samples": sum(sizes.values()),
        "core_seconds_a_sample": mean("train"),
        "seconds": whole / cores,
        "peak_gib": max(peak for _, peak in results) / GIB,
    }


def on_cuda(name: str) -> dict[str, Any]:
    problem = PROBLEMS[name]()
    timed(problem, "train", range(2), "cuda")  # what CUDA prepares once
    torch.cuda.reset_peak_memory_stats()
    seconds = 0.0
    for split in SPLITS:
        size = problem.samples[split]
        at_once = problem.gpu_batch(problem.resolution)
        for first in range(0, size, at_once):
            batch = range(first, min(first + at_once, size))
            seconds += timed(problem, split, batch, "cuda")
    return {
        "samples": sum(problem.samples.values()),
        "seconds": seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / GIB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", nargs="*", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--measured", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    problems: dict[str, Any] = {}
    for name in options.problem:
        problems[name] = (
            on_cuda(name)
            if options.device == "cuda"
            else on_cpu(name, options.cores, options.measured)
        )
        row = problems[name]
        print(f"{name:24} {row['samples']:5} samples {row['seconds']:9.1f} s", end="")
        print(f" {row['peak_gib']:6.2f} GiB", flush=True)
    report = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "cores": options.cores if options.device == "cpu" else None,
        "torch": torch.__version__,
        "problems": problems,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
