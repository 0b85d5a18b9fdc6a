"""Files of PDEBench (Takamoto et al., 2022), in its three HDF5 layouts.

tensor                      (sample, time, *space): Burgers, advection, diffusion-sorption …
nu and tensor               (sample, *space) and (sample, 1, *space): Darcy, coefficient to flow
density pressure Vx Vy Vz   (sample, time, *space): compressible flow
0000/data 0001/data …       (time, *space, channel), a group per sample: reaction-diffusion …
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from torchcno.data.readers.hdf5 import open_file
from torchcno.data.readers.source import Opened, Variable, read_coordinate

FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
SPACE = ("x", "y", "z")


def open_pdebench(path: Path) -> Opened:
    """The fields of a file: by default the first and the last time of a sample are a pair."""
    file = open_file(path)
    groups = sorted(k for k in file if isinstance(file[k], h5py.Group) and "data" in file[k])
    if "nu" in file and "tensor" in file and file["nu"].ndim == file["tensor"].ndim - 1:
        return _open_darcy(file)
    if groups:
        stacked = _Stacked(file, groups)
        axes = ("sample", "time", *SPACE[: stacked.ndim - 3], "channel")
        variables, where = {"data": Variable(stacked, axes)}, f"{groups[0]}/grid/{{}}"
    else:
        names = [name for name in ("tensor", *FLOW) if name in file]
        if not names:
            raise ValueError(
                f"{path} has neither tensor, density nor groups with data; is it of PDEBench?"
            )
        variables = {
            name: Variable(file[name], ("sample", "time", *SPACE[: file[name].ndim - 2]))
            for name in names
        }
        where = "{}-coordinate"
    fields, positions = tuple(variables), _positions(file, where)
    return Opened(str(path), variables, positions, inputs=fields, outputs=fields, times=(0, -1))


def _open_darcy(file: h5py.File) -> Opened:
    """Coefficient and flow, which has a time axis of one entry."""
    space = SPACE[: file["nu"].ndim - 1]
    return Opened(
        file.filename,
        {
            "nu": Variable(file["nu"], ("sample", *space)),
            "tensor": Variable(file["tensor"], ("sample", "time", *space)),
        },
        _positions(file, "{}-coordinate"),
        inputs=("nu",),
        outputs=("tensor",),
        times=(0, -1),
    )


def _positions(file: h5py.File, where: str) -> dict[str, NDArray[Any]]:
    names = {axis: where.format(axis) for axis in SPACE} | {"time": where.format("t")}
    read = {axis: read_coordinate(file[name]) for axis, name in names.items() if name in file}
    return {axis: x for axis, x in read.items() if x is not None}


class _Stacked:
    """The array `data` of many groups, sliced as one array whose first axis is the group."""

    def __init__(self, file: h5py.File, groups: list[str]) -> None:
        self.arrays = [file[group]["data"] for group in groups]
        shapes = {array.shape for array in self.arrays}
        if len(shapes) > 1:
            raise ValueError(f"the samples of {file.filename} differ in shape: {sorted(shapes)}.")
        self.shape, self.dtype = (len(groups), *shapes.pop()), self.arrays[0].dtype
        self.ndim = len(self.shape)

    def __getitem__(self, key: tuple[Any, ...]) -> NDArray[Any]:
        return np.stack([array[key[1:]] for array in self.arrays[key[0]]])
