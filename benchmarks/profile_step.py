"""Where the time of a training step goes on a CUDA device, kernel by kernel.

    python benchmarks/profile_step.py [--way fused] [--batch 32] [--out FILE.json]

The ways are those of `cno bench`, which says how long a step takes; this says what it consists of.
Prints groups of kernels, and writes the kernels themselves as JSON.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from torchcno.arithmetic import arithmetic
from torchcno.problems import NavierStokes
from torchcno.runs.bench import CUDA_WAYS, WAYS
from torchcno.runs.bench_work import Batch, Work, training_step

STEPS = 5
# The programs of `torchcno.operators` go by the names of their functions.
ACTIVATION = {f"{way}{kind}" for way in ("forward", "backward") for kind in ("", "_1d", "_2d")}
GROUPS = {  # any other kernel is of the first group that has a part of its name
    "layout": ("nchwToNhwc", "nhwcToNchw", "transpose", "Transpose"),
    "batch norm": ("batch_norm", "bn_", "BatchNorm", "batchnorm", "normalisation"),
    "optimiser": ("FusedAdam", "fused_adam", "multi_tensor"),
    "convolution": ("conv", "cudnn", "gemm", "xmma", "cutlass", "implicit", "wgrad", "dgrad"),
    "copy and fill": ("Memcpy", "Memset", "copy", "fill"),
}


def kernels(step: Work) -> list[dict[str, Any]]:
    """Microseconds a step of every kernel, the longest first."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    rows = [
        {
            "kernel": event.key[:160],
            "calls": event.count / STEPS,
            "microseconds": event.self_device_time_total / STEPS,
        }
        for event in trace.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row["microseconds"])


def group_of(kernel: str) -> str:
    """What a kernel is for, by its name."""
    if kernel in ACTIVATION:
        return "activation"
    names = (name for name, parts in GROUPS.items() if any(part in kernel for part in parts))
    return next(names, "elementwise and other")


def grouped(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Calls and microseconds a step of every group."""
    groups: dict[str, dict[str, float]] = defaultdict(lambda: {"calls": 0.0, "microseconds": 0.0})
    for row in rows:
        group = groups[group_of(row["kernel"])]
        for what in group:
            group[what] += row[what]
    return dict(sorted(groups.items(), key=lambda item: -item[1]["microseconds"]))


def main() -> None:
    ways = WAYS | CUDA_WAYS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", default="fused", choices=ways)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    batch = Batch(given.batch, 64, torch.device("cuda"))
    with arithmetic("tf32"):
        rows = kernels(training_step(ways[given.way], NavierStokes(), batch))
    groups = grouped(rows)
    for name, group in groups.items():
        print(f"{name:24} {group['calls']:6.0f} kernels {group['microseconds']:8.1f} us")
    if given.out:
        report = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "way": given.way,
            "batch": given.batch,
            "groups": groups,
            "kernels": rows,
        }
        given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
