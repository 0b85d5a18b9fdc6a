"""`cno generate`: data files of a problem, or of all."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from torchcno.cli import INTERRUPTED, Stop
from torchcno.cli.arguments import Fields, Strings, Times, describe, leading_names
from torchcno.runs.progress import Move, progress_bars


def generate(
    problem: Annotated[
        str | None, describe("problem to solve; `cno problems` lists them", "")
    ] = None,
    /,
    *,
    all: Annotated[bool, describe("solve every problem, at the paper's sizes")] = False,
    split: Annotated[
        Strings, describe("train, val, test or ood; may be repeated", "all four")
    ] = (),
    samples: Annotated[int | None, describe("samples per split", "the paper's number")] = None,
    resolution: Annotated[int | None, describe("points per axis", "the paper's number")] = None,
    times: Annotated[
        Times, describe("trajectories at these times: 0:1:0.1 or 0,0.5,2", "pairs, no trajectories")
    ] = (),
    seed: Annotated[int, describe("seed of the random inputs")] = 0,
    out: Annotated[
        Path | None, describe("folder for the files", "the cache folder", "FOLDER")
    ] = None,
    workers: Annotated[int | None, describe("processes at a time", "one per core")] = None,
    device: Annotated[str, describe("where the equation is solved", metavar="cpu|cuda")] = "cpu",
    overwrite: Annotated[bool, describe("replace a file that was made with other options")] = False,
    fields: Fields,
) -> None:
    """Make data files of a benchmark, with its solver.

    Each split is a NetCDF file. If it is interrupted, the same command goes on
    where it was. The constants of the problem are options, too:
    `cno generate PROBLEM --help` lists them. With --times, a sample is a
    trajectory: the states of a problem that evolves at these times.

    examples:
      cno generate poisson --split train --samples 1024 --seed 0 --out data/
      cno generate poisson --problem.K 32 --out data-k32/
      cno generate navier-stokes --times 0:1:0.1 --out flows/
      cno generate --all --out data/
    """
    from torchcno.data.dataset import data_folder
    from torchcno.data.generate import generate as make
    from torchcno.problems import PROBLEMS
    from torchcno.problems.evolution import require_evolution
    from torchcno.problems.problem import SPLITS
    from torchcno.runs.plain import from_plain
    from torchcno.selection import select

    if all == bool(problem):
        raise ValueError("give one problem, or --all: cno generate poisson, or cno generate --all.")
    chosen = [select(PROBLEMS, problem, "problem")] if problem else list(PROBLEMS.values())
    for pde in chosen:
        one = from_plain(pde, fields.get("problem", {}), "problem")
        unseen = require_evolution(one).unseen if times else ""
        if unseen:
            words = f"{one.name}: networks do not see all that the future depends on: {unseen}."
            print(words, file=sys.stderr)
        for name in split or SPLITS:
            what = f"{one.name} {name}"
            with progress_bars() as bar, stop_with_count(what, bar(what)) as count:
                path = make(
                    one,
                    name,
                    samples=samples,
                    resolution=resolution,
                    seed=seed,
                    times=times,
                    folder=out or data_folder(),
                    workers=workers,
                    overwrite=overwrite,
                    device=device,
                    progress=count,
                )
            print(path)


@contextmanager
def stop_with_count(what: str, show: Move) -> Iterator[Callable[[int, int], None]]:
    """A progress to `show`; Ctrl-C and SIGTERM then stop and say how many samples are kept."""
    from torchcno.training.interruption import terminable

    kept = "no samples"

    def count(done: int, total: int) -> None:
        nonlocal kept
        kept = f"{done} of {total} samples"
        show(done, total)

    try:
        with terminable():
            yield count
    except KeyboardInterrupt as error:
        words = f"interrupted; {kept} of {what} are kept. The same command makes the others."
        raise Stop(INTERRUPTED, words) from error


def find_sections(words: Sequence[str]) -> dict[str, Any]:
    """The problem that `words` begin with, whose constants are options."""
    names = leading_names(words[1:])
    if not names:
        return {}
    from torchcno.problems import PROBLEMS
    from torchcno.selection import select

    return {"problem": select(PROBLEMS, names[0], "problem")()}
