"""`cno export`: a trained run in half precision, to be shared."""

from collections.abc import Sequence
from pathlib import Path

from torchcno.cli.arguments import parse, parser_of
from torchcno.runs.pretrained import export_run


def main(arguments: Sequence[str]) -> None:
    """Export, and say what rounding costs."""
    parser = parser_of(
        "export RUN --out FOLDER [options]",
        "Write what prediction needs of a trained run to a folder, its weights in half\n"
        "precision. Refused where that changes the error, which is measured on the test and the\n"
        "ood data before and after, by more than a hundredth.",
        """
        cno export runs/p1 --out shared/p1 && cno predict shared/p1 input.npy --out output.npy
        cno export results/runs/poisson-cno-best-0 --out src/torchcno/weights/poisson
        """,
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    given = parse(parser, arguments)
    errors = export_run(given.run, given.out, given.device)
    size = sum(path.stat().st_size for path in given.out.iterdir())
    told = ", ".join(
        f"{error['full']:.4g} % on {split} becomes {error['half']:.4g} %"
        for split, error in errors.items()
    )
    print(f"{given.out}: {size / 1e6:.2f} MB; the error of {told}.")
