"""`cno resume`: go on with an interrupted run."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jsonargparse import Namespace

from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.train import report, watched
from torchcno.runs.folder import RunFolder
from torchcno.runs.plain import from_plain
from torchcno.runs.train import resume_run
from torchcno.training import Hardware


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
    folder, config = RunFolder(given.run), RunFolder(given.run).config()
    config = replace(config, hardware=changed(config.hardware, given))
    result = folder.result() if folder.state == "finished" else None
    if result is None:
        if not (folder.checkpoint.exists() or folder.weights.exists()):
            print(f"{folder.path} has no checkpoint: the run begins again.", file=sys.stderr)
        with watched(config, go_on=f"cno resume {folder.path}") as watch:
            result = resume_run(folder.path, watch, config.hardware)
    else:
        print(f"{folder.path} is finished: there is nothing to go on with.")
    report(folder.path, result)


def changed(hardware: Hardware, given: Namespace) -> Hardware:
    """`hardware` with what was given."""
    fields = ("accelerator", "devices", "nodes", "strategy")
    values = (given.device, given.devices, given.nodes, given.strategy)
    told = {field: value for field, value in zip(fields, values, strict=True) if value is not None}
    return from_plain(Hardware, told, "hardware", base=hardware)
