"""One training step of the navier-stokes CNO on a CPU, against the same network without filters.

    python benchmarks/cpu_step.py --threads 2 --batch 16

Forward, backward and AdamW, both networks in turn in one process, so that whatever else the machine
does happens to both. The network without filters runs in the memory format that is faster for it.
Prints JSON; `ratio` is the price of the filters.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

# As the command line does: threads that spin while they wait take the cores from those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import Nearest


def training_step(config: CNOConfig, batch: int, memory_format: torch.memory_format) -> Callable:
    torch.manual_seed(0)
    model = CNO(config).to(memory_format=memory_format)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    u, v = torch.randn(2, batch, 1, *config.size)

    def step() -> None:
        optimizer.zero_grad()
        (model(u) - v).abs().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--boundary", default="zero")
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: the process's own time, for a machine that is shared",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]

    config = CNOConfig(**CNO.PAPER["navier-stokes"], boundary=options.boundary)
    bare = replace(config, filter=Nearest())
    steps = {
        "filters": training_step(config, options.batch, torch.channels_last),
        "no filters, channels first": training_step(bare, options.batch, torch.contiguous_format),
        "no filters, channels last": training_step(bare, options.batch, torch.channels_last),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(options.repeats + 1):
        for name, step in steps.items():
            start = clock()
            step()
            if repeat:  # the first one warms up
                seconds[name].append(clock() - start)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    fastest_bare = min(value for name, value in median.items() if name != "filters")
    print(
        json.dumps(
            {
                **vars(options),
                "omp_wait_policy": os.environ["OMP_WAIT_POLICY"],
                "torch": torch.__version__,
                "seconds": {name: round(value, 4) for name, value in median.items()},
                "ratio": round(median["filters"] / fastest_bare, 3),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
