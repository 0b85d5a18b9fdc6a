"""`cno bench`: speed and memory, side by side."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from torchcno.cli.arguments import Device, check_target, describe
from torchcno.cli.terminal import number, show_table
from torchcno.runs.progress import progress_bars

# By section: title, unit of work, its numbers, and what they are compared with.
TITLES = {
    "training": ("training step", "ms a sample", "milliseconds_a_sample", "fused"),
    "sizes": ("as the grid grows", "ns a pixel", "nanoseconds_a_pixel", "no-filters"),
    "inference": ("inference", "ms a sample", "milliseconds_a_sample", "network"),
    "run": ("a run by best", "s to result.json", "seconds", "run"),
    "memory": ("the largest", "samples or points", "largest", "–"),
}


def bench(
    *,
    device: Device = "auto",
    out: Annotated[Path | None, describe("write all numbers to this file", "", "FILE")] = None,
    seconds: Annotated[
        float | None, describe("how long to measure, whole runs apart", "60 on cuda, 180 on cpu")
    ] = None,
    only: Annotated[
        str, describe("measure these alone: fused,no-filters", "everything", "A,B")
    ] = "",
) -> None:
    """Measure speed and memory of networks and solvers, side by side.

      training   a training step of the paper's CNO for navier-stokes: fused, with
                 dense matrices, without filters, without skip blocks, with bicubic
                 interpolation; FNO and U-Net; memory formats; on CUDA also float16,
                 bfloat16, and operation by operation instead of as one graph
      sizes      the cost of a pixel of a step as the grid grows
      inference  one sample, many at once, and the solver for the same fields
      run        a step of the CNO by best with each optimiser, whole runs of it,
                 alone and with several members, and from start to end (CUDA)
      memory     the largest batch and the largest grids in two and three
                 dimensions, as usual and with --train.recompute (CUDA)

    examples:
      cno bench
      cno bench --device cpu --out bench-cpu.json
      cno bench --only fused,no-filters --seconds 20
      cno bench --only sizes,'poisson-*'
    """
    from torchcno.disk import write_json
    from torchcno.runs.bench import PLANS, run_bench, select_rows
    from torchcno.training.hardware import pick_device

    plan = PLANS[pick_device(device).type]
    if seconds is not None:
        if not seconds > 0:
            raise ValueError(f"--seconds is {seconds:g}; give a positive number such as 60.")
        plan = replace(plan, seconds=seconds)
    names = [name.strip() for name in only.split(",") if name.strip()]
    select_rows(plan, names)  # a wrong name is refused before anything is shown
    check_target(out)
    with progress_bars() as make:
        bar = make("measuring")

        def watch(report: dict[str, Any], at_work: str) -> None:
            bar(int(min(count_seconds(report), plan.seconds)), int(plan.seconds), f", {at_work}")
            if out is not None:  # the numbers are on disk as soon as they are known
                write_json(report, out)

        report = run_bench(plan, names, watch)
    show_report(report)
    if out:
        print(f"All numbers are in {out}.")


def count_seconds(report: Mapping[str, Any]) -> float:
    """Seconds so far without those of building and compiling."""
    rows = [row for section in TITLES for row in report.get(section, {}).values()]
    first_calls = sum(row.get("first_call_seconds", 0.0) for row in rows)
    return max(0.0, report["wall_seconds"] - first_calls)


def show_report(report: Mapping[str, Any]) -> None:
    """Time and memory of a call by section, its time over another row's, and what failed."""
    print(
        f"{report['device']}, torch {report['versions']['torch']}; {report['wall_seconds']:.0f} s"
    )
    remarks = []
    for section, (title, unit, key, other) in TITLES.items():
        lines = []
        for name, row in report.get(section, {}).items():
            spread = "–"  # half the distance between the quartiles, in percent of the median
            if "quartiles_milliseconds" in row:
                low, high = row["quartiles_milliseconds"]
                spread = f"{50 * (high - low) / row['milliseconds']:.1f} %"
            ratios = row.get("ratios", {})
            ratio = ratios.get(other, next(reversed(ratios.values()), None))
            values = (row.get(key), row.get("peak_gib"), ratio)
            lines.append((name, number(row.get("milliseconds")), spread, *map(number, values)))
            said = (*row.get("notes", ()), row.get("error"))
            remarks += [f"{section}, {name}: {remark}" for remark in said if remark]
        if lines:
            show_table(title, ["", "ms", "±", unit, "GiB", f"over {other}"], lines)
    print(*remarks, sep="\n", end="\n" if remarks else "")
