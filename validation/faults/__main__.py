"""`python -m validation.faults`: all faults, a table, and a JSON file of what came out."""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch; processes are what runs in parallel

from validation.faults.flips import KINDS, flip_bits
from validation.faults.runs import (
    ERRORS,
    cut_power,
    fail_disk,
    kill_at_operations,
    kill_at_random,
    kill_generation,
)
from validation.faults.scene import Count, Scene, make_scene
from validation.faults.strangers import (
    follow_links,
    light_bombs,
    name_data_elsewhere,
    run_foreign_code,
    share_without_flock,
)

Task = Callable[[Scene], Count]


def all_tasks() -> dict[str, Task]:
    """Everything: minutes."""
    tasks: dict[str, Task] = {}
    for i in range(4):  # every operation, in four shares that are done side by side
        tasks[f"kill-{i}"] = lambda s, i=i: kill_at_operations(s, range(i + 1, 0, 4), "kill")
        tasks[f"power-{i}"] = lambda s, i=i: cut_power(s, range(2 * i + 1, 0, 8), "power")
        tasks[f"random-{i}"] = lambda s, i=i: kill_at_random(s, 10, seed=i)
    for number in ERRORS:
        tasks[f"disk-{number}"] = lambda s, n=number: fail_disk(
            s, n, range(n % 8 + 1, 0, 8), "disk"
        )
    tasks |= {
        "links": follow_links,
        "flock": share_without_flock,
        "code": run_foreign_code,
        "bombs": light_bombs,
        "data": name_data_elsewhere,
        "generation": lambda s: kill_generation(s, 30, seed=0),
    }
    return tasks | {f"flips-{kind}": lambda s, k=kind: flip_bits(s, k, 500) for kind in KINDS}


def few_tasks() -> dict[str, Task]:
    """A share of it: seconds, for `make test`."""
    tasks: dict[str, Task] = {
        "kill": lambda s: kill_at_operations(s, range(40, 0, 90), "kill"),
        "power": lambda s: cut_power(s, range(30, 0, 90), "power"),
        "disk": lambda s: fail_disk(s, ERRORS[0], range(60, 0, 100), "disk"),
        "data": name_data_elsewhere,
        "generation": lambda s: kill_generation(s, 2, seed=0),
    }
    return tasks | {f"flips-{kind}": lambda s, k=kind: flip_bits(s, k, 20) for kind in KINDS}


def main() -> int:
    """Run the tasks on the cores that there are; 1 if something was lost or silent."""
    parser = argparse.ArgumentParser(prog="python -m validation.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small share of all tries")
    parser.add_argument("--only", nargs="+", default=(), help="names of tasks, such as links")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, help="JSON file of what came out")
    options = parser.parse_args()
    start = time.monotonic()
    tasks = few_tasks() if options.quick else all_tasks()
    tasks = {name: tasks[name] for name in options.only or tasks}
    with tempfile.TemporaryDirectory() as home:
        counts = run_tasks(make_scene(Path(home)), tasks, options.workers)
    seconds = time.monotonic() - start
    show(counts, seconds)
    if options.out:
        content = {
            "seconds": round(seconds),
            "cpu_seconds": round(
                resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                + resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime
            ),
            "cores": len(os.sched_getaffinity(0)),
            "versions": {"torchcno": version("torchcno"), "python": platform.python_version()},
            "counts": [asdict(count) for count in counts.values()],
        }
        options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return int(any(count.lost or count.silent for count in counts.values()))


def run_tasks(scene: Scene, tasks: Mapping[str, Task], workers: int) -> dict[str, Count]:
    """The counts of all tasks by their kinds."""
    counts: dict[str, Count] = {}
    _TASKS.update(tasks)
    # A fork: processes know the tasks, which are functions without names.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        futures = {
            pool.submit(_run, name, replace(scene, tries=scene.home / name)): name for name in tasks
        }
        for future in as_completed(futures):
            found = future.result()
            print(f"{futures[future]}: {found.survived} of {found.tries}", file=sys.stderr)
            total = counts.setdefault(found.kind, Count(found.kind))
            for key in KEYS:
                setattr(total, key, getattr(total, key) + getattr(found, key))
            total.failures += found.failures
    return dict(sorted(counts.items()))


_TASKS: dict[str, Task] = {}


def _run(name: str, scene: Scene) -> Count:
    return _TASKS[name](scene)


def show(counts: Mapping[str, Count], seconds: float) -> None:
    """The table, and what went wrong."""
    print(f"{'fault':<40}{'tries':>8}{'survived':>10}{'lost':>8}{'silent':>8}")
    for count in counts.values():
        print(
            f"{count.kind:<40}{count.tries:>8}{count.survived:>10}{count.lost:>8}{count.silent:>8}"
        )
        for failure in count.failures:
            print(f"  {failure[:1000]}")
    sums = (sum(getattr(c, key) for c in counts.values()) for key in KEYS)
    print(
        f"{'in all':<40}" + "".join(f"{n:>{w}}" for n, w in zip(sums, (8, 10, 8, 8), strict=True))
    )
    print(f"{seconds:.0f} s")


KEYS = ("tries", "survived", "lost", "silent")

if __name__ == "__main__":
    sys.exit(main())
