"""`cno search`: the configuration of a model that does best on validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from tyro.conf import OmitArgPrefixes

from torchcno.cli import MISSED, Stop
from torchcno.cli.arguments import Fields, Strings, describe
from torchcno.cli.terminal import number, show_errors, show_table
from torchcno.cli.train import ModelName, ProblemName, RunOptions, find_sections
from torchcno.runs.progress import progress_bars

if TYPE_CHECKING:
    from torchcno.runs.search.report import TrialRow

__all__ = ["find_sections", "search"]


def search(
    problem: ProblemName = None,
    model: ModelName = None,
    /,
    *,
    trials: Annotated[int, describe("number of configurations to train")] = 30,
    sampler: Annotated[
        str, describe("draw them at random, or learn from earlier ones", metavar="random|tpe")
    ] = "random",
    pruner: Annotated[str, describe("stop the worse ones early", metavar="none|halving")] = "none",
    max_parameters: Annotated[
        float | None, describe("draw no larger network than this, such as 1e6", "any size")
    ] = None,
    range: Annotated[
        Strings, describe("values to draw from; may be repeated", "the authors'", "FIELD=A,B")
    ] = (),
    storage: Annotated[
        str | None, describe("database of the search", "OUT/study.db", "URL")
    ] = None,
    jobs: Annotated[int | None, describe("trials at a time", "what fits here")] = None,
    cluster: Annotated[
        str | None, describe("dask scheduler to send trials to", "this machine", "ADDRESS")
    ] = None,
    gpus: Annotated[float, describe("GPUs per trial on the cluster; 0.25: four share one")] = 0.0,
    run: OmitArgPrefixes[RunOptions],
    fields: Fields,
) -> None:
    """Train many configurations, and keep the best on validation.

    This is how the paper chooses hyper-parameters; only the best sees test data.

    The ranges are those of the authors' implementation, but for the learning rate
    of presets with Muon, which is fixed. A field that is given as an option is
    fixed, too: `cno search PROBLEM MODEL --help` lists them. No configuration is
    drawn twice at random. Every trial is a run folder, OUT/trials/NUMBER. The same
    command goes on with an interrupted search, raises the number of trials, or
    helps one that runs.

    examples:
      cno search poisson cno --trials 30 --out runs/search
      cno search --data mine.nc --inputs a --outputs u --out runs/mine-search
      cno search poisson fno --trials 36 --out runs/small --max-parameters 1e6
      cno search darcy cno --out runs/w --range model.width=16,32 --model.levels 3
      cno search wave cno --out runs/wave --sampler tpe --pruner halving --jobs 4
      cno search wave cno --out /disk/wave --cluster tcp://10.0.0.1:8786 --gpus 0.25
    """
    from torchcno.runs.jobs import default_parallel
    from torchcno.runs.search.space import Space
    from torchcno.runs.train import with_hashes

    try:
        from torchcno.runs.search.driver import Means, run_search
        from torchcno.runs.search.report import trial_rows, write_report
        from torchcno.runs.search.study import Search, Study
    except ImportError as error:
        raise ValueError(
            f"{error}; a search needs Optuna: pip install 'torchcno[search]'."
        ) from error

    config = with_hashes(run.resolve([problem, model], fields))
    if run.out is None:
        raise ValueError("say where the trials shall lie: --out FOLDER.")
    if max_parameters is not None and max_parameters < 1:
        raise ValueError(f"--max-parameters is {max_parameters:g}; give 1 or more, such as 1e6.")
    fixed = [f"{part}.{name}" for part in ("model", "train") for name in fields.get(part, {})]
    most = None if max_parameters is None else int(max_parameters)
    space = Space.of(config, read_ranges(range), fixed, most)
    names: dict[str, Any] = {"sampler": sampler, "pruner": pruner}
    plan = Search(space, **names)
    parallel = default_parallel(config) if jobs is None else jobs
    count = space.count(trials)
    with progress_bars() as make:
        bar = make("trials")

        def on_update(study: Study) -> None:
            rows = trial_rows(study, count)
            done = sum(row.state != "unfinished" for row in rows)
            errors = [row.percent for row in rows if row.validation_error is not None]
            bar(done, count, f", best {min(errors):.3g} %" if errors else "")

        means = Means(parallel, cluster, storage, gpus)
        study = run_search(plan, run.out, count, means, on_update)
    rows = trial_rows(study, count)
    show_trials(rows)
    result = write_report(plan, rows, run.out, config.hardware.accelerator)
    show_errors(result["errors"])
    print(
        f"Trial {result['best']} is the best: {run.out / 'best.yaml'}; all trials are in "
        f"{run.out / 'trials.csv'}, size and time in {run.out / 'figure.png'}."
    )
    if count < trials:
        print(f"All {count} configurations of the ranges were tried.")
    failed = [row for row in rows if row.state == "unfinished"]
    if failed:
        raise Stop(
            MISSED,
            f"{len(failed)} of {len(rows)} trials failed, trial {failed[0].number} because "
            f"{failed[0].error or 'it stopped'}; the same command tries them again.",
        )


def read_ranges(texts: Sequence[str]) -> dict[str, list[Any]]:
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


def show_trials(rows: Sequence[TrialRow]) -> None:
    """The trials, best first."""
    ranked = sorted(rows, key=lambda row: (row.validation_error is None, row.percent, row.number))
    body = [
        (
            row.number,
            f"{row.percent:.3g}" if row.validation_error is not None else row.state,
            number(row.parameters, 1e6),
            number(row.seconds_per_epoch),
            ", ".join(f"{name.split('.')[1]} {value}" for name, value in row.choice.items()),
        )
        for row in ranked
    ]
    columns = ["trial", "error %", "10⁶ parameters", "s/epoch", "configuration"]
    show_table("validation errors, best first", columns, body)
