"""Trajectories from the files and arrays that `Fields` are read from, and to NetCDF files."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcno.data import files
from torchcno.data.arrays import as_real_tensor
from torchcno.data.axes import Axes, Part
from torchcno.data.opening import Names
from torchcno.data.positions import make_grid
from torchcno.data.readers import open_one, open_source
from torchcno.data.readers.source import Opened, read_coordinate
from torchcno.data.trajectories import Trajectories
from torchcno.disk import make_folder, replacing
from torchcno.grids import Grid, Layout
from torchcno.sizes import refuse_without_memory
from torchcno.version import __version__

TIME_NAMES = ("time", "times", "t")  # of an array of times, where nobody names it
STATE = "state"  # the variable of our own files


def open_trajectories(
    source: Any,
    *,
    states: Names | None = None,
    parameters: Names | None = None,
    times: Any = None,
    time: str = "time",
    layout: Layout | Sequence[Layout] | None = None,
    grid: Grid | None = None,
    sample: str | None = None,
    dimension: int | None = None,
    format: str | None = None,
) -> Trajectories:
    """Trajectories from a file, a Dataset of xarray, a mapping of names to arrays, or one array.

    states      names of variables, one or several: each is a channel or more. By default all that
                have an axis of times, by their names.
    parameters  names of variables with one number, or some, per trajectory, such as a viscosity.
    times       the times themselves, where the source does not have them.
    time        the name of the axis of times; dates become seconds since the first.

    `layout`, `grid`, `sample`, `dimension` and `format` are those of `Fields.open`. An array whose
    axes have no names is (sample, time, channel, *space) or (sample, time, *space).
    """
    if not isinstance(source, str | Path | dict) and hasattr(source, "shape"):
        source = {STATE: open_one(source)}
    opened = open_source(source, format)
    names = _state_names(states, opened, time)
    if dimension is None and grid is not None:
        dimension = len(grid.shape)
    plan = Axes(opened, names[0], sample, dimension, time)
    parts = [plan.part(name, slice(None), "states") for name in names]
    _refuse_large(plan, parts)
    values = _find_times(times, opened, time, plan.times)
    where = make_grid(opened, plan, {"states": [_at_first(part) for part in parts]}, grid, layout)
    blocks = [part.read_times(0, plan.samples) for part in parts]
    blocks = [block.expand(-1, plan.times, *block.shape[2:]) for block in blocks]
    labels = [n for part in parts for n in opened.names.get(part.name) or part.names]
    numbers, number_names = _read_parameters(parameters, opened, plan.samples)
    if isinstance(source, str | Path):
        verify(Path(source))
    return Trajectories(
        torch.cat(blocks, dim=2), values, where, tuple(labels), numbers, tuple(number_names)
    )


def write_trajectories(path: Path | str, trajectories: Trajectories) -> Path:
    """A NetCDF file that any tool of the field opens; whole, or not there. Others' are refused.

    It says where samples lie and has the SHA-256 of its values, which `open_trajectories` verifies.
    """
    path = Path(path)
    if path.suffix not in (".nc", ".nc4"):
        raise ValueError(f"{path} has no ending of NetCDF; call it {path.stem}.nc.")
    if path.exists():
        raise FileExistsError(f"{path} exists; delete it, or choose another name.")
    make_folder(path.parent)
    with replacing(path) as unfinished:
        files.reserve(unfinished, trajectories.states.nbytes)
        with h5netcdf.File(unfinished, "w", **files.UNLOCKED) as file:
            _fill(file, trajectories)
    return path


def verify(path: Path) -> None:
    """Refuse a file of ours whose values are not those that were written; others say nothing."""
    if path.is_dir():  # a Zarr store
        return
    with path.open("rb") as raw:
        if raw.read(4) != files.HDF5:
            return
    with h5netcdf.File(path, "r", **files.UNLOCKED) as file:
        if STATE in file.variables and "sha256" in file.attrs:
            files.refuse_changed(path, files.checksum(file), file.attrs["sha256"])


def _fill(file: h5netcdf.File, trajectories: Trajectories) -> None:
    """All variables and attributes of a file."""
    grid, values = trajectories.grid, trajectories.states.cpu()
    states = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    axes = tuple(files.coordinates_of(grid))
    dimensions = ("sample", "time", "channel", *axes)
    file.dimensions = dict(zip(dimensions, states.shape, strict=True))
    file.create_variable("time", ("time",), data=trajectories.times.numpy()).attrs["axis"] = "T"
    files.create_positions(file, grid)
    for axis, layout in zip(axes, grid.layouts, strict=True):
        file[axis].attrs["layout"] = layout
    kept = file.create_variable(STATE, dimensions, data=states)
    kept.attrs.update(long_name="state", channels=json.dumps(trajectories.names))
    numbers = _parameter_columns(trajectories)
    for name, column in numbers.items():
        file.create_variable(name, ("sample",), data=column)
    file.attrs.update(
        title=f"{len(states)} trajectories at {states.shape[1]} times",
        comment=files.TRAJECTORIES,
        parameters=json.dumps(list(numbers)),
        torchcno_version=__version__,
        sha256=files.checksum(file),
    )
    file.attrs["sha256_description"] = files.checksum_of_description(file)


def _parameter_columns(trajectories: Trajectories) -> dict[str, Any]:
    """The parameters by their names, which are not those of other variables."""
    if trajectories.parameters is None:
        return {}
    columns = trajectories.parameters.double().cpu().numpy().T
    names = trajectories.parameter_names or [f"parameter_{i}" for i in range(len(columns))]
    taken = {STATE, "sample", "time", "channel", *files.AXES}
    return {
        f"{name}_parameter" if name in taken else name: column
        for name, column in zip(names, columns, strict=True)
    }


def _state_names(states: Names | None, opened: Opened, time: str) -> list[str]:
    """The variables that are states: those named, else what is known to evolve."""
    if states is not None:
        return [states] if isinstance(states, str) else list(states)
    if STATE in opened.variables:
        return [STATE]
    evolving = sorted(  # a Zarr store lists its variables in any order
        name
        for name, variable in opened.variables.items()
        if time in (variable.axes or ()) and len(variable.shape) > 1
    )
    chosen = [name for name in opened.outputs if name in evolving] or evolving
    if not chosen:
        known = ", ".join(f"{key} {v.shape}" for key, v in opened.variables.items()) or "nothing"
        raise ValueError(f"say which variables are states: states=...; {opened.name} has {known}.")
    return chosen


def _at_first(part: Part) -> Part:
    """The first state alone, by which a layout is guessed."""
    return replace(part, time=None if part.time is None else 0)


def _refuse_large(plan: Axes, parts: list[Part]) -> None:
    """Refuse what memory does not hold."""
    values = plan.samples * plan.times * math.prod(plan.shape)
    needed = 2 * values * sum(part.itemsize * part.channels for part in parts)
    what = f"to read {plan.samples} trajectories of {plan.times} times"
    refuse_without_memory(needed, what, "write fewer of them, or fewer times, to a file")


def _find_times(times: Any, opened: Opened, time: str, n: int) -> Tensor:
    """The times that are given, else those of the source."""
    if times is not None:
        return as_real_tensor(times, "times")
    named = [name for name in (time, *TIME_NAMES) if name in opened.variables]
    found = opened.coordinates.get(time, opened.coordinates.get("time"))
    if found is None and named:
        values = opened.variable(named[0]).values
        found = _as_seconds(np.asarray(values[tuple([slice(None)] * len(values.shape))]))
    if found is None:
        raise ValueError(f"{opened.name} does not say its times; give them: times=[...].")
    found = found[:n] if len(found) == n + 1 else found  # PDEBench has one more than states
    return torch.from_numpy(np.ascontiguousarray(found))


def _as_seconds(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Numbers as they are; dates as seconds since the first."""
    if values.dtype.kind == "M":
        values = values - values[0]
    if values.dtype.kind == "m":
        return values / np.timedelta64(1, "s")
    return read_coordinate(values)


def _read_parameters(
    names: Names | None, opened: Opened, samples: int
) -> tuple[Tensor | None, list[str]]:
    """The numbers of each trajectory, with their names."""
    chosen = [names] if isinstance(names, str) else list(names or opened.parameters)
    columns, labels = [], []
    for name in chosen:
        values = opened.variable(name).values
        column = as_real_tensor(values[tuple([slice(None)] * len(values.shape))], name)
        if column.ndim not in (1, 2) or len(column) != samples:
            raise ValueError(
                f"{name} of shape {tuple(column.shape)} is no parameter of {samples} trajectories; "
                "give a number or a row of numbers per trajectory."
            )
        columns.append(column.reshape(samples, -1).double())
        several = columns[-1].shape[1] > 1
        labels += [f"{name}_{i}" if several else name for i in range(columns[-1].shape[1])]
    return (torch.cat(columns, dim=1) if columns else None), labels
