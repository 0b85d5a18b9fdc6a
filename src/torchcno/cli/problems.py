"""`cno problems`: what there is, one line each; or one problem, with its constants and pictures."""

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchcno.cli.arguments import PICTURES, check_target, parse, parser_of
from torchcno.cli.terminal import table
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import Problem
from torchcno.selection import select


def main(arguments: Sequence[str]) -> None:
    """List the problems, explain one, or draw one."""
    parser = parser_of(
        "problems [NAME] [--plot [FILE]] [--seed N]",
        "The benchmark problems: what there is, or one of them in detail.",
        """
        cno problems
        cno problems navier-stokes
        cno problems navier-stokes --plot navier-stokes.png
        """,
    )
    parser.add_argument("name", nargs="?", help="a problem; all of them if left out")
    parser.add_argument(
        "--plot",
        nargs="?",
        const=True,
        help="draw inputs and outputs, in and out of distribution, and the mesh of airfoil "
        "(default: NAME.png)",
    )
    parser.add_argument("--seed", type=int, default=0, help="which samples are drawn")
    given = parse(parser, arguments)
    console = Console()
    if given.name is None:
        if given.plot:
            raise ValueError("--plot needs a problem: cno problems NAME --plot [FILE].")
        console.print(overview())
        return
    problem = select(PROBLEMS, given.name, "problem")()
    if not given.plot:
        explain(problem, console)
        return
    from torchcno.runs.pictures.problems import draw_problem

    path = Path(f"{given.name}.png" if given.plot is True else given.plot)
    check_target(path, PICTURES)
    draw_problem(problem, seed=given.seed).savefig(path, dpi=150)
    console.print(f"Drawn to {path}.")


def overview() -> Table:
    """One line a problem."""
    view = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    view.add_column(style="bold", no_wrap=True)
    for name, problem in PROBLEMS.items():
        view.add_row(name, summary(problem))
    return view


def explain(problem: Problem, console: Console) -> None:
    """The equation of one problem, and its constants in and out of distribution."""
    text = escape(inspect.getdoc(type(problem)) or "")
    console.print(f"[bold]{problem.name}[/bold]\n\n{text}", soft_wrap=True)
    ood = problem.for_split("ood")
    rows = [
        (
            field.name,
            field.metadata.get("help", ""),
            *(getattr(p, field.name) for p in (problem, ood)),
        )
        for field in dataclasses.fields(problem)
    ]
    console.print(table("", ["constant", "", "in", "out of distribution"], rows, words=2))


def summary(problem: type[Problem]) -> str:
    """The first line of a problem's docstring."""
    return (inspect.getdoc(problem) or "").splitlines()[0]
