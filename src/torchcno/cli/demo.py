"""`cno demo`: the tour."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from torchcno.cli import MISSED, Stop
from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.terminal import error_table, table
from torchcno.cli.train import watched
from torchcno.runs.demo import Tour, take_tour, tour_config, write_page


def main(arguments: Sequence[str]) -> None:
    """Take the tour, print its tables, write its page, and check what it promises."""
    parser = parser_of(
        "demo [--out FOLDER]",
        "The tour: make Poisson data, train a small CNO, evaluate it in and out of distribution\n"
        "on three grids, and see what the filters are for. Four minutes on two cores, one page.",
        "cno demo\ncno demo --out /tmp/tour",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="the folder for all of it")
    out = parse(parser, arguments).out
    with watched(tour_config(out), go_on=f"cno demo --out {out}") as watch:
        tour = take_tour(out, watch)
    page = out / "demo.html"
    write_page(tour, page)
    report(tour, Console())
    print(f"The pictures are on {page}; it took {tour.seconds:.0f} s.")
    if not all(check.holds for check in tour.checks):
        raise Stop(MISSED, "the tour did not come to what it promises; see the table.")


def report(tour: Tour, console: Console) -> None:
    """The tables of the tour."""
    console.print(error_table({f"{e.split} {e.resolution}²": e.summary for e in tour.evaluations}))
    title = "a shift by a third of a grid step: ‖G(τu) − τG(u)‖ / ‖G(u)‖"
    rows = [(t.name, f"{100 * t.error:.2f} %") for t in tour.translations]
    console.print(table(title, ["", "error"], rows))
    checks = [
        (c.what, f"{c.value:.2g}{c.unit}", f"{c.low:g} to {c.high:g}", "yes" if c.holds else "NO")
        for c in tour.checks
    ]
    console.print(table("promised", ["", "found", "expected", "kept"], checks))
