"""`cno study`: a table or figure of the paper, run by run."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from torchcno.cli import MISSED, Stop
from torchcno.cli.arguments import Device, describe
from torchcno.cli.terminal import show_table
from torchcno.runs.progress import progress_bars

if TYPE_CHECKING:
    from torchcno.paper.costs import Cost
    from torchcno.paper.studies import PlannedRun
    from torchcno.runs.jobs import Outcome


def study(
    name: Annotated[str | None, describe("study to run", "list them")] = None,
    /,
    *,
    budget: Annotated[str, describe("recipe and size of the runs; see below")] = "paper",
    out: Annotated[Path, describe("folder for the results", metavar="FOLDER")] = Path("results"),
    only: Annotated[
        str, describe("run only those whose names match this pattern", "all", "PATTERN")
    ] = "*",
    dry_run: Annotated[bool, describe("show the plan and what it costs, and stop")] = False,
    jobs: Annotated[
        int | None, describe("runs at a time; 0: in this process", "what fits; 0 for quick")
    ] = None,
    together: Annotated[
        bool, describe("train seeds of one network at once, on a GPU in one graph")
    ] = False,
    cluster: Annotated[
        str | None, describe("dask scheduler to send runs to", "this machine", "ADDRESS")
    ] = None,
    data: Annotated[
        Path | None, describe("folder of data files", "the cache folder", "FOLDER")
    ] = None,
    device: Device = "auto",
    fast: Annotated[
        str, describe("how a step runs on CUDA, as --train.fast", metavar="auto|compiled|off")
    ] = "auto",
) -> None:
    """Run the experiments of a table or figure of the paper.

    Runs that are finished are left alone. `cno study` without a name lists the
    studies.

    budgets:
      paper  the published protocol, with the departures that the page lists
      best   the same networks with our training and boundaries
      quick  tiny networks on two problems, in OUT/quick: minutes on a CPU, no
             results

    examples:
      cno study table1 --dry-run
      cno study table1 --budget quick && cno report results/quick --out quick.html
      cno study table1 --only 'poisson-*' --jobs 4
      cno study seeds --budget best --only '*-[012]' --together
      cno study filters --cluster tcp://10.0.0.1:8786
    """
    from torchcno.paper.costs import estimate
    from torchcno.paper.records import TABLE, find_recorded
    from torchcno.paper.studies import BUDGETS, STUDIES, run_study
    from torchcno.paper.studies import study as find_study
    from torchcno.selection import select
    from torchcno.training import Hardware
    from torchcno.training.hardware import pick_device
    from torchcno.training.recipe import Fast

    if name is None:
        listed = "\n".join(f"  {name:<12}{one.shows}" for name, one in STUDIES.items())
        raise ValueError(f"say which study:\n{listed}")
    if not cluster:  # whose workers have devices of their own
        pick_device(device)
    elif jobs == 0:
        raise ValueError(
            "--jobs 0 trains in this process, not on a cluster; leave out one of them."
        )
    if together and (cluster or jobs):
        raise ValueError(
            "--together trains in this process; leave out --jobs and --cluster, or --together."
        )
    one, protocol = find_study(name), select(BUDGETS, budget, "budget")
    select(dict.fromkeys(get_args(Fast)), fast, "fast")
    how: Any = {"hardware": Hardware(accelerator=device), "fast": fast}
    runs = one.plan(protocol, only, data, **how)
    folder = out / protocol.folder
    recorded = find_recorded(folder.parent, {run.name: run.config for run in runs}, one.measures)
    if recorded:
        runs = [run for run in runs if run.name not in recorded]
        print(f"{len(recorded)} runs are in {folder.parent / TABLE}, and are left alone.")
    jobs = 0 if jobs is None and protocol.trial and not cluster else jobs
    apart = jobs != 0 and not together
    costs = estimate(runs, folder, one.measures, processes=apart, cluster=bool(cluster))
    show_plan(f"{name}, {one.shows}: {protocol.name}", runs, costs)
    if dry_run:
        for refused, cost in costs.items():
            if cost.basis == "refused":
                print(f"{refused} is refused: {cost.why}")
        return
    start = time.time()
    with watch_runs(runs, folder) as watch:
        outcomes = run_study(
            name, runs, folder, parallel=jobs, cluster=cluster, together=together, on_update=watch
        )
    conclude(outcomes, time.time() - start)
    print(f"All of it is in {folder}; the page: cno report {folder.parent} --out report.html")


def show_plan(title: str, runs: Sequence[PlannedRun], costs: Mapping[str, Cost]) -> None:
    """The runs with their costs, and the sum."""
    rows = [
        (run.name, run.config.train.epochs, duration(cost.seconds) if cost.seconds else "–",
         cost.basis)
        for run in runs
        for cost in [costs[run.name]]
    ]  # fmt: skip
    show_table(title, ["run", "epochs", "about", "by"], rows)
    by = Counter(cost.basis for cost in costs.values())
    words = f"{len(runs)} runs, {by['finished']} of them finished"
    if by["refused"]:
        words += f", {by['refused']} refused"
    if by["finished"] + by["refused"] < len(runs):
        seconds = sum(cost.seconds for cost in costs.values())
        words += f"; the others take about {duration(seconds)} one after the other"
    if by["guessed"]:
        words += f", {by['guessed']} of them guessed from the number of parameters"
    print(f"{words}.")


def duration(seconds: float) -> str:
    """A time as one reads it."""
    units = (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48), ("days", 86400, math.inf))
    value, unit = next((seconds / n, unit) for unit, n, enough in units if seconds < enough * n)
    return f"{value:.{0 if value >= 9.95 else 1}f} {unit}"


@contextmanager
def watch_runs(runs: Sequence[PlannedRun], folder: Path) -> Iterator[Callable[[Outcome], None]]:
    """A line for every run that ends, and a bar with the epochs of those at work."""
    with progress_bars() as make:
        bar, at_work = make("runs"), AtWork(folder, [run.name for run in runs])

        def update(outcome: Outcome) -> None:
            name = outcome.job.folder.name
            at_work.names.remove(name)
            ended = len(runs) - len(at_work.names)
            bar(ended, len(runs), at_work)
            if outcome.worked:
                print(f"{ended}/{len(runs)} {name}: {said(outcome)}", file=sys.stderr)

        bar(0, len(runs), at_work)
        yield update


@dataclass(frozen=True)
class AtWork:
    """The runs of a folder that have not ended, and as a string how far they are."""

    folder: Path
    names: list[str]

    def __str__(self) -> str:
        from torchcno.runs.folder import RunFolder

        rows = {name: RunFolder(self.folder / name).rows() for name in self.names}
        begun = [f", {name} epoch {row[-1]['epoch']}" for name, row in rows.items() if row]
        more = f" and {len(begun) - 1} more" if len(begun) > 1 else ""
        return begun[0] + more if begun else ""


def said(outcome: Outcome) -> str:
    """An outcome in a few words."""
    from torchcno.evaluation.errors import published_error

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
