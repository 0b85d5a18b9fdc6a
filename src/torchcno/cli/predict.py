"""`cno predict`: a trained run applied to a file of inputs."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import (
    PICTURES,
    Device,
    NamedRun,
    check_target,
    describe,
    refuse_existing,
)


def predict(
    run: NamedRun,
    input: Annotated[Path, describe("file of inputs, .npy or .nc")],
    /,
    *,
    out: Annotated[Path, describe("file for the predictions, .npy, .npz or .nc", metavar="FILE")],
    confidence: Annotated[
        float | None, describe("write error bands as well, as in 0.9", "")
    ] = None,
    correct: Annotated[
        int, describe("iterations of the solver that correct predictions: poisson, darcy")
    ] = 0,
    plot: Annotated[Path | None, describe("draw the first samples", "", "FILE")] = None,
    data: Annotated[
        Path | None, describe("data folder to calibrate old runs from", "as in training", "FOLDER")
    ] = None,
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

    With --confidence 0.9 the file also has half-widths of bands, per point, a
    bound on the relative error and a score of how unlike the training each
    input is: docs/trust.md says what they promise. They need .nc or .npz.

    examples:
      cno predict runs/p1 input.npy --out output.npy
      cno predict runs/mine new.nc --out predictions.nc
      cno predict runs/p1 poisson-test-64.nc --out predictions.nc
      cno predict navier-stokes input.nc --out predictions.nc
      cno predict poisson input.npy --correct 8 --out corrected.npy
      cno predict poisson input.npy --confidence 0.9 --out bands.nc --plot bands.png
    """
    from torchcno.runs.folder import RunFolder
    from torchcno.runs.own import reading_of
    from torchcno.runs.predict import WRITERS, predict_file
    from torchcno.runs.pretrained import find_run, load_pretrained
    from torchcno.runs.ranges import OutOfRange
    from torchcno.runs.trust import Prediction, calibrate
    from torchcno.training.hardware import pick_device

    check_target(out, list(WRITERS))
    check_target(plot, PICTURES)
    refuse_existing(out)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", OutOfRange)
        operator, folder = load_pretrained(run, pick_device(device)), RunFolder(run)
        how = reading_of(folder.config().problem) if folder.config_file.is_file() else None
        if confidence is not None and operator.trust is None:
            print("The run keeps no calibration; it is measured on its data.", file=sys.stderr)
            operator.trust = calibrate(find_run(run), data=data, device=device, keep=False)
        inputs, found = predict_file(operator, input, out, batch_size, how, confidence, correct)
    for warning in warned:
        print(f"cno predict: warning: {warning.message}", file=sys.stderr)
    value = found.value if isinstance(found, Prediction) else found
    print(f"{out}: outputs of shape {tuple(value.shape)}.")
    if isinstance(found, Prediction):
        bound = 100 * float(found.relative_error.max())
        print(f"With confidence {confidence:g} their relative errors are at most {bound:.3g} %.")
    if plot:
        from torchcno.runs.pictures.drawing import save_figure
        from torchcno.runs.pictures.trust import draw_bands

        save_figure(draw_bands(inputs, found), plot)
        print(f"Drawn to {plot}.")
