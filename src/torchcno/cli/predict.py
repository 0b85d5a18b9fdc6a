"""`cno predict`: a trained run applied to a file of inputs."""

from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import check_target, parse, parser_of
from torchcno.runs.folder import load
from torchcno.runs.operator import pick_device
from torchcno.runs.predict import WRITERS, predict_file


def main(arguments: Sequence[str]) -> None:
    """Predict from a file into a file."""
    parser = parser_of(
        "predict RUN INPUT --out OUTPUT [options]",
        "Apply a trained run to inputs in physical units, at any resolution.\n\n"
        "  .npy  an array (sample, channel, y, x)\n"
        "  .nc   a NetCDF file with a variable `input` like that, as `cno generate` writes",
        """
        cno predict runs/p1 input.npy --out output.npy
        cno predict runs/p1 poisson-test-64.nc --out predictions.nc
        """,
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("input", type=Path, help="a .npy or .nc file")
    parser.add_argument("--out", type=Path, required=True, help="a .npy or .nc file")
    parser.add_argument("--batch-size", type=int, default=32, help="samples at once")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    given = parse(parser, arguments)
    check_target(given.out, list(WRITERS))
    operator = load(given.run, pick_device(given.device))
    shape = predict_file(operator, given.input, given.out, given.batch_size)
    print(f"{given.out}: outputs of shape {shape}.")
