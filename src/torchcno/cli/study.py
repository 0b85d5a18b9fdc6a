"""`cno study`: a table or figure of the paper, run by run."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from torchcno.cli import INTERRUPTED, MISSED, Stop
from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.terminal import table
from torchcno.evaluation.errors import published_error
from torchcno.paper.costs import Cost, estimate
from torchcno.paper.records import TABLE, find_recorded
from torchcno.paper.studies import BUDGETS, STUDIES, PlannedRun, run_study, study
from torchcno.runs.folder import RunFolder
from torchcno.runs.jobs import Outcome
from torchcno.runs.operator import pick_device
from torchcno.selection import select
from torchcno.training import Hardware

DESCRIPTION = """\
Run the experiments of a table or figure of the paper; those that are finished are left alone.

{studies}

budgets:  paper  the published protocol, with the departures that the page lists
          best   the same networks with our training and boundaries
          quick  tiny networks on two problems, in OUT/quick: minutes on a CPU, no results"""
EXAMPLES = """
cno study table1 --dry-run                            the plan, and what it costs
cno study table1 --budget quick && cno report results/quick --out quick.html
cno study table1 --only 'poisson-*' --jobs 4
cno study seeds --budget best --only '*-[012]'        the first three seeds
cno study filters --cluster tcp://10.0.0.1:8786
"""
ROWS = 12  # of the live table


def main(arguments: Sequence[str]) -> None:
    """Show the plan, run it, and say what to do next."""
    listed = "\n".join(f"  {name:<12}{one.shows}" for name, one in STUDIES.items())
    parser = parser_of(
        "study NAME [--budget paper|best|quick] [--out FOLDER] [options]",
        DESCRIPTION.format(studies=listed),
        EXAMPLES,
    )
    parser.add_argument("name", nargs="?", help=", ".join(STUDIES))
    parser.add_argument("--budget", default="paper", help=", ".join(BUDGETS))
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder of results")
    parser.add_argument("--only", default="*", help="a pattern of the names of runs")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    parser.add_argument(
        "--jobs",
        type=int | None,
        help="runs at a time; 0: one after the other in this process (default: what the machine "
        "has room for, and 0 for quick)",
    )
    parser.add_argument("--cluster", type=str | None, help="the address of a dask scheduler")
    parser.add_argument("--data", type=Path | None, help="the folder of data files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--fast", default="auto", help="how steps are run: auto, compiled or off, as --train.fast"
    )
    given = parse(parser, arguments)
    if given.name is None:
        raise ValueError(f"say which study: {', '.join(STUDIES)}.")
    if not given.cluster:  # whose workers have devices of their own
        pick_device(given.device)
    elif given.jobs == 0:
        raise ValueError(
            "--jobs 0 trains in this process, not on a cluster; leave out one of them."
        )
    one, budget = study(given.name), select(BUDGETS, given.budget, "budget")
    hardware = Hardware(accelerator=given.device)
    runs = one.plan(budget, given.only, given.data, hardware, given.fast)
    folder = given.out / budget.folder
    recorded = find_recorded(folder.parent, {run.name: run.config for run in runs}, one.measures)
    if recorded:
        runs = [run for run in runs if run.name not in recorded]
        print(f"{len(recorded)} runs are in {folder.parent / TABLE}, and are left alone.")
    jobs = 0 if given.jobs is None and budget.trial and not given.cluster else given.jobs
    costs = estimate(runs, folder, one.measures, processes=jobs != 0, cluster=bool(given.cluster))
    show_plan(f"{given.name}, {one.shows}: {budget.name}", runs, costs, Console())
    if given.dry_run:
        for name, cost in costs.items():
            if cost.basis == "refused":
                print(f"{name} is refused: {cost.why}")
        return
    start = time.time()
    try:
        with watched(runs, folder) as watch:
            outcomes = run_study(
                given.name, runs, folder, parallel=jobs, cluster=given.cluster, on_update=watch
            )
    except KeyboardInterrupt as interrupt:
        raise Stop(
            INTERRUPTED, "interrupted; the same command goes on where it was."
        ) from interrupt
    conclude(outcomes, time.time() - start)
    print(f"All of it is in {folder}; the page: cno report {folder.parent} --out report.html")


def show_plan(
    title: str, runs: Sequence[PlannedRun], costs: Mapping[str, Cost], console: Console
) -> None:
    """The runs with their costs, and the sum."""
    rows = [
        (run.name, run.config.train.epochs, duration(cost.seconds) if cost.seconds else "–",
         cost.basis)
        for run in runs
        for cost in [costs[run.name]]
    ]  # fmt: skip
    console.print(table(title, ["run", "epochs", "about", "by"], rows))
    by = Counter(cost.basis for cost in costs.values())
    words = f"{len(runs)} runs, {by['finished']} of them finished"
    if by["refused"]:
        words += f", {by['refused']} refused"
    if by["finished"] + by["refused"] < len(runs):
        seconds = sum(cost.seconds for cost in costs.values())
        words += f"; the others take about {duration(seconds)} one after the other"
    if by["guessed"]:
        words += f", {by['guessed']} of them guessed from the number of parameters"
    console.print(f"{words}.", highlight=False)


def duration(seconds: float) -> str:
    """A time as one reads it."""
    units = (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48), ("days", 86400, math.inf))
    value, unit = next((seconds / n, unit) for unit, n, enough in units if seconds < enough * n)
    return f"{value:.{0 if value >= 9.95 else 1}f} {unit}"


@contextmanager
def watched(runs: Sequence[PlannedRun], folder: Path) -> Iterator[Callable[[Outcome], None]]:
    """A live table of what is at work; without a terminal, a line for every run that ends."""
    console, outcomes = Console(stderr=True), dict[str, Outcome]()

    def update(outcome: Outcome) -> None:
        outcomes[outcome.job.folder.name] = outcome
        if not console.is_terminal and outcome.worked:
            count = f"{len(outcomes)}/{len(runs)}"
            words = f"{count} {outcome.job.folder.name}: {said(outcome)}"
            console.print(words, highlight=False, markup=False)

    if not console.is_terminal:
        yield update
        return
    with Live(
        console=console,
        refresh_per_second=1,
        transient=True,
        get_renderable=lambda: progress_table(runs, folder, outcomes),
    ):
        yield update


def progress_table(
    runs: Sequence[PlannedRun], folder: Path, outcomes: Mapping[str, Outcome]
) -> Table:
    """What is at work, then what came to an end last."""
    waiting = [run for run in runs if run.name not in outcomes]
    at_work = [
        (run.name, *progress)
        for run in waiting
        if (progress := last_epoch(folder / run.name, run.config.train.epochs))
    ]
    ended = [(name, "", said(outcome)) for name, outcome in outcomes.items() if outcome.worked]
    title = f"{len(outcomes)} of {len(runs)} runs ended"
    rows = [*at_work[:ROWS], *reversed(ended[-ROWS:])]
    return table(title, ["run", "epoch", "scaled L1"], rows[:ROWS])


def last_epoch(folder: Path, epochs: int) -> tuple[str, str] | None:
    """Epoch and best validation error of a run at work; None where there is none yet."""
    rows = RunFolder(folder).rows()
    if not rows:
        return None
    row, best = rows[-1], rows[-1]["best_validation_error"]
    return f"{row['epoch']}/{epochs}", "–" if best is None else f"{100 * best:.3g} % on validation"


def said(outcome: Outcome) -> str:
    """An outcome in a few words."""
    result = outcome.result
    if result is None:
        return f"{outcome.state}: {outcome.error}"
    errors = (
        f"{published_error(summary):.3g} % {split}" for split, summary in result["errors"].items()
    )
    return ", ".join(errors)


def conclude(outcomes: Sequence[Outcome], seconds: float) -> None:
    """What came of the runs; those that failed are an error, and the others are kept."""
    worked = [outcome for outcome in outcomes if outcome.worked]
    print(f"{len(worked)} runs in {seconds:.0f} s.")
    failed = [outcome for outcome in outcomes if outcome.state != "finished"]
    if failed:
        lines = "\n".join(f"  {o.job.folder.name} {o.state}: {o.error}" for o in failed)
        raise Stop(
            MISSED,
            f"{len(failed)} of {len(outcomes)} runs are not done; the same command tries again "
            f"what it can:\n{lines}",
        )
