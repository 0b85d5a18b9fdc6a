"""Trained operators by name: those that come with the package, and those that are downloaded.

A folder of `torchcno/weights` is a run folder with all that prediction and evaluation need, mostly
in half precision. Weights that are too large for the package are files of a release. Then the
folder has all but them, and `releases.json` says what to download and by which hash it is known:

    {"navier-stokes-large": {"url": "https://…/navier-stokes-large.safetensors",
                             "sha256": "…", "bytes": 31457280}}

Nothing is fetched from here. The user puts the file where the error says, and it is verified each
time it is loaded.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchcno.data.dataset import data_folder
from torchcno.disk import read_json, write_atomically
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.plain import from_plain
from torchcno.selection import select

WEIGHTS = Path(__file__).parents[1] / "weights"
RELEASES = "releases.json"


@dataclass(frozen=True)
class Release:
    """A file of weights that the user downloads."""

    url: str
    sha256: str
    bytes: int

    def check(self, file: Path) -> None:
        """Refuse a file that is not there, or another one."""
        where = f"download {self.url} ({self.bytes / 1e6:.0f} MB) to {file}"
        if not file.is_file():
            raise FileNotFoundError(
                f"these weights do not come with the package; {where}, for example with "
                f"`curl --create-dirs -L -o {file} {self.url}`."
            )
        size = file.stat().st_size
        if size != self.bytes:
            raise ValueError(f"{file} has {size} bytes, not {self.bytes}; {where} again.")
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != self.sha256:
            raise ValueError(f"{file} has the SHA-256 {found}, not {self.sha256}; {where} again.")


def load_pretrained(name: str | Path, device: str | torch.device = "cpu") -> TrainedOperator:
    """The trained operator of that name, in float32; `pretrained()` has the names.

    A folder of a run will do as well.

    >>> operator = load_pretrained("navier-stokes")
    >>> v = operator.predict(u)  # physical values, any resolution
    """
    return load(find_run(name), device)


def pretrained() -> dict[str, Path]:
    """The folders in the package of the operators that have a name."""
    return {
        path.name: path for path in sorted(WEIGHTS.glob("*")) if RunFolder(path).model_file.exists()
    }


def describe_pretrained() -> list[dict[str, Any]]:
    """What the documents say of each: its name, training samples, size and errors in percent."""
    found = []
    for name, path in pretrained().items():
        folder = RunFolder(path)
        config, errors = folder.config(), folder.description()["relative_l1_median_percent"]
        found.append(
            {
                "name": name,
                "samples": config.train.samples or config.problem.samples["train"],
                "megabytes": folder.weights.stat().st_size / 1e6,
                "errors": {split: error["half"] for split, error in errors.items()},
            }
        )
    return found


def releases() -> dict[str, Release]:
    """The weights that are to be downloaded, by name."""
    path = WEIGHTS / RELEASES
    trees = read_json(path) if path.exists() else {}
    return {name: from_plain(Release, tree, f"{path.name}: {name}") for name, tree in trees.items()}


def find_run(run: str | Path) -> Path:
    """The run folder that `run` means: a folder, else the operator of that name."""
    if Path(run).is_dir() or Path(run).name != str(run):  # there, or a path: no name
        return Path(run)
    shipped = pretrained()
    if not shipped:
        raise ValueError(
            f"there is no folder {run}, and no weights come with this build of torchcno: {WEIGHTS} "
            "has none; name the --out folder of a run."
        )
    folder = select(shipped, str(run), "folder or pretrained operator")
    release = releases().get(str(run))
    return folder if release is None else add_package_files(folder, release)


def add_package_files(folder: Path, release: Release) -> Path:
    """A run folder beside the data files: its weights downloaded, all else from the package."""
    target = data_folder() / "weights" / folder.name
    release.check(RunFolder(target).weights)
    for source in folder.iterdir():
        copy = target / source.name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            write_atomically(copy, source.read_bytes())
    return target
