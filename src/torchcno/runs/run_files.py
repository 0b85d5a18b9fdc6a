"""The files of a run, read with care: one that was cut short is named, and stops no one else.

A run with such a file counts as unreadable, whole: it is neither used nor written over.
"""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcno.disk import read_json
from torchcno.evaluation.errors import published_error
from torchcno.runs.config import read_config
from torchcno.runs.measurements import read_resolutions
from torchcno.training.run_folder import RunFolder

# What result.json of a finished run says at least.
KEYS = ("problem", "model", "parameters", "seconds_per_epoch", "best_validation_error",
        "inference", "device", "versions", "errors")  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read."""

    file: Path
    why: str

    def __str__(self) -> str:
        return f"{self.file} cannot be read ({self.why})"


def find_damage(folder: Path) -> Damage | None:
    """The first file of the run in `folder` that is there and cannot be read."""
    found = (damage_of(folder / name) for name in READERS)
    return next((damage for damage in found if damage is not None), None)


def damage_of(path: Path, read: Callable[[Path], object] | None = None) -> Damage | None:
    """What is wrong with a file of a run; None where it can be read, or is not there.

    A file of another kind is one that `read` reads.
    """
    if path.exists():
        try:
            (read or READERS[path.name])(path)
        except Exception as error:  # a broken file makes its reader raise anything
            lacks = f"it lacks {error}" if isinstance(error, KeyError) else ""
            words = lacks or str(error) or type(error).__name__
            return Damage(path, words.replace(str(path), "it").strip().rstrip("."))
    return None


def finished_result(folder: Path) -> dict[str, Any] | None:
    """What the run in `folder` came to; None where it is still to go on.

    A result that cannot be read is made again from the checkpoint. Without one nothing is left to
    go on from, and to begin again would be to write over a finished run.
    """
    path, checkpoint = folder / "result.json", RunFolder(folder).checkpoint
    damage = damage_of(path)
    if damage is None:
        return read_json(path) if path.exists() else None
    if checkpoint.exists():
        return None
    raise ValueError(
        f"{damage}, and there is no {checkpoint} to go on from; bring one of them back, or train "
        f"anew: cno train --config {folder / 'config.yaml'} --out {folder}-again"
    )


def read_result(path: Path) -> dict[str, Any]:
    """What a run came to, if it says what it has to."""
    result = read_json(path)
    lacking = [key for key in KEYS if key not in result]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    check_errors(result["errors"])
    return result


def check_errors(errors: Mapping[str, Any]) -> None:
    """Refuse errors by split of which one has not what tables show."""
    for split, summary in errors.items():
        try:
            published_error(summary)
        except (KeyError, TypeError) as error:
            raise ValueError(f"it has no errors of {split}") from error


def _check_arrays(path: Path) -> None:
    """Read an archive of arrays to its end: every part of it has a checksum."""
    with zipfile.ZipFile(path) as archive:
        bad = archive.testzip()
    if bad is not None:
        raise ValueError(f"{bad} in it is damaged")


READERS: dict[str, Callable[[Path], object]] = {
    "config.yaml": lambda path: read_config(path.parent),
    "result.json": read_result,
    "errors.npz": _check_arrays,
    "examples.npz": _check_arrays,
    "resolution.json": lambda path: read_resolutions(path.parent),
    "spectra.npz": _check_arrays,
}
