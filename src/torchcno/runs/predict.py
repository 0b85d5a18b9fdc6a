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
from torchcno.disk import refuse_bomb, replacing, write_atomically
from torchcno.grids import Grid
from torchcno.runs.operator import TrainedOperator
from torchcno.selection import select


def predict_file(
    operator: TrainedOperator,
    source: Path,
    target: Path,
    batch_size: int = 32,
    how: Mapping[str, Any] | None = None,
) -> tuple[int, ...]:
    """Apply `operator` to the inputs in `source`, outputs to `target`; returns their shape.

    `how` says how the user's own files are opened (`open_stored`); None: as files of benchmarks.
    """
    write = select(WRITERS, target.suffix.lower(), "kind of output file")
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist; name a file of inputs.")
    read: Callable[[Path], tuple[Tensor, str | None]]
    if how and source.suffix.lower() != ".npy":
        read = partial(read_own, how=how)
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
    outputs = operator.predict(inputs, batch_size)
    write(target, outputs, operator.grid.resized(*outputs.shape[2:]))
    return tuple(outputs.shape)


def read_own(path: Path, how: Mapping[str, Any]) -> tuple[Tensor, None]:
    """The inputs of a user's file, opened as the training's was; outputs need not be there."""
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


def write_array(path: Path, outputs: Tensor, grid: Grid) -> None:
    """`outputs` as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, outputs.numpy())
    write_atomically(path, buffer.getvalue())


def write_dataset(path: Path, outputs: Tensor, grid: Grid) -> None:
    """`outputs` as the variable `output` of a NetCDF file, with the coordinates of `grid`."""
    space = coordinates_of(grid)
    variables = {"output": (("sample", "output_channel", *space), outputs.numpy())}
    write_groups(path, {"/": xarray.Dataset(variables, space)})


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
WRITERS = {".npy": write_array, ".nc": write_dataset}
