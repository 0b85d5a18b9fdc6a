"""Samples of functions with their grid."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.grids import Grid
from torchcno.spectral import resample


@dataclass(frozen=True)
class Fields:
    """Input and output fields of a solution operator on one grid, in physical values.

    A map-style dataset: `fields[i]` is the pair (input, output) of sample i, or of many indices.
    """

    inputs: Float[Tensor, "sample in_channel *space"]
    outputs: Float[Tensor, "sample out_channel *space"]
    grid: Grid

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs"):
            fields = torch.as_tensor(getattr(self, name))  # arrays of NumPy will do
            if fields.is_complex():
                raise ValueError(f"{name} are complex; give real and imaginary part as channels.")
            object.__setattr__(self, name, fields)
        shapes = tuple(self.inputs.shape), tuple(self.outputs.shape)
        if shapes[0][:1] != shapes[1][:1] or any(s[2:] != self.grid.shape for s in shapes):
            raise ValueError(
                f"inputs {shapes[0]} and outputs {shapes[1]} do not pair up on a grid of shape "
                f"{self.grid.shape}; give (sample, channel, *grid.shape), equally many of both."
            )
        if 0 in (*shapes[0], *shapes[1]):
            raise ValueError(f"inputs {shapes[0]} and outputs {shapes[1]} are empty; give samples.")

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int | slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.outputs[index]

    def to(self, device: torch.device | str) -> "Fields":
        """The whole set on `device`."""
        return Fields(self.inputs.to(device), self.outputs.to(device), self.grid)

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
        grid = self.grid.resized(*(shape * axes if len(shape) == 1 else shape))
        # In float64: float32 products may be rounded to TF32 on a GPU.
        inputs, outputs = (
            resample(u.double(), grid.shape, grid.layout).to(u.dtype)
            for u in (self.inputs, self.outputs)
        )
        return Fields(inputs, outputs, grid)
