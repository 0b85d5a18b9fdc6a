"""`cno bench`: speed and memory, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from torchcno.cli.arguments import check_target, parse, parser_of
from torchcno.cli.terminal import progress_bars, table
from torchcno.disk import write_json
from torchcno.runs.bench import (
    PLANS,
    SECTIONS,
    Plan,
    prediction_name,
    run_bench,
    selected,
    solver_name,
)
from torchcno.runs.operator import pick_device

DESCRIPTION = """\
Measure in one run, with ratios:

  training   a training step of the navier-stokes CNO of the paper: fused, with dense matrices,
             without filters, without blocks across, with bicubic interpolation; FNO and U-Net;
             memory formats, and on CUDA float16, bfloat16 and operation by operation instead of
             captured in a graph
  sizes      what a pixel of a step costs as the grid grows
  inference  one sample and many at once, and the solver for the same fields"""
EXAMPLES = """
cno bench
cno bench --device cpu --out bench-cpu.json
cno bench --only fused,no-filters --seconds 20
cno bench --only sizes,'poisson-*'
"""


def main(arguments: Sequence[str]) -> None:
    """Measure, write the numbers as they come, and print them in the end."""
    parser = parser_of(
        "bench [--device cuda|cpu] [--out FILE.json] [--seconds S] [--only NAME,...]",
        DESCRIPTION,
        EXAMPLES,
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path | None, help="a file for all numbers, as they come")
    budgets = ", ".join(f"{plan.seconds:g} on {name}" for name, plan in PLANS.items())
    parser.add_argument(
        "--seconds",
        type=float | None,
        help=f"of measuring, about; compiling comes on top (default: {budgets})",
    )
    parser.add_argument(
        "--only", default="", help=f"sections ({', '.join(SECTIONS)}), or rows or patterns of them"
    )
    given = parse(parser, arguments)
    plan = PLANS[pick_device(given.device).type]
    if given.seconds is not None:
        if not given.seconds > 0:
            raise ValueError(f"--seconds is {given.seconds:g}; give a positive number such as 60.")
        plan = replace(plan, seconds=given.seconds)
    only = [name.strip() for name in given.only.split(",") if name.strip()]
    selected(plan, only)  # a wrong name is refused before anything is shown
    check_target(given.out)
    report = watched(plan, only, given.out)
    show(report, plan, Console())
    if given.out:
        print(f"All numbers are in {given.out}.")


def watched(plan: Plan, only: Sequence[str], out: Path | None) -> dict[str, Any]:
    """The numbers, with a bar of the time meanwhile; they are on disk as soon as they are known."""
    with progress_bars() as make:
        bar = make("measuring")

        def watch(report: dict[str, Any], at_work: str) -> None:
            bar(int(min(measured(report), plan.seconds)), int(plan.seconds), f", {at_work}")
            if out is not None:
                write_json(report, out)

        return run_bench(plan, only, watch)


def measured(report: Mapping[str, Any]) -> float:
    """Seconds so far without those of building and compiling."""
    rows = (row for section in SECTIONS for row in report.get(section, {}).values())
    first_calls: float = sum(row.get("first_call_seconds", 0.0) for row in rows)
    return max(0.0, report["wall_seconds"] - first_calls)


def show(report: Mapping[str, Any], plan: Plan, console: Console) -> None:
    """The tables, and what could not be measured."""
    console.print(
        f"{report['device']}, torch {report['versions']['torch']}; {report['wall_seconds']:.0f} s",
        markup=False,
        highlight=False,
    )
    if "training" in report:
        console.print(training_table(report["training"]))
    if "sizes" in report:
        console.print(size_table(report["sizes"]))
    if "inference" in report:
        console.print(inference_table(report["inference"], plan))
    for section in SECTIONS:
        for name, row in report.get(section, {}).items():
            for remark in (*row.get("notes", ()), *([row["error"]] if "error" in row else ())):
                console.print(f"{section}, {name}: {remark}", markup=False, highlight=False)


def training_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Time and memory of a step, over those of the default way."""
    first = next(iter(rows.values()))
    title = f"training step, batch {first['batch']}, {first['size']}²"
    columns = ["", "ms", "±", "over fused", "peak memory"]
    return table(title, columns, (_training_row(name, row) for name, row in rows.items()))


def _training_row(name: str, row: Mapping[str, Any]) -> Sequence[str]:
    if "milliseconds" not in row:
        return name, "–", "", "", ""
    ratio = 1.0 if name == "fused" else row["ratios"].get("fused")
    return (
        name,
        number(row["milliseconds"]),
        spread(row),
        "–" if ratio is None else f"{ratio:.2f}",
        "–" if row["peak_gib"] is None else f"{row['peak_gib']:.2f} GiB",
    )


def size_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Nanoseconds a pixel, and what the filters cost, grid by grid."""
    ways = dict.fromkeys(name.rpartition("-")[0] for name in rows)
    sizes = dict.fromkeys(row["size"] for row in rows.values())

    def lines() -> Iterator[Sequence[str]]:
        for size in sizes:
            of_size = [rows.get(f"{way}-{size}", {}) for way in ways]
            batch = next(row["batch"] for row in of_size if row)
            price = rows.get(f"fused-{size}", {}).get("ratios", {}).get(f"no-filters-{size}")
            yield (
                f"{size}², batch {batch}",
                *(number(row.get("nanoseconds_a_pixel")) for row in of_size),
                "–" if price is None else f"{price:.2f}",
            )

    columns = ["", *ways, "fused over no-filters"]
    return table("training step, nanoseconds a pixel", columns, lines())


def inference_table(rows: Mapping[str, Mapping[str, Any]], plan: Plan) -> Table:
    """Milliseconds a sample of networks and solvers, alone and many at once."""
    ways = {"network": "", "eager": "-eager"} if plan.device == "cuda" else {"network": ""}

    def lines() -> Iterator[Sequence[str]]:
        for problem in plan.problems:
            for size in plan.inference_sizes:
                for kind in ("latency", "throughput"):
                    name = prediction_name(problem, size, kind)
                    solver = rows.get(solver_name(problem, size, kind), {})
                    found = [*(rows.get(name + suffix, {}) for suffix in ways.values()), solver]
                    if any(found):
                        yield (
                            f"{problem.name} {size}² {kind}",
                            *(number(row.get("milliseconds_a_sample")) for row in found),
                            number(solver.get("ratios", {}).get(name)),
                        )

    columns = ["", *ways, "solver", "speed-up"]
    return table("inference, milliseconds a sample", columns, lines())


def number(value: float | None) -> str:
    """Three digits, without an exponent; a dash where there is no number."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def spread(row: Mapping[str, Any]) -> str:
    """Half the distance between the quartiles, in percent of the median."""
    low, high = row["quartiles_milliseconds"]
    return f"{50 * (high - low) / row['milliseconds']:.1f} %"
