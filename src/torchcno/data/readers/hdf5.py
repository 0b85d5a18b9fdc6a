"""HDF5 files with named arrays."""

from pathlib import Path
from typing import Any

import h5py

from torchcno.data.files import refuse_unread
from torchcno.data.readers.source import Opened, Variable
from torchcno.disk import refuse_bomb


def open_file(path: Path) -> h5py.File:
    """The HDF5 file at `path`, to read."""
    try:
        return h5py.File(path, "r", locking=False)  # which not every file system has
    except OSError as error:
        refuse_unread(path, error)
        raise ValueError(f"{path} is damaged or no HDF5 file; bring back a whole copy.") from error


def open_hdf5(path: Path) -> Opened:
    """All arrays of a file, those in groups by their paths: `fields/velocity`."""
    found: dict[str, Variable] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape:
            found[name] = Variable(item)

    open_file(path).visititems(visit)
    claimed = sum(variable.values.nbytes for variable in found.values())
    refuse_bomb(path, path.stat().st_size, claimed)
    return Opened(str(path), found)
