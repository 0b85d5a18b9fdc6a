"""`cno resume`: go on with an interrupted run."""

import sys
from dataclasses import replace
from typing import Annotated

from torchcno.cli.arguments import DEVICES, Run, describe


def resume(
    run: Run,
    /,
    *,
    device: Annotated[str | None, describe("where to compute", "as before", DEVICES)] = None,
    devices: Annotated[int | None, describe("devices per node", "as before")] = None,
    nodes: Annotated[int | None, describe("nodes of the run", "as before")] = None,
    strategy: Annotated[str | None, describe("of several devices", "as before", "ddp|fsdp")] = None,
) -> None:
    """Go on with an interrupted run.

    It comes to the end that it would have come to without the interruption, on
    the devices that it had or on others. A finished run is left as it is.

    examples:
      cno resume runs/p1
      cno resume runs/p1 --device cpu
    """
    from torchcno.cli.watching import show_result, watch_training
    from torchcno.runs.config import read_config
    from torchcno.runs.plain import from_plain
    from torchcno.runs.run_files import finished_result
    from torchcno.runs.train import resume_run
    from torchcno.training import Hardware
    from torchcno.training.run_folder import RunFolder

    config, result = read_config(run), finished_result(run)
    given = {"accelerator": device, "devices": devices, "nodes": nodes, "strategy": strategy}
    told = {name: value for name, value in given.items() if value is not None}
    config = replace(config, hardware=from_plain(Hardware, told, "hardware", config.hardware))
    if result is None:
        files = RunFolder(run)
        if not (files.checkpoint.exists() or files.weights.exists()):
            print(f"{run} has no checkpoint: the run begins again.", file=sys.stderr)
        with watch_training(config, go_on=f"cno resume {run}") as watch:
            result = resume_run(run, watch, config.hardware)
    else:
        print(f"{run} is finished: there is nothing to go on with.")
    show_result(run, result)
