"""`cno predict`: a trained run applied to a file of inputs."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import Device, NamedRun, check_target, describe, refuse_existing


def predict(
    run: NamedRun,
    input: Annotated[Path, describe("file of inputs, .npy or .nc")],
    /,
    *,
    out: Annotated[Path, describe("file for the predictions, .npy or .nc", metavar="FILE")],
    batch_size: Annotated[int, describe("samples at a time")] = 32,
    device: Device = "auto",
) -> None:
    """Apply a trained run to a file of inputs.

    The run is a folder, or the name of a network that comes with the package.
    Inputs and outputs are in physical units, at any resolution:

      .npy  an array (sample, channel, y, x)
      .nc   a NetCDF file with a variable `input` of that shape, as `cno generate`
            writes it
      of a run on your own file: such a file, with the same variables of inputs

    examples:
      cno predict runs/p1 input.npy --out output.npy
      cno predict runs/mine new.nc --out predictions.nc
      cno predict runs/p1 poisson-test-64.nc --out predictions.nc
      cno predict navier-stokes input.nc --out predictions.nc
    """
    from torchcno.runs.folder import RunFolder
    from torchcno.runs.operator import pick_device
    from torchcno.runs.own import reading_of
    from torchcno.runs.predict import WRITERS, predict_file
    from torchcno.runs.pretrained import load_pretrained
    from torchcno.runs.ranges import OutOfRange

    check_target(out, list(WRITERS))
    refuse_existing(out)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", OutOfRange)
        operator, folder = load_pretrained(run, pick_device(device)), RunFolder(run)
        how = reading_of(folder.config().problem) if folder.config_file.is_file() else None
        shape = predict_file(operator, input, out, batch_size, how)
    for warning in warned:
        print(f"cno predict: warning: {warning.message}", file=sys.stderr)
    print(f"{out}: outputs of shape {shape}.")
