"""Samples of functions with their grid."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.arrays import as_real_tensor
from torchcno.grids import Grid
from torchcno.metrics import Mask
from torchcno.spectral import resample

if TYPE_CHECKING:
    from torchcno.data.opening import Source

Index = slice | Tensor | Sequence[int]


@dataclass(frozen=True)
class Fields:
    """Input and output fields of a solution operator on one grid, in physical values.

    `fields[3]` is the pair (input, output) of one sample, as of any map-style dataset of PyTorch;
    `fields[:80]` and `fields[[2, 5]]` are `Fields`, and `inputs, outputs = fields` unpacks them.
    Arrays of NumPy, of any byte order, strides and real type, are taken as tensors are.

    >>> fields = Fields.open("flow.nc", inputs=["a", "nu"], outputs="u", layout="periodic")
    >>> train, val, test = fields.split(800, 100, 100, seed=0)
    """

    inputs: Float[Tensor, "sample in_channel *space"]
    outputs: Float[Tensor, "sample out_channel *space"]
    grid: Grid
    # Where outputs count: True outside an obstacle, say. Of the outputs' shape, or one that
    # extends to it; None: everywhere.
    mask: Any = None
    input_names: tuple[str, ...] = ()  # of the channels, where they have names
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs"):
            object.__setattr__(self, name, as_real_tensor(getattr(self, name), name))
        shapes = tuple(self.inputs.shape), tuple(self.outputs.shape)
        if shapes[0][:1] != shapes[1][:1] or any(s[2:] != self.grid.shape for s in shapes):
            raise ValueError(
                f"inputs {shapes[0]} and outputs {shapes[1]} do not pair up on a grid of shape "
                f"{self.grid.shape}; give (sample, channel, *grid.shape), equally many of both."
            )
        if 0 in (*shapes[0], *shapes[1]):
            raise ValueError(f"inputs {shapes[0]} and outputs {shapes[1]} are empty; give samples.")
        if self.mask is not None:
            object.__setattr__(self, "mask", self._extended_mask())
        for side, names in (("input", self.input_names), ("output", self.output_names)):
            channels = getattr(self, f"{side}s").shape[1]
            if names and len(names) != channels:
                raise ValueError(
                    f"{len(names)} {side}_names for {channels} {side} channels; give one a channel."
                )

    @classmethod
    def open(cls, source: "Source", **how: Any) -> "Fields":
        """Pairs from files, arrays or datasets, read into memory.

        `source` is a NetCDF (3 or 4), Zarr, HDF5, .npz or .npy file, a Dataset of xarray, a mapping
        of names to arrays, a pair (inputs, outputs) of arrays, tensors, DataArrays or .npy files,
        or a `torch.utils.data.Dataset` or `DataLoader` of pairs. `how` are the further arguments of
        `torchcno.data.opening.open_stored`: which variables are `inputs` and `outputs`, the
        `layout`, and so on. What does not fit into memory is refused: `open_stored` streams it.

        >>> Fields.open("flow.nc", inputs=["a", "nu"], outputs="u", layout="periodic")
        >>> Fields.open((x, y), layout="periodic")
        >>> Fields.open("2D_CFD.hdf5", format="pdebench", times=(0, -1))
        """
        from torchcno.data.opening import open_stored

        return open_stored(source, **how).load()

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def channels(self) -> tuple[int, int]:
        """How many there are of inputs and of outputs."""
        return self.inputs.shape[1], self.outputs.shape[1]

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]: ...
    @overload
    def __getitem__(self, index: Index) -> "Fields": ...
    def __getitem__(self, index: int | Index) -> "tuple[Tensor, Tensor] | Fields":
        at = as_index(index)
        if isinstance(at, int):
            return self.inputs[at], self.outputs[at]
        mask = None if self.mask is None else self.mask[at]
        return replace(self, inputs=self.inputs[at], outputs=self.outputs[at], mask=mask)

    def __iter__(self) -> Iterator[Tensor]:
        """Inputs and outputs, so that `inputs, outputs = fields`."""
        return iter((self.inputs, self.outputs))

    def split(self, *counts: int, seed: int | None = 0) -> "tuple[Fields, ...]":
        """So many samples each, drawn without repetition by `seed`; None: in their order.

        >>> train, val, test = fields.split(800, 100, 100, seed=0)
        """
        return tuple(self[numbers] for numbers in split_numbers(len(self), counts, seed))

    def blocks(self, size: int) -> "Iterator[Fields]":
        """All samples, `size` at a time."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def to(self, device: torch.device | str) -> "Fields":
        """The whole set on `device`."""
        mask = None if self.mask is None else self.mask.to(device)
        return replace(
            self, inputs=self.inputs.to(device), outputs=self.outputs.to(device), mask=mask
        )

    def counts(self, mask: Mask | None = None) -> Tensor | None:
        """Where outputs count, by the fields' own mask and that of their inputs; None: everywhere.

        Of the outputs' shape, or one that extends to it.
        """
        of_inputs = mask and mask(self.inputs)
        if self.mask is None or of_inputs is None:
            return self.mask if of_inputs is None else of_inputs
        both: Tensor = self.mask & of_inputs
        return both

    def resampled(self, *shape: int) -> "Fields":
        """The same functions on a grid of another `shape`, Eq. (A.4): band-limited.

        One number of points for all axes, or one per axis.
        """
        axes = len(self.grid.shape)
        if len(shape) not in (1, axes):
            raise ValueError(
                f"{len(shape)} numbers of points do not fit a grid of shape {self.grid.shape}; "
                f"give one for all axes, or {axes}."
            )
        if self.mask is not None:
            raise ValueError(
                "fields with a mask are no band-limited functions; make them on the other grid."
            )
        grid = self.grid.resized(*(shape * axes if len(shape) == 1 else shape))
        # In float64: float32 products may be rounded to TF32 on a GPU.
        inputs, outputs = (
            resample(u.double(), grid.shape, grid.layout).to(u.dtype)
            for u in (self.inputs, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs, grid=grid)

    def _extended_mask(self) -> Tensor:
        mask = torch.as_tensor(
            np.asarray(self.mask.cpu() if isinstance(self.mask, Tensor) else self.mask)
        )
        if mask.dtype != torch.bool:
            raise ValueError(f"mask holds {mask.dtype}; give True where outputs count, else False.")
        try:
            mask = mask.to(self.outputs.device).expand_as(self.outputs)
        except RuntimeError as error:
            raise ValueError(
                f"a mask of shape {tuple(mask.shape)} does not extend to outputs of "
                f"{tuple(self.outputs.shape)}; give one value per point, or per sample and point."
            ) from error
        if not mask.flatten(1).any(1).all():
            raise ValueError("the mask leaves nothing of a sample; leave that sample out.")
        return mask


def as_index(index: int | Index) -> int | slice | Tensor:
    """An index of samples as tensors take it: of one sample a number, also one of NumPy."""
    if isinstance(index, slice):
        return index
    if hasattr(index, "__index__") and not (isinstance(index, Tensor) and index.ndim):
        return operator.index(index)
    return torch.as_tensor(np.asarray(index))


def split_numbers(n: int, counts: Sequence[int], seed: int | None) -> list[Tensor]:
    """The numbers of `counts` samples each, of n, without repetition."""
    bad = [c for c in counts if isinstance(c, bool) or not hasattr(c, "__index__") or c < 1]
    if bad or not counts:
        raise ValueError(f"split into {tuple(counts)}; give whole numbers of samples, 1 or more.")
    if sum(counts) > n:
        raise ValueError(f"{sum(counts)} samples are asked for, and there are {n}; ask for fewer.")
    order = torch.arange(n)
    if seed is not None:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order[: sum(counts)].split(list(counts)))
