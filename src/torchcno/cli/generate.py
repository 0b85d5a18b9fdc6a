"""`cno generate`: data files of a problem, or of all."""

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from torchcno.cli.arguments import add_fields, leading_names, parse, parser_of, replaced
from torchcno.cli.terminal import progress_bars
from torchcno.data.dataset import data_folder
from torchcno.data.generate import generate
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import SPLITS
from torchcno.selection import select


def main(arguments: Sequence[str]) -> None:
    """Make the data files of one problem or, with --all, of every one."""
    names = leading_names(arguments)
    given = parse(generate_parser(names), arguments)
    if given.name is not None and not names:
        raise ValueError(f"name the problem before all options: cno generate {given.name} ...")
    if given.all == bool(names):
        raise ValueError("give one problem, or --all: cno generate poisson, or cno generate --all.")

    problems = (
        [replaced(PROBLEMS[names[0]](), "problem", given)]
        if names
        else [problem() for problem in PROBLEMS.values()]
    )
    console = Console()
    for problem in problems:
        for split in given.split or SPLITS:
            with progress_bars() as bar:
                path = generate(
                    problem,
                    split,
                    samples=given.samples,
                    resolution=given.resolution,
                    seed=given.seed,
                    folder=given.out or data_folder(),
                    workers=given.workers,
                    overwrite=given.overwrite,
                    device=given.device,
                    progress=bar(f"{problem.name} {split}"),
                )
            console.print(str(path), highlight=False, soft_wrap=True)


def generate_parser(names: Sequence[str]) -> ArgumentParser:
    """The parser of `cno generate`; the problem's constants come with its name."""
    parser = parser_of(
        "generate PROBLEM [--split SPLIT ...] [options]   or   cno generate --all [options]",
        "Draw inputs, solve the PDE, and write both to a NetCDF file a split.\n"
        "Interrupted, the same command goes on where it was.",
        """
        cno generate poisson --split train --samples 1024 --resolution 64 --seed 0 --out data/
        cno generate poisson --problem.K 32 --out data-k32/
        cno generate --all --out data/
        """,
    )
    parser.add_argument("name", nargs="?", metavar="PROBLEM", help="`cno problems` lists them")
    parser.add_argument("--all", action="store_true", help="every problem, at the paper's sizes")
    parser.add_argument(
        "--split", action="append", help=f"{', '.join(SPLITS)}; may be repeated (default: all four)"
    )
    parser.add_argument("--samples", type=int | None, help="samples a split (default: the paper's)")
    parser.add_argument(
        "--resolution", type=int | None, help="points an axis (default: the paper's)"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, other samples")
    parser.add_argument("--out", type=Path | None, help="folder (default: the data folder)")
    parser.add_argument("--workers", type=int | None, help="processes (default: one a core)")
    parser.add_argument("--device", default="cpu", help="where the PDE is solved: cpu or cuda")
    parser.add_argument("--overwrite", action="store_true", help="replace a file of another recipe")
    if names:
        add_fields(parser, "problem", select(PROBLEMS, names[0], "problem")())
    return parser
