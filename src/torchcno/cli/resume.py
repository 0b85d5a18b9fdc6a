"""`cno resume`: go on with an interrupted run."""

import sys
from dataclasses import replace
from typing import Annotated

from torchcno.cli.arguments import DEVICES, Data, Run, describe


def resume(
    run: Run,
    /,
    *,
    data: Data = None,
    device: Annotated[str | None, describe("where to compute", "as before", DEVICES)] = None,
    devices: Annotated[int | None, describe("GPUs per machine", "as before")] = None,
    nodes: Annotated[int | None, describe("machines", "as before")] = None,
    strategy: Annotated[
        str | None,
        describe("several GPUs: ddp copies weights, fsdp divides them", "as before", "ddp|fsdp"),
    ] = None,
    epochs: Annotated[
        int | None, describe("train a finished run on, to this many epochs in all", "as before")
    ] = None,
) -> None:
    """Go on with an interrupted run, or prolong a finished one.

    It comes to the end that it would have come to without the interruption, on
    the devices that it had or on others. A finished run is left as it is, unless
    it is to have more epochs: then it goes on with the learning rate that the
    longer run has there.

    examples:
      cno resume runs/p1
      cno resume runs/p1 --device cpu
      cno resume runs/p1 --epochs 1200
    """
    from torchcno.cli.watching import show_result, watch_training
    from torchcno.runs.folder import RunFolder
    from torchcno.runs.plain import from_plain
    from torchcno.runs.train import resume_run
    from torchcno.training import Hardware

    folder = RunFolder(run)
    config = folder.config()
    given = {"accelerator": device, "devices": devices, "nodes": nodes, "strategy": strategy}
    told = {name: value for name, value in given.items() if value is not None}
    config = replace(config, hardware=from_plain(Hardware, told, "hardware", config.hardware))
    longer = epochs is not None and epochs != config.train.epochs
    if epochs is not None:
        config = replace(config, train=replace(config.train, epochs=epochs))
    if folder.state == "finished" and not longer:
        print(f"{run} is finished: there is nothing to go on with.")
        result = folder.result()
    else:
        if not (folder.has_checkpoint or folder.weights.exists()):
            print(f"{run} has no checkpoint: the run begins again.", file=sys.stderr)
        with watch_training(config, go_on=f"cno resume {run}") as watch:
            result = resume_run(run, watch, config.hardware, data, epochs)
    show_result(run, result, config.train.epochs)
