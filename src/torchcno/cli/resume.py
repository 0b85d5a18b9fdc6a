"""`cno resume`: go on with an interrupted run."""

import sys
from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.train import report, watched
from torchcno.experiments.run import resume_run
from torchcno.experiments.run_config import read_config
from torchcno.experiments.run_files import finished_result
from torchcno.training.run_folder import RunFolder


def main(arguments: Sequence[str]) -> None:
    """Train to the end that the run would have come to without the interruption."""
    parser = parser_of(
        "resume RUN",
        "Go on with an interrupted run, to the end that it would have come to. A finished one\n"
        "is left as it is.",
        "cno resume runs/p1",
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    folder = parse(parser, arguments).run
    config, result = read_config(folder), finished_result(folder)
    if result is None:
        files = RunFolder(folder)
        if not (files.checkpoint.exists() or files.weights.exists()):
            print(f"{folder} has no checkpoint: the run begins again.", file=sys.stderr)
        with watched(config, go_on=f"cno resume {folder}") as watch:
            result = resume_run(folder, watch)
    else:
        print(f"{folder} is finished: there is nothing to go on with.")
    report(folder, result)
