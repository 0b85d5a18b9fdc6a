"""`cno resume`: go on with an interrupted run."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jsonargparse import Namespace

from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.train import report, watched
from torchcno.runs.config import read_config
from torchcno.runs.plain import from_plain
from torchcno.runs.run_files import finished_result
from torchcno.runs.train import resume_run
from torchcno.training import Hardware
from torchcno.training.run_folder import RunFolder


def main(arguments: Sequence[str]) -> None:
    """Train to the end that the run would have come to without the interruption."""
    parser = parser_of(
        "resume RUN [--device DEVICE] [options]",
        "Go on with an interrupted run, to the end that it would have come to, on the devices\n"
        "that it had or on others. A finished one is left as it is.",
        "cno resume runs/p1\ncno resume runs/p1 --device cpu",
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--device", type=str | None, help="auto, cpu or cuda (default: as before)")
    parser.add_argument("--devices", type=int | None, help="devices a node (default: as before)")
    parser.add_argument("--nodes", type=int | None, help="nodes of the run (default: as before)")
    parser.add_argument("--strategy", type=str | None, help="ddp or fsdp (default: as before)")
    given = parse(parser, arguments)
    folder = given.run
    config, result = read_config(folder), finished_result(folder)
    config = replace(config, hardware=changed(config.hardware, given))
    if result is None:
        files = RunFolder(folder)
        if not (files.checkpoint.exists() or files.weights.exists()):
            print(f"{folder} has no checkpoint: the run begins again.", file=sys.stderr)
        with watched(config, go_on=f"cno resume {folder}") as watch:
            result = resume_run(folder, watch, config.hardware)
    else:
        print(f"{folder} is finished: there is nothing to go on with.")
    report(folder, result)


def changed(hardware: Hardware, given: Namespace) -> Hardware:
    """`hardware` with what was given."""
    fields = ("accelerator", "devices", "nodes", "strategy")
    values = (given.device, given.devices, given.nodes, given.strategy)
    told = {field: value for field, value in zip(fields, values, strict=True) if value is not None}
    return from_plain(Hardware, told, "hardware", base=hardware)
