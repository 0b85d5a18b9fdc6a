"""A data file: NetCDF4 with fields, where they lie, and the whole recipe of how they were made."""

import errno
import hashlib
import inspect
import json
import math
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
from numpy.typing import NDArray

from torchcno.data.samples import Samples
from torchcno.disk import DiskError, explain, flush_file, open_own, open_regular, refuse_bomb
from torchcno.grids import Grid
from torchcno.version import __version__

Arrays = tuple[NDArray[np.float32], ...]  # inputs and outputs, or states: `Samples.shapes`

AXES = ("z", "y", "x")  # of space, in tensor order; fewer dimensions drop the first ones
BLOCK = 64  # samples read at a time
HDF5 = b"\x89HDF"  # how a file of it begins
HEAP = b"GCOL\1\0\0\0"  # how a heap of HDF5 begins
CHECKS = ("sha256", "sha256_description")  # attributes: of the values, of all else
# Files are whole before they have their names, and never written to again: no one needs HDF5's own
# locks, which not every file system has.
UNLOCKED = {"locking": False}


PAIRS = (
    "Inputs, and the outputs that a PDE's solution operator gives for them, in physical values. "
    "sha256 is of the bytes of all inputs followed by all outputs."
)
TRAJECTORIES = (
    "States of a PDE's solution at increasing times, in physical values. sha256 is of their bytes."
)


class Damaged(OSError):  # noqa: N818
    """A data file that cannot be read, whatever in it is broken."""


@dataclass(frozen=True)
class Header:
    """What a data file says of itself."""

    identity: dict[str, str | int]  # see `Samples.identity`
    samples: int
    device: str  # the kind of device that solved; another kind differs by rounding


def file_name(samples: Samples) -> str:
    """`<problem>-<split>-<resolution>.nc`, or `<problem>-trajectories-<split>-<resolution>.nc`"""
    kind = "trajectories-" if samples.times else ""
    return f"{samples.problem.name}-{kind}{samples.split}-{samples.points}.nc"


def write(path: Path, samples: Samples, device: str, chunks: Iterable[Arrays]) -> None:
    """The samples, handed over in consecutive chunks, as a file at `path`."""
    reserve(path, bytes_of(samples))
    with h5netcdf.File(path, "w", **UNLOCKED) as file:
        create_variables(file, samples)
        start = 0
        for arrays in chunks:
            for name, array in zip(samples.shapes, arrays, strict=True):
                file[name][start : start + len(array)] = array
            start += len(arrays[0])
        file.attrs.update(describe_file(samples), device=device, sha256=checksum(file))
        file.attrs["sha256_description"] = checksum_of_description(file)
    flush_file(path)


def bytes_of(samples: Samples) -> int:
    """The size of all values of the file."""
    return 4 * samples.count * sum(map(math.prod, samples.shapes.values()))


def reserve(path: Path, size: int) -> None:
    """An error now if the disk has no room for `size` bytes of values at `path`.

    For HDF5 does not survive a disk that fills up as it writes: closing the file crashes.
    """
    path.unlink(missing_ok=True)  # what a kill left
    descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(descriptor, 0, size + 2**16)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # which cannot reserve at all
            path.unlink()
            raise
    finally:
        os.close(descriptor)


def create_variables(file: h5netcdf.File, samples: Samples) -> None:
    """Coordinates, and empty fields, each with a name that a stranger understands."""
    axes, problem = coordinates_of(samples.grid), samples.problem
    dimensions = {  # of a sample's arrays, before those of space
        name: ("time", "channel") if name == "state" else (f"{name}_channel",)
        for name in samples.shapes
    }
    file.dimensions = {
        "sample": samples.count,
        **{
            axis: n
            for name, shape in samples.shapes.items()
            for axis, n in zip(dimensions[name], shape, strict=False)
        },
        **dict(zip(axes, samples.grid.shape, strict=True)),
    }
    number = file.create_variable("sample", ("sample",), data=np.arange(samples.count))
    number.attrs["long_name"] = "number of the sample"
    if samples.times:
        time = file.create_variable("time", ("time",), data=np.array(samples.times))
        time.attrs.update(long_name="time", axis="T")
    create_positions(file, samples.grid)
    labels = {"input": problem.input_label, "output": problem.output_label, "state": "state"}
    for name in samples.shapes:
        field = file.create_variable(name, ("sample", *dimensions[name], *axes), "<f4")
        field.attrs.update(long_name=labels[name], units="1")


def create_positions(file: h5netcdf.File, grid: Grid) -> None:
    """The coordinates of space, with the ends of the box."""
    for (axis, positions), extent in zip(coordinates_of(grid).items(), grid.extent, strict=True):
        variable = file.create_variable(axis, (axis,), data=positions)
        variable.attrs.update(long_name=f"position along {axis}", units="1", axis=axis.upper())
        variable.attrs["extent"] = np.array(extent)


def coordinates_of(grid: Grid) -> dict[str, NDArray[np.float64]]:
    """The positions of the samples along each axis of space, by its name, in tensor order."""
    return {name: grid.axis(i).numpy() for i, name in enumerate(AXES[-len(grid.shape) :])}


def describe_file(samples: Samples) -> dict[str, Any]:
    """A file's attributes, but for what depends on the values."""
    problem, shape = samples.problem, " x ".join(map(str, samples.grid.shape))
    equation = (inspect.getdoc(type(problem)) or problem.name).split("\n\n")[0]
    return {
        "title": f"{problem.name}: {samples.count} {samples.split} samples on {shape} points",
        "description": " ".join(equation.split()),
        "comment": TRAJECTORIES if samples.times else PAIRS,
        **samples.identity,
        "grid": samples.grid.layout,
        "boundary": problem.boundary,
        "torchcno_version": __version__,
    }


def checksum(file: h5netcdf.File) -> str:
    """The SHA-256 of the bytes of all inputs followed by those of all outputs, or of all states."""
    digest = hashlib.sha256()
    for name in array_names(file):
        for start in range(0, len(file[name]), BLOCK):
            block = file[name][start : start + BLOCK]
            digest.update(block.astype(block.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def array_names(file: h5netcdf.File) -> tuple[str, ...]:
    """The names of a data file's arrays, as `Samples.shapes` has them."""
    return ("state",) if "state" in file.variables else ("input", "output")


def checksum_of_description(file: h5netcdf.File) -> str:
    """The SHA-256 of all that a file says beside its fields: attributes and coordinates."""
    said: dict[str, Any] = {"/": _plain(file.attrs)}
    for name, variable in sorted(file.variables.items()):
        values = variable[:].tolist() if variable.ndim == 1 else None
        said[name] = [variable.dimensions, variable.shape, _plain(variable.attrs), values]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them, but for the checksums."""
    return {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in attributes.items()
        if name not in CHECKS
    }


@contextmanager
def opened(path: Path) -> Iterator[h5netcdf.File]:
    """A data file to read, or an error that says what it is instead.

    HDF5 meets damage where it first needs what is damaged: on opening, or at any later access.
    """
    remedy = "delete it, or generate it again with overwrite"
    with open_regular(path) as raw:
        size = os.fstat(raw.fileno()).st_size
        if raw.read(4) != HDF5:
            raise ValueError(f"{path} is not a NetCDF4 file; {remedy}.")
        if not heaps_are_whole(raw.fileno()):
            raise Damaged(f"{path} is damaged (a list in it has no end); {remedy}.")
    try:
        with h5netcdf.File(path, "r", **UNLOCKED) as file:
            is_ours = {"problem", "recipe", "sha256"} <= set(file.attrs)
            if is_ours and set(array_names(file)) <= set(file.variables):
                claimed = [math.prod(v.shape) * v.dtype.itemsize for v in file.variables.values()]
                refuse_bomb(path, size, sum(claimed))
                said = file.attrs.get("sha256_description")
                if said not in (None, checksum_of_description(file)):
                    raise ValueError("its description is not what was written")
                yield file
                return
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        refuse_unread(path, error)
        raise Damaged(f"{path} is damaged ({error}); {remedy}.") from error
    raise ValueError(f"{path} is a NetCDF file, but no data file of torchcno; {remedy}.")


def heaps_are_whole(descriptor: int) -> bool:
    """Whether the heaps of an HDF5 file, where its names lie, can be walked to their ends.

    A heap is a row of objects (number, length), padded to eight bytes; number 0 is what is free,
    and is the last. HDF5 walks for ever where the free part does not end with the heap.
    """
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        start = content.find(HEAP)
        while start >= 0:
            end = start + int.from_bytes(content[start + 8 : start + 16], "little")
            place = start + 16
            if end > len(content):
                return False
            while place + 16 <= end:
                number = int.from_bytes(content[place : place + 2], "little")
                length = int.from_bytes(content[place + 8 : place + 16], "little")
                if number == 0 and length != end - place:
                    return False
                place = end if number == 0 else place + 16 + -(-length // 8) * 8
            start = content.find(HEAP, start + 8)
    return True


def refuse_unread(path: Path, error: Exception) -> None:
    """An error of the file system that HDF5 met, as such: it says nothing of the file."""
    number = re.search(r"errno = (\d+)", str(error))
    if number and int(number[1]) > 0:
        found = OSError(int(number[1]), os.strerror(int(number[1])))
        raise DiskError(found.errno, explain(found, path, "read")) from error


def read_header(path: Path) -> Header:
    """What the file at `path` holds, without its values."""
    with opened(path) as file:
        attributes = _plain(file.attrs)
        names = ("problem", "split", "seed", "resolution", "recipe")
        identity = {name: attributes.get(name, "") for name in names}
        identity["recipe_version"] = attributes.get("recipe_version", 1)  # the first had no number
        if "times" in attributes:
            identity["times"] = attributes["times"]
        count = len(file[array_names(file)[-1]])
        return Header(identity, count, attributes.get("device", ""))


def refuse_changed(path: Path, actual: str, written: str) -> None:
    """An error where the digest of a file's values is another than when it was written."""
    if actual != written:
        raise ValueError(
            f"the values in {path} are not those that were written (SHA-256 {actual}, not "
            f"{written}); delete it, or generate it again with overwrite."
        )


def read(path: Path, count: int) -> tuple[Arrays, Grid]:
    """The first `count` samples of the file at `path`, and their grid; its values are verified."""
    with opened(path) as file:
        actual, written = checksum(file), file.attrs["sha256"]
        arrays = tuple(file[name][:count] for name in array_names(file))
        axes = [axis for axis in file[array_names(file)[-1]].dimensions if axis in AXES]
        extent = tuple((float(a), float(b)) for a, b in (file[x].attrs["extent"] for x in axes))
        grid = Grid(arrays[-1].shape[-len(axes) :], file.attrs["grid"], extent)
    refuse_changed(path, actual, written)
    if len(arrays[0]) < count:
        raise ValueError(
            f"{path} holds {len(arrays[0])} of {count} samples: another process replaced it. Do "
            "the same again."
        )
    return arrays, grid
