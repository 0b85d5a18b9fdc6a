"""Datasets and DataArrays of xarray, in memory or not read yet."""

import json
from typing import Any, get_args

import numpy as np
import xarray

from torchcno.data.readers.source import Opened, Variable, read_coordinate
from torchcno.grids import Layout


def open_dataset(dataset: xarray.Dataset, name: str = "the Dataset") -> Opened:
    """The variables of a Dataset by their names and dimensions.

    Files of `cno generate` say where their samples lie; from others that is asked for.
    """
    # All of it, since a viscosity may well be a coordinate of the samples.
    variables = {
        str(key): Variable(_Lazy(dataset[key].variable), tuple(map(str, dataset[key].dims)))
        for key in dataset.variables
    }
    positions = {str(k): read_coordinate(dataset[k]) for k in dataset.dims if k in dataset.coords}
    layouts: dict[str, Layout] = {}
    stated: Any = dataset.attrs.get("grid")
    extents = {}
    for axis in map(str, dataset.dims):
        extent = dataset[axis].attrs.get("extent") if axis in dataset.coords else None
        if extent is not None and np.shape(extent) == (2,):
            extents[axis] = (float(extent[0]), float(extent[1]))
            layout = dataset[axis].attrs.get("layout", stated)  # one per axis, or of all
            if layout in get_args(Layout):
                layouts[axis] = layout
    ours = {"input", "output"} <= variables.keys()
    return Opened(
        name,
        variables,
        {axis: position for axis, position in positions.items() if position is not None},
        layouts,
        extents,
        inputs=("input",) if ours else (),
        outputs=("output",) if ours else (),
        parameters=_listed(dataset.attrs.get("parameters")),
        names={key: _listed(dataset[key].attrs.get("channels")) for key in variables},
    )


def _listed(written: Any) -> list[str]:
    """Names that `write_trajectories` wrote as JSON; of another's attribute none."""
    try:
        names = json.loads(written) if isinstance(written, str) else []
    except json.JSONDecodeError:
        names = []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def open_array(array: xarray.DataArray) -> Variable:
    """A DataArray with its dimensions."""
    return Variable(_Lazy(array.variable), tuple(map(str, array.dims)))


class _Lazy:
    """A variable of xarray that is sliced as NumPy's arrays are, and read only then."""

    def __init__(self, variable: Any) -> None:
        self.variable, self.shape, self.dtype = variable, variable.shape, variable.dtype
        chunks = variable.encoding.get("chunksizes") or variable.encoding.get("chunks")
        self.chunks = chunks if chunks and len(chunks) == len(self.shape) else None

    def __getitem__(self, key: Any) -> Any:
        return self.variable[key].values
