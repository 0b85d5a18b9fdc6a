"""`cno audit`: is a trained run one operator, whatever its grid?"""

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from torchcno.cli import MISSED
from torchcno.cli.arguments import PICTURES, check_target, parse, parser_of
from torchcno.cli.evaluate import whole_numbers
from torchcno.cli.terminal import table
from torchcno.disk import write_json
from torchcno.evaluation.aliasing import Audit
from torchcno.problems.problem import SPLITS
from torchcno.runs.audit import audit_report, audit_run
from torchcno.runs.evaluate import run_names

SHOWN = 5  # layers in the table; the JSON file has all


def main(arguments: Sequence[str]) -> int:
    """Audit, print what was found, and return 1 where a run is above the threshold."""
    given = parse(audit_parser(), arguments)
    check_target(given.plot, PICTURES)
    check_target(given.json)
    if not given.threshold > 0:
        raise ValueError(f"--threshold is {given.threshold}; give a positive number such as 0.01.")
    resolutions = whole_numbers(given.resolutions or "")
    audits = []
    console = Console()
    for name, run in zip(run_names(given.runs), given.runs, strict=True):
        found = audit_run(
            run,
            split=given.split,
            samples=given.samples,
            resolutions=resolutions,
            device=given.device,
            name=name,
        )
        report(found, given.threshold, console)
        audits.append(found)
    content = audit_report(audits, given.threshold)
    if given.json:
        write_json(content, given.json)
        print(f"All numbers are in {given.json}.")
    if given.plot:
        from torchcno.runs.pictures.equivalence import draw_audits

        draw_audits(audits).savefig(given.plot, dpi=150)
        print(f"Drawn to {given.plot}.")
    return 0 if content["passed"] else MISSED


def audit_parser() -> ArgumentParser:
    """The parser of `cno audit`."""
    parser = parser_of(
        "audit RUN [RUN ...] [--threshold T] [options]",
        "Measure the aliasing of trained runs: between grids, under translations by a fraction\n"
        "of a grid step, and layer by layer. Ends with exit code 1 if an error end to end is\n"
        "above the threshold.",
        """
        cno audit runs/p1
        cno audit runs/cno runs/fno runs/unet --plot audit.png --json audit.json
        cno audit runs/p1 --threshold 0.05 && echo alias-free enough
        """,
    )
    parser.add_argument("runs", type=Path, nargs="+", help="the runs' folders")
    parser.add_argument("--threshold", type=float, default=0.01, help="the largest error allowed")
    parser.add_argument("--samples", type=int, default=4, help="inputs that are looked at")
    parser.add_argument("--split", default="test", help=f"where from: {', '.join(SPLITS)}")
    parser.add_argument(
        "--resolutions",
        type=str,
        help="points an axis of the ladder (default: 1/2, 3/4, 1, 3/2 and 2 times training's)",
    )
    parser.add_argument("--json", type=Path | None, help="a file for all numbers")
    parser.add_argument("--plot", type=Path | None, help="a picture, the runs side by side")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return parser


def report(found: Audit, threshold: float, console: Console) -> None:
    """The tables of one audit, and its verdict."""
    rows: list[tuple[str, str, str]] = []
    for rung in found.ladder:
        grid = " × ".join(map(str, rung.size))
        if rung.folded is None or rung.aliasing is None:
            rows.append((grid, "refused", ""))
        else:
            rows.append((grid, f"{rung.folded:.2e}", f"{rung.aliasing:.2e}"))
    finest = " × ".join(map(str, found.reference or ()))
    title = f"{found.name}: aliasing error against {finest}"
    console.print(table(title, ["grid", "in its band", "in all"], rows))
    if found.translations:
        moves = [(f"{t.steps:g} steps", f"{t.error:.2e}") for t in found.translations]
        console.print(table("error under a translation", ["by", "error"], moves))
    worst = sorted(found.layers, key=lambda layer: layer.folded, reverse=True)[:SHOWN]
    layers = [(layer.name, layer.kind, f"{layer.folded:.2e}") for layer in worst]
    if layers:
        title = f"energy folded back: {len(layers)} of {len(found.layers)} layers"
        console.print(table(title, ["layer", "kind", "share"], layers))
    for rung in found.ladder:
        if rung.failure:
            console.print(f"{rung.size[-1]} points: {rung.failure}", markup=False)
    for note in found.notes:
        console.print(f"note: {note}", markup=False)
    console.print(verdict(found, threshold), markup=False)


def verdict(found: Audit, threshold: float) -> str:
    """One line."""
    if found.worst is None:
        return f"{found.name}: NOT MEASURED, which does not pass."
    passed = "passes" if found.passes(threshold) else "FAILS"
    return (
        f"{found.name}: {passed}, the largest error is {found.worst:.2e} of {threshold:g} allowed."
    )
