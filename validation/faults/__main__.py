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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before torch. Processes are what runs in parallel, and a process with a GPU cannot be copied.
os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

from validation.faults.flips import KINDS, flip_bits
from validation.faults.runs import (
    ERRORS,
    GENERATED,
    cut_power,
    fail_disk,
    kill_at_operations,
    kill_at_random,
    kill_generation,
)
from validation.faults.scene import KEYS, WORKS, Count, Scene, make_scene, remove
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
    for work in WORKS:
        for i in range(4):  # every operation, in four shares that are done side by side
            tasks[f"kill {work} {i}"] = _on(work, kill_at_operations, range(i + 1, 0, 4), "kill")
            tasks[f"power {work} {i}"] = _on(work, cut_power, range(2 * i + 1, 0, 8), "power")
        for number in ERRORS:
            share = range(number % 8 + 1, 0, 8)
            tasks[f"disk {work} {number}"] = _on(work, fail_disk, number, share, "disk")
    for i in range(4):
        tasks[f"random {i}"] = lambda s, i=i: kill_at_random(s, 10, seed=i)
    for what in GENERATED:
        tasks[f"generation {what}"] = lambda s, what=what: kill_generation(s, 30, what)
    tasks |= {
        "links": follow_links,
        "flock": share_without_flock,
        "code": run_foreign_code,
        "bombs": light_bombs,
        "data": name_data_elsewhere,
    }
    return tasks | {f"flips {kind}": lambda s, k=kind: flip_bits(s, k, 500) for kind in KINDS}


def few_tasks() -> dict[str, Task]:
    """A share of it: seconds, for `make test`."""
    tasks: dict[str, Task] = {
        "kill": lambda s: kill_at_operations(s, range(40, 0, 90), "kill"),
        "power": lambda s: cut_power(s, range(30, 0, 90), "power"),
        "disk": lambda s: fail_disk(s, ERRORS[0], range(60, 0, 100), "disk"),
        "data": name_data_elsewhere,
        "generation": lambda s: kill_generation(s, 2, "pairs"),
    }
    return tasks | {f"flips {kind}": lambda s, k=kind: flip_bits(s, k, 20) for kind in KINDS}


def _on(work: str, task: Callable[..., Count], *arguments: Any) -> Task:
    """A task on the runs of one kind."""
    return lambda scene: task(replace(scene, work=work), *arguments)


def main() -> int:
    """Run the tasks on the cores that there are; 1 if something was lost or silent."""
    parser = argparse.ArgumentParser(prog="python -m validation.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small share of all tries")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="TASK",
        help="tasks, or how their names begin: kill",
    )
    parser.add_argument("--list", action="store_true", help="only name the tasks")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, help="JSON file of what came out")
    options = parser.parse_args()
    tasks = pick(few_tasks() if options.quick else all_tasks(), options.only)
    if options.list:
        print("\n".join(tasks))
        return 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        found = run_tasks(make_scene(Path(home)), tasks, options.workers)
    seconds, counts = time.monotonic() - start, by_kind(found)
    show(counts, seconds)
    if options.out:
        content = {
            "seconds": round(seconds),
            "cpu_seconds": round(_cpu_seconds()),
            "cores": len(os.sched_getaffinity(0)),
            "versions": {
                "torchcno": version("torchcno"),
                "torch": version("torch"),
                "python": platform.python_version(),
            },
            "counts": [asdict(count) for count in counts.values()],
            "task_cpu_seconds": {name: found[name].cpu_seconds for name in tasks},
        }
        options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return int(any(count.lost or count.silent for count in counts.values()))


def pick(tasks: Mapping[str, Task], names: Sequence[str]) -> dict[str, Task]:
    """The tasks whose names begin like one of `names`; all without names."""
    for name in names:
        if not any(task.startswith(name) for task in tasks):
            sys.exit(f"no task begins like {name!r}; use one of: {', '.join(tasks)}.")
    begins = tuple(names) or ("",)
    return {name: task for name, task in tasks.items() if name.startswith(begins)}


def run_tasks(scene: Scene, tasks: Mapping[str, Task], workers: int) -> dict[str, Count]:
    """The count of each task; the longest begin first, and the last line says what is left."""
    _TASKS.update(tasks)
    counts: dict[str, Count] = {}
    cost, start = _costs(tasks), time.monotonic()
    # A fork: processes know the tasks, which are functions without names.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        futures = {
            pool.submit(_run, name, replace(scene, tries=scene.home / name)): name
            for name in sorted(tasks, key=lambda name: -cost[name])
        }
        for future in as_completed(futures):
            name, count = futures[future], future.result()
            counts[name] = count
            gone = time.monotonic() - start
            left = gone * (sum(cost.values()) / sum(cost[done] for done in counts) - 1)
            print(
                f"[{len(counts)}/{len(tasks)}] {name}: {count.survived} of {count.tries} survived, "
                f"{count.cpu_seconds:.1f} s of CPU; {gone:.0f} s gone, about {left:.0f} s left",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    return counts


def by_kind(counts: Mapping[str, Count]) -> dict[str, Count]:
    """The counts of tasks of one kind together."""
    kinds: dict[str, Count] = {}
    for count in counts.values():
        kinds.setdefault(count.kind, Count(count.kind)).add(count)
    return dict(sorted(kinds.items()))


LAST = Path(__file__).parents[2] / "results" / "validation-faults.json"


def _costs(names: Iterable[str]) -> dict[str, float]:
    """What each task cost the last time; as much as the mean where nobody knows."""
    last = json.loads(LAST.read_text(encoding="utf-8")) if LAST.exists() else {}
    known: dict[str, float] = last.get("task_cpu_seconds") or {"": 1.0}
    mean = sum(known.values()) / len(known)
    return {name: known.get(name, mean) for name in names}


_TASKS: dict[str, Task] = {}


def _run(name: str, scene: Scene) -> Count:
    before = _cpu_seconds()
    count = _TASKS[name](scene)
    remove(scene.tries)
    count.cpu_seconds = round(_cpu_seconds() - before, 1)
    return count


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for: user and system."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def show(counts: Mapping[str, Count], seconds: float) -> None:
    """The table, and what went wrong."""
    total = Count("in all")
    for count in counts.values():
        total.add(count)
    print(f"{'fault':<40}{'tries':>8}{'survived':>10}{'lost':>8}{'silent':>8}{'CPU s':>9}")
    for count in (*counts.values(), total):
        numbers = (getattr(count, key) for key in KEYS)
        cells = (f"{n:>{w}}" for n, w in zip(numbers, (8, 10, 8, 8), strict=True))
        print(f"{count.kind:<40}{''.join(cells)}{count.cpu_seconds:>9.1f}")
        for failure in count.failures if count is not total else ():
            print(f"  {failure[:1000]}")
    print(f"{seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
