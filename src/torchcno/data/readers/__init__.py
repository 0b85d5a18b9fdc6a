"""Readers of others' formats, one per file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray
from torch.utils.data import DataLoader, Dataset

from torchcno.data.readers.hdf5 import open_hdf5
from torchcno.data.readers.netcdf import open_netcdf
from torchcno.data.readers.numpy_files import open_npy, read_npz
from torchcno.data.readers.pdebench import open_pdebench
from torchcno.data.readers.source import Opened, Variable
from torchcno.data.readers.the_well import open_well
from torchcno.data.readers.torch_data import read_pairs
from torchcno.data.readers.xarray_objects import open_array, open_dataset
from torchcno.data.readers.zarr_store import open_zarr
from torchcno.selection import select

# The list of names of file formats.
FORMATS: dict[str, Callable[[Path], Opened]] = {
    "netcdf": open_netcdf,
    "zarr": open_zarr,
    "hdf5": open_hdf5,
    "npz": read_npz,
    "the-well": open_well,
    "pdebench": open_pdebench,
}
# Which of them a file is of, by its ending.
ENDINGS = {
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
    ".zarr": "zarr",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".hdf": "hdf5",
    ".npz": "npz",
}
ZARR = (".zgroup", "zarr.json")  # in the folder of a store: of format 2, of format 3
PAIR = ("input", "output")  # the names of the two arrays of a pair


def open_source(source: Any, format: str | None = None) -> Opened:
    """The variables of a file, a Dataset, a mapping, a pair or a torch dataset."""
    if isinstance(source, str | Path):
        return open_path(Path(source), format)
    if format is not None:
        raise ValueError(f"format {format!r} is of files; leave it out, or give a path.")
    match source:
        case xarray.Dataset():
            return open_dataset(source)
        case xarray.DataArray():
            raise ValueError(
                "one DataArray has no outputs; give a pair (inputs, outputs), or a Dataset: "
                "array.to_dataset(dim=...) makes one."
            )
        case Mapping():
            return Opened("the mapping", {str(k): open_one(v) for k, v in source.items()})
        case tuple() | list() if len(source) == 2:
            return pair(*map(open_one, source))
        case DataLoader() | Dataset():
            return pair(*map(Variable, read_pairs(source)))
    raise ValueError(
        f"fields are not read from {type(source).__name__}; give a path, a Dataset of xarray, a "
        "mapping of names to arrays, a pair (inputs, outputs), or a Dataset or DataLoader of torch."
    )


def pair(inputs: Variable, outputs: Variable) -> Opened:
    """Two variables as inputs and outputs."""
    variables = dict(zip(PAIR, (inputs, outputs), strict=True))
    return Opened("the pair", variables, inputs=PAIR[:1], outputs=PAIR[1:])


def open_one(array: Any) -> Variable:
    """One array of any kind; a path is that of a .npy file."""
    if isinstance(array, Variable):
        return array
    if isinstance(array, xarray.DataArray):
        return open_array(array)
    if isinstance(array, str | Path):
        if Path(array).suffix.lower() != ".npy":
            raise ValueError(f"{array} is no .npy file; name such a file, or give the array.")
        return Variable(open_npy(existing(Path(array))))
    if not hasattr(array, "shape"):
        import numpy as np

        array = np.asarray(array)
    return Variable(array)


def open_path(path: Path, format: str | None) -> Opened:
    """The variables of a file or of a Zarr folder."""
    existing(path)
    ending = path.suffix.lower()
    if format is None and ending == ".npy":
        raise ValueError(f"{path} is one array; give a pair of files: ({path}, OUTPUTS.npy).")
    if format is None and path.is_dir():
        if ending != ".zarr" and not any((path / mark).exists() for mark in ZARR):
            raise ValueError(f"{path} is a folder, and no Zarr store; name a file in it.")
        ending = ".zarr"
    if format is None and ending not in ENDINGS:
        raise ValueError(
            f"{path} has no ending of {', '.join(ENDINGS)}; say format=, one of "
            f"{', '.join(FORMATS)}."
        )
    opened = select(FORMATS, format or ENDINGS[ending], "format")
    if path.is_dir() and opened is not open_zarr:
        raise ValueError(f"{path} is a folder; name a file in it.")
    return opened(path)


def existing(path: Path) -> Path:
    """`path`, if something is there."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name a file of fields.")
    return path
