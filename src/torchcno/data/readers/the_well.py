"""Files of The Well (Ohana et al., 2024): trajectories on uniform grids, in HDF5.

    dimensions/       time, and a coordinate per axis of space, named by the attribute spatial_dims
    t0_fields/        scalars  (trajectory, time, *space)
    t1_fields/        vectors  (trajectory, time, *space, D)
    t2_fields/        tensors  (trajectory, time, *space, D, D)
    scalars/          numbers of the run, or of each trajectory
    boundary_conditions/*  with bc_type (periodic, wall, open) and associated_dims

A field that does not vary in time or from trajectory to trajectory lacks that axis.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from torchcno.data.readers.hdf5 import open_file
from torchcno.data.readers.source import Opened, Variable, read_coordinate
from torchcno.grids import Layout


def open_well(path: Path) -> Opened:
    """All fields of a file: by default the first and the last time of a trajectory are a pair."""
    file = open_file(path)
    if not {"dimensions", "t0_fields"} <= file.keys():
        raise ValueError(f"{path} has no groups dimensions and t0_fields; is it of The Well?")
    space = [_text(name) for name in file["dimensions"].attrs["spatial_dims"]]
    variables = dict(_fields(file, space))
    varying = tuple(name for name, v in variables.items() if v.axes and "time" in v.axes)
    numbers = []
    for name, scalar in file.get("scalars", {}).items():
        if scalar.attrs.get("sample_varying") and not scalar.attrs.get("time_varying"):
            variables[name] = Variable(scalar, ("sample",))
            numbers.append(name)
    along = [axis for axis in ("time", *space) if axis in file["dimensions"]]
    positions = {axis: read_coordinate(file["dimensions"][axis]) for axis in along}
    return Opened(
        str(path),
        variables,
        {axis: x for axis, x in positions.items() if x is not None},
        dict(_layouts(file, space)),
        inputs=tuple(variables),
        outputs=varying,
        times=(0, -1),
        parameters=tuple(numbers),
    )


def _fields(file: h5py.File, space: list[str]) -> Iterator[tuple[str, Variable]]:
    for rank in range(3):
        for name, values in file.get(f"t{rank}_fields", {}).items():
            along = np.broadcast_to(values.attrs.get("dim_varying", True), len(space))
            axes = [axis for axis, varies in zip(space, along, strict=True) if varies]
            before = [
                axis
                for axis, key in (("sample", "sample_varying"), ("time", "time_varying"))
                if values.attrs.get(key, True)
            ]
            yield name, Variable(values, (*before, *axes, *("channel", "channel_2")[:rank]))


def _layouts(file: h5py.File, space: list[str]) -> Iterator[tuple[str, Layout]]:
    """Periodic axes are; on the others samples are cell averages, whatever the wall."""
    kinds: dict[str, str] = {}
    for condition in file.get("boundary_conditions", {}).values():
        for axis in condition.attrs.get("associated_dims", ()):
            kinds[_text(axis)] = _text(condition.attrs.get("bc_type", "")).lower()
    for axis in space:
        if axis in kinds:
            yield axis, "periodic" if kinds[axis] == "periodic" else "cell-centred"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
