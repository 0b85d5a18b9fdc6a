"""`cno bench`: speed and memory, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from torchcno.cli.arguments import Device, check_target, describe
from torchcno.cli.terminal import number, progress_bars, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from torchcno.runs.bench import Plan

# By section: title, unit of work, its numbers, and what they are compared with.
TITLES = {
    "training": ("training step", "ms a sample", "milliseconds_a_sample", "fused"),
    "sizes": ("as the grid grows", "ns a pixel", "nanoseconds_a_pixel", "no-filters"),
    "inference": ("inference", "ms a sample", "milliseconds_a_sample", "network"),
}


def bench(
    *,
    device: Device = "auto",
    out: Annotated[Path | None, describe("write all numbers to this file", "no file")] = None,
    seconds: Annotated[float | None, describe("to measure", "50 on cuda, 180 on cpu")] = None,
    only: Annotated[str, describe("sections, rows or patterns of rows: A,B", "everything")] = "",
) -> None:
    """Measure speed and memory of networks and solvers, side by side.

      training   a training step of the paper's CNO for navier-stokes: fused, with
                 dense matrices, without filters, without skip blocks, with bicubic
                 interpolation; FNO and U-Net; memory formats; on CUDA also float16,
                 bfloat16, and operation by operation instead of as one graph
      sizes      the cost of a pixel of a step as the grid grows
      inference  one sample, many at once, and the solver for the same fields

    examples:
      cno bench
      cno bench --device cpu --out bench-cpu.json
      cno bench --only fused,no-filters --seconds 20
      cno bench --only sizes,'poisson-*'
    """
    from torchcno.runs.bench import PLANS, select_rows
    from torchcno.runs.operator import pick_device

    plan = PLANS[pick_device(device).type]
    if seconds is not None:
        if not seconds > 0:
            raise ValueError(f"--seconds is {seconds:g}; give a positive number such as 60.")
        plan = replace(plan, seconds=seconds)
    names = [name.strip() for name in only.split(",") if name.strip()]
    select_rows(plan, names)  # a wrong name is refused before anything is shown
    check_target(out)
    found = measure(plan, names, out)
    show_report(found)
    if out:
        print(f"All numbers are in {out}.")


def measure(plan: Plan, only: Sequence[str], out: Path | None) -> dict[str, Any]:
    """The numbers, with a bar of the time meanwhile; they are on disk as soon as they are known."""
    from torchcno.disk import write_json
    from torchcno.runs.bench import run_bench

    with progress_bars() as make:
        bar = make("measuring")

        def watch(report: dict[str, Any], at_work: str) -> None:
            bar(int(min(measured(report), plan.seconds)), int(plan.seconds), f", {at_work}")
            if out is not None:
                write_json(report, out)

        return run_bench(plan, only, watch)


def measured(report: Mapping[str, Any]) -> float:
    """Seconds so far without those of building and compiling."""
    first_calls = (row.get("first_call_seconds", 0.0) for *_, row in rows_of(report))
    return max(0.0, report["wall_seconds"] - sum(first_calls))


def rows_of(report: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Section, name and numbers of every row."""
    for section in TITLES:
        for name, row in report.get(section, {}).items():
            yield section, name, row


def show_report(report: Mapping[str, Any]) -> None:
    """A table a section, and what could not be measured."""
    show(f"{report['device']}, torch {report['versions']['torch']}; {report['wall_seconds']:.0f} s")
    for section in TITLES:
        if section in report:
            show(section_table(section, report[section]))
    for section, name, row in rows_of(report):
        for remark in (*row.get("notes", ()), *([row["error"]] if "error" in row else ())):
            show(f"{section}, {name}: {remark}")


def section_table(section: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Time and memory of a call, and its time for a unit of work over that of another row."""
    title, unit, key, other = TITLES[section]
    lines = []
    for name, row in rows.items():
        ratios = row.get("ratios", {})
        ratio = ratios.get(other, next(reversed(ratios.values()), None))
        values = (row.get(key), row.get("peak_gib"), ratio)
        lines.append((name, number(row.get("milliseconds")), spread(row), *map(number, values)))
    return table(title, ["", "ms", "±", unit, "GiB", f"over {other}"], lines)


def spread(row: Mapping[str, Any]) -> str:
    """Half the distance between the quartiles, in percent of the median."""
    if "milliseconds" not in row:
        return "–"
    low, high = row["quartiles_milliseconds"]
    return f"{50 * (high - low) / row['milliseconds']:.1f} %"
