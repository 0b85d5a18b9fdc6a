"""Pairs of fields for training and evaluation."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.grids import Grid
from torchcno.spectral import resample


@dataclass(frozen=True)
class Fields:
    """Input and output fields of a solution operator on one grid, in physical values.

    A map-style dataset: `fields[i]` is the pair (input, output) of sample i, or of a batch of indices.
    """

    inputs: Float[Tensor, "sample in_channel *space"]
    outputs: Float[Tensor, "sample out_channel *space"]
    grid: Grid

    def __post_init__(self) -> None:
        shapes = tuple(self.inputs.shape), tuple(self.outputs.shape)
        if shapes[0][0] != shapes[1][0] or any(s[2:] != self.grid.shape for s in shapes):
            raise ValueError(
                f"inputs {shapes[0]} and outputs {shapes[1]} do not pair up on a grid of shape "
                f"{self.grid.shape}; give (sample, channel, *grid.shape), as many inputs as outputs."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int | slice | Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.outputs[index]

    def to(self, device: torch.device | str) -> "Fields":
        """The whole set on `device`."""
        return Fields(self.inputs.to(device), self.outputs.to(device), self.grid)

    def subset(self, n: int) -> "Fields":
        """The first `n` samples."""
        if not 0 < n <= len(self):
            raise ValueError(f"cannot take {n} of {len(self)} samples; use 1 to {len(self)}.")
        return Fields(self.inputs[:n], self.outputs[:n], self.grid)

    def resampled(self, resolution: int) -> "Fields":
        """The same functions on a grid of `resolution` points an axis, Eq. (A.4): band-limited."""
        shape = (resolution,) * len(self.grid.shape)
        # In float64: float32 products may be rounded to TF32 on a GPU.
        inputs, outputs = (
            resample(u.double(), shape, self.grid.layout).to(u.dtype)
            for u in (self.inputs, self.outputs)
        )
        return Fields(inputs, outputs, self.grid.resized(*shape))


@dataclass(frozen=True)
class Normalization:
    """Fields scaled to [0, 1] by the extremes of the training set, for every split:

        ũ = (u − min u) / (max u − min u)

    One pair of constants for inputs and one for outputs, over all samples, channels and points.
    """

    input_min: float
    input_max: float
    output_min: float
    output_max: float

    def __post_init__(self) -> None:
        for what, low, high in (
            ("input", self.input_min, self.input_max),
            ("output", self.output_min, self.output_max),
        ):
            if not low < high:  # also true of NaN
                raise ValueError(
                    f"{what}s from {low} to {high} cannot be scaled to [0, 1]; "
                    "check the data for constant or non-finite fields."
                )

    @classmethod
    def fit(cls, fields: Fields) -> Self:
        """The constants of a training set."""
        (a, b), (c, d) = fields.inputs.aminmax(), fields.outputs.aminmax()
        return cls(a.item(), b.item(), c.item(), d.item())

    @classmethod
    def identity(cls) -> Self:
        """No scaling, for problems whose fields are taken as they are."""
        return cls(0.0, 1.0, 0.0, 1.0)

    def normalize_inputs(self, u: Tensor) -> Tensor:
        """Physical inputs to what a network sees."""
        return (u - self.input_min) / (self.input_max - self.input_min)

    def normalize_outputs(self, v: Tensor) -> Tensor:
        """Physical outputs to what a network is trained on."""
        return (v - self.output_min) / (self.output_max - self.output_min)

    def denormalize_outputs(self, v: Tensor) -> Tensor:
        """A network's outputs back to physical values."""
        return self.output_min + (self.output_max - self.output_min) * v
