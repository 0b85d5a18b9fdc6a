"""`cno demo`: the tour."""

from pathlib import Path
from typing import Annotated

from torchcno.cli import MISSED, Stop
from torchcno.cli.arguments import describe
from torchcno.cli.terminal import show_errors, show_table


def demo(
    *,
    out: Annotated[Path, describe("folder for data, run and page", metavar="FOLDER")] = Path(
        "demo"
    ),
) -> None:
    """Take the tour: make data, train, evaluate and draw.

    It makes data of Poisson's equation, trains a small network, measures its errors
    on three grids and its time against the solver, and shows what the filters are
    for. It takes a few minutes on two cores and writes one page.

    examples:
      cno demo
      cno demo --out tour
    """
    from torchcno.cli.watching import watch_training
    from torchcno.runs.demo import take_tour, tour_config, write_page

    with watch_training(tour_config(out), go_on=f"cno demo --out {out}") as watch:
        tour = take_tour(out, watch)
    page = out / "demo.html"
    write_page(tour, page)
    show_errors({f"{e.split} {e.resolution}²": e.summary for e in tour.evaluations})
    times = [
        (t.problem, f"{1000 * t.network:.3g} ms", f"{1000 * t.solver:.3g} ms", t.verdict)
        for t in tour.timings
    ]
    show_table("one field on this CPU", ["problem", "network", "solver", ""], times)
    title = "a shift by a third of a grid step: ‖G(τu) − τG(u)‖ / ‖G(u)‖"
    rows = [(t.name, f"{100 * t.error:.2f} %") for t in tour.translations]
    show_table(title, ["", "error"], rows)
    checks = [
        (c.what, f"{c.value:.2g}{c.unit}", f"{c.low:g} to {c.high:g}", "yes" if c.holds else "NO")
        for c in tour.checks
    ]
    show_table("promised", ["", "found", "expected", "kept"], checks)
    error = tour.checks[0].value
    print(f"Error on new sources: {error:.1f} % of the solution, after {tour.seconds:.0f} s.")
    print(f"Open {page} for the pictures. Three next steps:\n")
    for step, command in tour.next_steps.items():
        print(f"  {command}\n      {step}")
    if not all(check.holds for check in tour.checks):
        raise Stop(MISSED, "the tour did not come to what it promises; see the table.")
