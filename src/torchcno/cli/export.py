"""`cno export`: a trained run in half precision, to be shared."""

from pathlib import Path
from typing import Annotated

from torchcno.cli.arguments import Data, Device, Run, describe


def export(
    run: Run,
    /,
    *,
    out: Annotated[Path, describe("folder to write")],
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Write what prediction needs of a trained run, in half precision.

    The error on the test and ood data is measured before and after. An export
    that changes it by more than a hundredth is refused.

    examples:
      cno export runs/p1 --out shared/p1
      cno predict shared/p1 input.npy --out output.npy
    """
    from torchcno.runs.pretrained import export_run

    errors = export_run(run, out, device, data)
    size = sum(path.stat().st_size for path in out.iterdir())
    told = ", ".join(
        f"{error['full']:.4g} % on {split} becomes {error['half']:.4g} %"
        for split, error in errors.items()
    )
    print(f"{out}: {size / 1e6:.2f} MB; the error of {told}.")
