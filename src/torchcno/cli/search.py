"""`cno search`: the configuration of a model that does best on validation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import yaml
from jsonargparse import ArgumentParser
from jsonargparse.typing import restricted_number_type
from rich.console import Console
from rich.table import Table

from torchcno.cli import INTERRUPTED, MISSED, Stop
from torchcno.cli.arguments import parser_of
from torchcno.cli.terminal import error_table, progress_bars, table
from torchcno.cli.train import add_run_options, run_options
from torchcno.runs.config import RunConfig
from torchcno.runs.jobs import default_parallel
from torchcno.runs.search.space import Space

try:
    from torchcno.runs.search.driver import Means, run_search
    from torchcno.runs.search.report import TrialRow, trial_rows, write_report
    from torchcno.runs.search.study import PRUNERS, SAMPLERS, Search, Study
except ImportError as error:
    raise ValueError(f"{error}; a search needs Optuna: pip install 'torchcno[search]'.") from error

DESCRIPTION = """\
Train many configurations of a model on a problem and keep the one that does best on
validation, as in the paper; only that one sees test data.

The ranges are those of the authors' implementation, but for the learning rate of presets with
Muon, which is fixed. A field that is given as an option is fixed too, and --range gives another
range. No configuration is drawn twice at random. Every trial is a run folder,
DIR/trials/NUMBER. The same command goes on with an interrupted search, raises the number of
trials, or lends a hand to one that runs."""
Parameters = restricted_number_type("a number of 1 or more", float, (">=", 1))
EXAMPLES = """
cno search poisson cno --trials 30 --out runs/search
cno search poisson fno --trials 36 --out runs/small --max-parameters 1e6 --train.epochs 100
cno search darcy cno --trials 24 --out runs/wide --range model.width=16,32,64 --model.levels 3
cno search wave cno --trials 48 --out runs/wave --sampler tpe --pruner halving --jobs 4
cno search wave cno --trials 48 --out /shared/wave --cluster tcp://10.0.0.1:8786 --gpus 0.25
"""


def main(arguments: Sequence[str]) -> None:
    """Search, write the report, and print it."""
    config, given = run_options("search", search_parser, arguments)
    if given.out is None:
        raise ValueError("say where the trials shall lie: --out FOLDER.")
    most = given.max_parameters and int(given.max_parameters)
    space = Space.of(config, ranges_of(given.range or []), fixed(arguments), most)
    search = Search(space, given.sampler, given.pruner)
    parallel = default_parallel(config) if given.jobs is None else given.jobs
    means = Means(parallel, given.cluster, given.storage, given.gpus)
    trials = space.count(given.trials)
    with watched(trials) as on_update:
        study = run_search(search, given.out, trials, means, on_update)
    rows = trial_rows(study, trials)
    Console().print(trial_table(rows))
    result = write_report(search, rows, given.out, config.hardware.accelerator)
    Console().print(error_table(result["errors"]))
    print(
        f"Trial {result['best']} is the best: {given.out / 'best.yaml'}; all trials are in "
        f"{given.out / 'trials.csv'}, size and time in {given.out / 'figure.png'}."
    )
    if trials < given.trials:
        print(f"All {trials} configurations of the ranges were tried.")
    failed = [row for row in rows if row.state == "unfinished"]
    if failed:
        raise Stop(
            MISSED,
            f"{len(failed)} of {len(rows)} trials failed, trial {failed[0].number} because "
            f"{failed[0].error or 'it stopped'}; the same command tries them again.",
        )


def search_parser(base: RunConfig | None) -> ArgumentParser:
    """The parser of `cno search`; the options of problem, model and recipe come with a `base`."""
    parser = parser_of(
        "search PROBLEM MODEL --trials N --out DIR [options]",
        DESCRIPTION,
        EXAMPLES,
    )
    group = parser.add_argument_group("search")
    group.add_argument("--trials", type=int, default=30, help="configurations in all")
    group.add_argument("--sampler", default="random", help=f"{', '.join(SAMPLERS)}")
    group.add_argument("--pruner", default="none", help=f"{', '.join(PRUNERS)}; stops the slow")
    group.add_argument(
        "--max_parameters", "--max-parameters", type=Parameters, help="of a trial, such as 1e6"
    )
    group.add_argument(
        "--range", action="append", metavar="FIELD=A,B", help="values to choose from; repeatable"
    )
    group.add_argument("--storage", help="a database's URL (default: DIR/study.db)")
    group.add_argument("--jobs", type=int | None, help="trials at a time (default: what fits here)")
    group.add_argument("--cluster", help="the address of a dask scheduler (default: this machine)")
    group.add_argument("--gpus", type=float, default=0.0, help="that a trial needs on the cluster")
    add_run_options(parser, base)
    return parser


def ranges_of(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The ranges of words such as `model.width=16,32`."""
    ranges = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"--range {text} names no values; write --range {name}=16,32.")
        try:
            ranges[name] = [yaml.safe_load(value) for value in values.split(",") if value]
        except yaml.YAMLError as error:
            raise ValueError(f"--range {text} is no list of values; write {name}=16,32.") from error
    return ranges


def fixed(arguments: Sequence[str]) -> list[str]:
    """The fields that are options among the `arguments`: these are not searched."""
    options = (word.removeprefix("--").partition("=")[0] for word in arguments)
    return [name for name in options if name.startswith(("model.", "train."))]


@contextmanager
def watched(trials: int) -> Iterator[Callable[[Study], None]]:
    """A progress bar for the trials, and what to say where the search is interrupted."""
    with progress_bars() as bar:
        move = bar("trials")

        def on_update(study: Study) -> None:
            rows = trial_rows(study, trials)
            done = sum(row.state != "unfinished" for row in rows)
            errors = [row.percent for row in rows if row.validation_error is not None]
            move(done, trials, f", best {min(errors):.3g} %" if errors else "")

        try:
            yield on_update
        except KeyboardInterrupt as interrupted:
            message = "interrupted; all states are saved, and the same command goes on."
            raise Stop(INTERRUPTED, message) from interrupted


def trial_table(rows: Sequence[TrialRow]) -> Table:
    """The trials, best first."""
    ranked = sorted(rows, key=lambda row: (row.validation_error is None, row.percent, row.number))
    body = (
        (
            row.number,
            f"{row.percent:.3g}" if row.validation_error is not None else row.state,
            "–" if row.parameters is None else f"{row.parameters / 1e6:.3g}",
            "–" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:.3g}",
            ", ".join(f"{name.split('.')[1]} {value}" for name, value in row.choice.items()),
        )
        for row in ranked
    )
    columns = ["trial", "error %", "10⁶ parameters", "s/epoch", "configuration"]
    return table("validation errors, best first", columns, body)
