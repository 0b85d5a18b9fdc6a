"""NetCDF files, version 3 (classic, by SciPy) and 4 (HDF5, by h5netcdf)."""

from pathlib import Path
from typing import Any

import xarray

from torchcno.data.files import UNLOCKED, refuse_unread
from torchcno.data.readers.source import Opened
from torchcno.data.readers.xarray_objects import open_dataset
from torchcno.disk import open_regular, refuse_bomb

ENGINES = {b"CDF": "scipy", b"\x89HD": "h5netcdf"}  # by a file's first bytes


def open_netcdf(path: Path) -> Opened:
    """The variables of a NetCDF file, which are read when they are sliced.

    Values that the file marks as missing are NaN.
    """
    with open_regular(path) as raw:
        engine = ENGINES.get(raw.read(3))
    if engine is None:
        raise ValueError(f"{path} is no NetCDF file, version 3 or 4; give one of those.")
    try:
        unlocked: Any = {"driver_kwds": UNLOCKED} if engine == "h5netcdf" else {}
        dataset = xarray.open_dataset(path, engine=engine, **unlocked)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        refuse_unread(path, error)
        raise ValueError(f"{path} is damaged ({reason}); bring back a whole copy of it.") from error
    refuse_bomb(path, path.stat().st_size, dataset.nbytes)
    return open_dataset(dataset, str(path))
