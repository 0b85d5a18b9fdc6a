"""Zarr stores, format 2 and 3: folders that xarray wrote, or plain groups of arrays."""

from pathlib import Path
from typing import Any

from torchcno.data.readers.source import Opened, Variable
from torchcno.data.readers.xarray_objects import open_dataset


def open_zarr(path: Path) -> Opened:
    """The variables of a Zarr store, which are read when they are sliced."""
    try:
        import zarr
    except ImportError as error:
        raise ValueError(
            f"{path} is a Zarr store, and the package zarr is not installed; run "
            "pip install 'torchcno[zarr]'."
        ) from error
    try:
        group = zarr.open_group(path, mode="r")
        arrays: dict[str, Any] = dict(group.arrays())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no readable Zarr group; give the folder of one.") from error
    if all(_dimensions(array) is not None for array in arrays.values()) and arrays:
        import xarray

        return open_dataset(xarray.open_zarr(path, chunks=None, consolidated=False), str(path))
    return Opened(str(path), {name: Variable(array) for name, array in arrays.items()})


def _dimensions(array: Any) -> Any:
    """The names of an array's axes, as xarray keeps them in either format; None: it has none."""
    return getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
