"""`cno problems`: what there is, one line each; or one problem, with its constants and pictures."""

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from torchcno.cli.arguments import PICTURES, check_target, describe
from torchcno.cli.terminal import show_table

# `--plot FILE`, or `--plot` alone, which is "".
Plot = Annotated[
    str | None,
    PrimitiveConstructorSpec(
        nargs=(0, 1),
        metavar="[FILE]",
        instance_from_str="".join,
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [] if value is None else [value],
    ),
]


def problems(
    name: Annotated[str | None, describe("problem to explain", "list all")] = None,
    /,
    *,
    plot: Annotated[Plot, describe("draw inputs and outputs to FILE", "NAME.png")] = None,
    seed: Annotated[int, describe("seed of the random inputs")] = 0,
) -> None:
    """List the problems, explain one, or draw one.

    examples:
      cno problems
      cno problems navier-stokes
      cno problems navier-stokes --plot navier-stokes.png
    """
    from torchcno.problems import PROBLEMS
    from torchcno.selection import select

    if name is None:
        if plot is not None:
            raise ValueError("--plot needs a problem: cno problems NAME --plot [FILE].")
        rows = [(n, str(inspect.getdoc(p)).splitlines()[0]) for n, p in PROBLEMS.items()]
        show_table("", ["problem", ""], rows, words=2)
        return
    problem = select(PROBLEMS, name, "problem")()
    if plot is None:
        print(f"{name}\n\n{inspect.getdoc(type(problem))}")
        ood = problem.for_split("ood")
        constants = [
            (field.name, field.metadata.get("help", ""), getattr(problem, field.name),
             getattr(ood, field.name))
            for field in dataclasses.fields(problem)
        ]  # fmt: skip
        show_table("", ["constant", "", "in", "out of distribution"], constants, words=2)
        return
    from torchcno.runs.pictures.drawing import save_figure
    from torchcno.runs.pictures.problems import draw_problem

    path = Path(plot or f"{name}.png")
    check_target(path, PICTURES)
    save_figure(draw_problem(problem, seed=seed), path)
    print(f"Drawn to {path}.")
