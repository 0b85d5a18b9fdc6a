"""`cno export`: a trained run for other programs and other people."""

from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import Data, Device, NamedRun, Numbers, describe


def export(
    run: NamedRun,
    /,
    *,
    out: Annotated[Path, describe("file to write (onnx, pt2), or folder (hub, --half)")],
    format: Annotated[str | None, describe("what to write; see below", "", "onnx|pt2|hub")] = None,
    half: Annotated[
        bool, describe("write a run folder of half the size, in place of a format")
    ] = False,
    size: Annotated[Numbers, describe("points per axis of the exported grid", "as trained")] = (),
    upload: Annotated[
        str | None, describe("send the hub folder to this repository", "", "USER/NAME")
    ] = None,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Write a trained run for ONNX, PyTorch or the Hugging Face Hub.

      onnx    one file for onnxruntime (pip install 'torchcno[export]')
      pt2     one file for PyTorch alone
      hub     a folder for the Hugging Face Hub: config, weights and model card
      --half  a run folder of half the size

    Files take and give physical values, in batches of any size, on one grid.
    Each is compared with the network, and refused if it differs by more than
    1e-4. The half-precision copy is refused if its error on the test and ood
    data differs by more than a hundredth.

    examples:
      cno export poisson --format onnx --out poisson.onnx
      cno export runs/p1 --format pt2 --size 128,128 --out p1.pt2
      cno export runs/p1 --format hub --out hub/p1 --upload me/poisson-cno
      cno export runs/p1 --half --out shared/p1
    """
    from torchcno.runs.export import FORMATS
    from torchcno.selection import select

    if format is not None:
        select({**FORMATS, "hub": export}, format, "format")
    if half == (format is not None):
        raise ValueError("give one of --format onnx, --format pt2, --format hub and --half.")
    if size and format not in FORMATS:
        raise ValueError(f"--size is for --format {' and '.join(FORMATS)}; leave it out.")
    if upload and format != "hub":
        raise ValueError("--upload is for --format hub; leave it out.")
    if half:
        _export_half(run, out, device, data)
    elif format == "hub":
        _export_hub(run, out, upload)
    else:
        _export_file(run, out, str(format), size)


def _export_file(run: Path, out: Path, format: str, size: tuple[int, ...]) -> None:
    from torchcno.runs.export import export_file

    file = export_file(run, out, format, size)
    print(
        f"{out}: {file.bytes / 1e6:.2f} MB; its outputs differ from the network's by "
        f"{file.difference:.1e} of the largest.\nsha256 {file.sha256}"
    )


def _export_hub(run: Path, out: Path, repository: str | None) -> None:
    from torchcno.runs.hub import export_hub, find_uploader

    upload = find_uploader() if repository else None  # before the work, in case it is missing
    export_hub(run, out)
    print(f"{out}: config.json, model.safetensors and a model card; read it before you publish.")
    if upload and repository:
        print(f"uploaded: {upload(out, repository)}")


def _export_half(run: Path, out: Path, device: str, data: Path | None) -> None:
    from torchcno.runs.half import export_half

    errors = export_half(run, out, device, data)
    size = sum(path.stat().st_size for path in out.iterdir())
    told = ", ".join(
        f"{error['full']:.4g} % on {split} becomes {error['half']:.4g} %"
        for split, error in errors.items()
    )
    print(f"{out}: {size / 1e6:.2f} MB; the error of {told}.")
