"""Fields that evolve: samples of functions at increasing times, with their grid."""

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchcno.data.arrays import as_real_tensor
from torchcno.data.fields import Fields, Index, as_index, split_numbers
from torchcno.grids import Grid

EQUAL_STEPS = 1e-3  # steps that differ by less than this part of one are equal: files round times


@dataclass(frozen=True)
class Trajectories:
    """States of evolving systems at the same times and on one grid, in physical values.

    `trajectories[3]` is the tensor (time, channel, *space) of one sample; `trajectories[:80]` and
    `trajectories[[2, 5]]` are `Trajectories`. Arrays of NumPy are taken as tensors are.

    >>> trajectories = Trajectories(states, times, Grid((64, 64), "periodic"))
    >>> train, val, test = trajectories.split(80, 10, 10, seed=0)
    >>> one_step = trajectories.as_fields(0, 1)
    """

    states: Float[Tensor, "sample time channel *space"]
    times: Float[Tensor, " time"]  # strictly increasing; kept in float64 on the CPU
    grid: Grid
    names: tuple[str, ...] = ()  # of the channels, where they have names
    parameters: Float[Tensor, "sample number"] | None = None  # numbers of each trajectory
    parameter_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", as_real_tensor(self.states, "states"))
        object.__setattr__(self, "times", as_times(self.times))
        if self.parameters is not None:
            parameters = as_real_tensor(self.parameters, "parameters")
            object.__setattr__(self, "parameters", parameters)
        self._check_shapes()
        self._check_finite()

    @classmethod
    def open(cls, source: Any, **how: Any) -> "Trajectories":
        """Trajectories from a file, arrays or datasets, read into memory.

        `source` is a NetCDF (3 or 4), Zarr, HDF5 or .npz file, of The Well or PDEBench too, a
        Dataset of xarray, a mapping of names to arrays, or one array. `how` are the further
        arguments of `torchcno.data.trajectory_files.open_trajectories`: which variables are
        `states` and `parameters`, the `layout`, and so on.

        >>> Trajectories.open("flow.nc", states=["u", "v"], parameters="nu", layout="periodic")
        >>> Trajectories.open(array, times=[0, 0.1, 0.2], layout="periodic")
        """
        from torchcno.data.trajectory_files import open_trajectories

        return open_trajectories(source, **how)

    def write(self, path: Path | str) -> Path:
        """Write a NetCDF file, which `open` reads again, bit for bit; a file there is refused."""
        from torchcno.data.trajectory_files import write_trajectories

        return write_trajectories(path, self)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def channels(self) -> int:
        """How many there are of a state."""
        return self.states.shape[2]

    @property
    def is_uniform(self) -> bool:
        """Whether all steps in time are equal, to rounding."""
        steps = self.times.diff()
        return bool((steps - steps.mean()).abs().max() <= EQUAL_STEPS * steps.mean())

    @property
    def step(self) -> float:
        """The step in time, where all of them are equal."""
        if not self.is_uniform:
            steps = ", ".join(f"{step:g}" for step in self.times.diff()[:5].tolist())
            raise ValueError(
                f"the steps in time differ ({steps}, …), and a map over one step needs equal ones; "
                "select times that have them (select_times), or train with lead times."
            )
        return float(self.times[-1] - self.times[0]) / (len(self.times) - 1)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: Index) -> "Trajectories": ...
    def __getitem__(self, index: int | Index) -> "Tensor | Trajectories":
        at = as_index(index)
        if isinstance(at, int):
            return self.states[at]
        parameters = None if self.parameters is None else self.parameters[at]
        return replace(self, states=self.states[at], parameters=parameters)

    def __iter__(self) -> Iterator[Tensor]:
        """One sample after the other."""
        return iter(self.states)

    def split(self, *counts: int, seed: int | None = 0) -> "tuple[Trajectories, ...]":
        """So many samples each, drawn without repetition by `seed`; None: in their order."""
        return tuple(self[numbers] for numbers in split_numbers(len(self), counts, seed))

    def blocks(self, size: int) -> "Iterator[Trajectories]":
        """All samples, `size` at a time."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def to(self, device: torch.device | str) -> "Trajectories":
        """States and parameters on `device`; the times stay on the CPU."""
        parameters = None if self.parameters is None else self.parameters.to(device)
        return replace(self, states=self.states.to(device), parameters=parameters)

    def at(self, i: int) -> Float[Tensor, "sample channel *space"]:
        """The states at the i-th time."""
        return self.states[:, self._entry(i)]

    def select_times(self, indices: slice | Sequence[int]) -> "Trajectories":
        """The snapshots of these numbers, in order: `select_times(slice(0, None, 2))`."""
        if not isinstance(indices, slice):
            indices = [self._entry(i) for i in indices]
        return replace(self, states=self.states[:, indices], times=self.times[indices])

    def pairs(self, leads: int | Collection[int] | None = None) -> Int[Tensor, "pair 2"]:
        """Numbers (i, j) of all pairs of times with j − i one of `leads`, each once.

        `leads` are in steps. None: 1, 2, … to the end, so every pair i < j. A lead of 0 pairs each
        time with itself.
        """
        return pair_times(len(self.times), leads)

    def lead_times(self, pairs: Int[Tensor, "pair 2"]) -> Float[Tensor, " pair"]:
        """The time between the snapshots of each pair."""
        return self.times[pairs[:, 1]] - self.times[pairs[:, 0]]

    def as_fields(self, i: int = 0, j: int = -1) -> Fields:
        """The map from the i-th time to the j-th, as pairs of input and output."""
        return Fields(
            self.at(i), self.at(j), self.grid, input_names=self.names, output_names=self.names
        )

    def every_state(self) -> Fields:
        """Each state as an input and as its own output: what scaling and range are taken of."""
        states = self.states.flatten(0, 1)
        return Fields(states, states, self.grid)

    def resampled(self, *shape: int) -> "Trajectories":
        """The same functions on a grid of another `shape`, as `Fields.resampled`."""
        there = self.every_state().resampled(*shape)
        states = there.inputs.unflatten(0, self.states.shape[:2])
        return replace(self, states=states, grid=there.grid)

    def _entry(self, i: int) -> int:
        """The number of a snapshot, counted from the front."""
        n = len(self.times)
        if not -n <= i < n:
            raise ValueError(f"there is no time {i}, only {n}; use 0 to {n - 1}, or −{n} to −1.")
        return operator.index(i) % n

    def _check_shapes(self) -> None:
        shape, n = tuple(self.states.shape), len(self.times)
        if self.states.ndim < 4 or shape[3:] != self.grid.shape or shape[1] != n:
            raise ValueError(
                f"states of shape {shape} do not fit {n} times on a grid of shape "
                f"{self.grid.shape}; give (sample, time, channel, *grid.shape)."
            )
        if 0 in shape:
            raise ValueError(f"states of shape {shape} are empty; give samples.")
        if self.names and len(self.names) != shape[2]:
            raise ValueError(
                f"{len(self.names)} names for {shape[2]} channels; give one per channel."
            )
        if self.parameters is None:
            if self.parameter_names:
                raise ValueError("parameter_names without parameters; give both, or neither.")
            return
        found = tuple(self.parameters.shape)
        if len(found) != 2 or found[0] != shape[0] or found[1] == 0:
            raise ValueError(
                f"parameters of shape {found} do not fit {shape[0]} trajectories; give (sample, "
                "number), one row per trajectory."
            )
        if self.parameter_names and len(self.parameter_names) != found[1]:
            raise ValueError(
                f"{len(self.parameter_names)} parameter_names for {found[1]} parameters; give one "
                "per number."
            )

    def _check_finite(self) -> None:
        for what, values in (("states", self.states), ("parameters", self.parameters)):
            if values is None or values.isfinite().all():
                continue
            bad = (~values.isfinite()).flatten(1).any(1)
            raise ValueError(
                f"{what} are NaN or infinite in {int(bad.sum())} of {len(bad)} trajectories, first "
                f"in number {int(bad.nonzero()[0])}; leave such trajectories out, or fill them."
            )


def as_times(times: Any) -> Float[Tensor, " time"]:
    """Two or more strictly increasing times, in float64 on the CPU."""
    times = as_real_tensor(times, "times").to("cpu", torch.float64)
    if times.ndim != 1:
        raise ValueError(f"times have the shape {tuple(times.shape)}; give one row of numbers.")
    if len(times) < 2:
        raise ValueError(
            f"{len(times)} time is no trajectory; give two or more, or pairs of fields (Fields)."
        )
    if not times.isfinite().all():
        raise ValueError("times hold NaN or infinite values; give finite numbers.")
    late = (times.diff() <= 0).nonzero().flatten()
    if len(late):
        i = int(late[0])
        raise ValueError(
            f"times do not increase: {float(times[i]):g} is followed by {float(times[i + 1]):g}; "
            "sort them, and give each once."
        )
    return times


def pair_times(n: int, leads: int | Collection[int] | None = None) -> Int[Tensor, "pair 2"]:
    """Numbers (i, j) of all pairs of `n` times with j − i one of `leads`, each once."""
    chosen = range(1, n) if leads is None else [leads] if isinstance(leads, int) else sorted(leads)
    if not chosen or len(set(chosen)) < len(chosen) or not 0 <= chosen[0] <= chosen[-1] < n:
        raise ValueError(
            f"leads {list(chosen)} do not fit {n} times; give different numbers of steps, "
            f"0 to {n - 1}."
        )
    return torch.tensor([(i, i + lead) for lead in chosen for i in range(n - lead)])
