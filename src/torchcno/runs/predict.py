"""Predictions from file to file: NumPy arrays and NetCDF files, in physical units."""

import io
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor
from xarray.backends import H5NetCDFStore

from torchcno.data.fields import Fields
from torchcno.data.files import UNLOCKED, coordinates_of, reserve
from torchcno.data.trajectory_files import open_trajectories
from torchcno.disk import refuse_bomb, replacing, write_atomically
from torchcno.grids import Grid
from torchcno.models.ensemble import Ensemble
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.trust import Prediction
from torchcno.selection import select


def predict_file(
    operator: TrainedOperator,
    source: Path,
    target: Path,
    batch_size: int = 32,
    how: Mapping[str, Any] | None = None,
    confidence: float | None = None,
    correct: int = 0,
) -> tuple[Tensor, Tensor | Prediction]:
    """Apply `operator` to the inputs in `source`, outputs to `target`; returns both.

    `correct` is the number of iterations of a solver by which outputs are corrected.
    With a `confidence`, outputs come with their bands, and with the inputs' scores (`ood_score`);
    those of an ensemble with its spread, where the file holds more than one array.
    `how` says how the user's own files are opened (`open_stored`); None: as files of benchmarks.
    """
    write = select(WRITERS, target.suffix.lower(), "kind of output file")
    if confidence is not None and write is write_array:
        raise ValueError(f"{target} holds one array, and bands are several; use .nc or .npz.")
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist; name a file of inputs.")
    read: Callable[[Path], tuple[Tensor, str | None]]
    if how and source.suffix.lower() != ".npy":
        read = partial(read_own, how=how)
    elif source.is_dir():  # a Zarr store, too: only the readers of own files take it
        raise ValueError(f"{source} is a folder; name a file of inputs, {' or '.join(READERS)}.")
    else:
        read = select(READERS, source.suffix.lower(), "kind of input file")
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target} is the file of inputs itself; give another --out.")
    inputs, problem = read(source)
    if problem not in (None, operator.problem):
        raise ValueError(
            f"{source} holds inputs of {problem}, and the network was trained on "
            f"{operator.problem}; give a file of that, or the bare array as a .npy file."
        )
    spread: dict[str, Tensor] = {}
    if isinstance(operator.network, Ensemble) and write is not write_array:
        spread["spread"] = operator.spread(inputs, batch_size)
    if confidence is None:
        outputs = operator.predict(inputs, batch_size, correct=correct)
        write(target, {"output": outputs, **spread}, operator.grid.resized(*outputs.shape[2:]))
        return inputs, outputs
    found = operator.predict(inputs, batch_size, confidence=confidence, correct=correct)
    named = {
        "output": found.value,
        "half_width": found.half_width,
        "half_width_everywhere": found.half_width_everywhere,
        "relative_error_bound": found.relative_error,
        "ood_score": operator.ood_score(inputs).float(),
        **spread,
    }
    grid = operator.grid.resized(*found.value.shape[2:])
    write(target, named, grid, {"confidence": confidence})
    return inputs, found


def read_own(path: Path, how: Mapping[str, Any]) -> tuple[Tensor, None]:
    """The inputs of a user's file, opened as the training's was; outputs need not be there."""
    if "time" in how:  # of trajectories the first states
        return open_trajectories(path, **how).at(0), None
    same = {key: value for key, value in how.items() if key != "mask"}
    if "inputs" in same:
        same["outputs"] = same["inputs"]
    if "times" in same:
        same["times"] = (same["times"][0], same["times"][0])
    return Fields.open(path, **same).inputs, None


def read_array(path: Path) -> tuple[Tensor, None]:
    """The array of a .npy file, which says of no problem that it is of it."""
    try:
        # Mapped: a file that claims more than it has is refused before memory is asked for.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged or no .npy file of numbers; save the array again by np.save."
        ) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} is an archive of arrays; save one as a .npy file.")
    return real_fields(array, path), None


def read_dataset(path: Path) -> tuple[Tensor, str | None]:
    """The variable `input` of a NetCDF file, and the problem that it names, if any."""
    try:
        with xarray.open_dataset(path, engine="h5netcdf", driver_kwds=UNLOCKED) as dataset:
            found, problem = ", ".join(map(str, dataset.variables)), dataset.attrs.get("problem")
            if "input" in dataset:
                refuse_bomb(path, path.stat().st_size, dataset["input"].nbytes)
            array = dataset["input"].values if "input" in dataset else None
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} is damaged or no NetCDF-4 file; write it again, or give a .npy file."
        ) from error
    if array is None:
        raise ValueError(f"{path} has no variable `input`, but {found}; rename one of them.")
    return real_fields(array, path), problem


def real_fields(array: np.ndarray, path: Path) -> Tensor:
    """An array of real numbers as float32 fields."""
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{path} holds {array.dtype}; give real numbers.")
    return torch.from_numpy(array.astype(np.float32))


def write_array(
    path: Path, found: Mapping[str, Tensor], grid: Grid, notes: Mapping[str, float] = {}
) -> None:
    """The outputs of `found` as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, found["output"].numpy())
    write_atomically(path, buffer.getvalue())


def write_archive(
    path: Path, found: Mapping[str, Tensor], grid: Grid, notes: Mapping[str, float] = {}
) -> None:
    """All of `found` as a .npz file."""
    buffer = io.BytesIO()
    named = {name: one.numpy() for name, one in found.items()}
    np.savez_compressed(buffer, **named, **{k: np.array(v) for k, v in notes.items()})  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


def write_dataset(
    path: Path, found: Mapping[str, Tensor], grid: Grid, notes: Mapping[str, float] = {}
) -> None:
    """`found` as the variables of a NetCDF file, with the coordinates of `grid`."""
    space = coordinates_of(grid)
    axes = ("sample", "output_channel", *space)
    variables = {
        name: (axes[: one.ndim], one.numpy(), {"long_name": MEANINGS.get(name, name)})
        for name, one in found.items()
    }
    write_groups(path, {"/": xarray.Dataset(variables, space, notes)})


def write_groups(path: Path, groups: Mapping[str, xarray.Dataset]) -> None:
    """Datasets as the groups of one NetCDF file, never half of it; "/" is the file itself."""
    if not groups:
        raise ValueError(
            f"there is nothing to write to {path}: the network took none of the grids; choose "
            "other resolutions."
        )
    with replacing(path) as part:
        reserve(part, sum(dataset.nbytes for dataset in groups.values()))
        for i, (group, dataset) in enumerate(groups.items()):
            store = H5NetCDFStore.open(part, "a" if i else "w", group=group, driver_kwds=UNLOCKED)
            with closing(store):
                dataset.dump_to_store(store)


READERS = {".npy": read_array, ".nc": read_dataset}
WRITERS: dict[str, Callable[..., None]] = {
    ".npy": write_array,
    ".npz": write_archive,
    ".nc": write_dataset,
}
MEANINGS = {  # of variables beside `output`
    "spread": "standard deviation over the members of the ensemble",
    "half_width": "truth within output +- this at a share `confidence` of the points, on average",
    "half_width_everywhere": "truth within output +- this at all points, with `confidence`",
    "relative_error_bound": "relative L1 error is at most this, with `confidence`",
    "ood_score": "share of validation inputs that are less unlike the training",
}
