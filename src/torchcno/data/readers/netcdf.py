"""NetCDF files, version 3 (classic, by SciPy) and 4 (HDF5, by h5netcdf)."""

from pathlib import Path

import xarray

from torchcno.data.readers.source import Opened
from torchcno.data.readers.xarray_objects import open_dataset

ENGINES = {b"CDF": "scipy", b"\x89HD": "h5netcdf"}  # by a file's first bytes


def open_netcdf(path: Path) -> Opened:
    """The variables of a NetCDF file, which are read when they are sliced.

    Values that the file marks as missing are NaN.
    """
    with path.open("rb") as raw:
        engine = ENGINES.get(raw.read(3))
    if engine is None:
        raise ValueError(f"{path} is no NetCDF file, version 3 or 4; give one of those.")
    try:
        dataset = xarray.open_dataset(path, engine=engine)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is damaged ({reason}); bring back a whole copy of it.") from error
    return open_dataset(dataset, str(path))
