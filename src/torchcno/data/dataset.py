"""Pairs of fields for training and evaluation."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data import files
from torchcno.data.generate import Progress, make_file
from torchcno.data.samples import Samples
from torchcno.grids import Grid
from torchcno.problems.problem import Problem, Resolution
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
    def fit(cls, fields: Fields) -> "Normalization":
        """The constants of a training set."""
        (a, b), (c, d) = fields.inputs.aminmax(), fields.outputs.aminmax()
        return cls(a.item(), b.item(), c.item(), d.item())

    @classmethod
    def identity(cls) -> "Normalization":
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


def load(
    problem: Problem,
    split: str,
    *,
    samples: int | None = None,
    resolution: Resolution | None = None,
    seed: int = 0,
    **reading: Any,
) -> Fields:
    """The fields of a split, by `load_samples`, whose other arguments are `reading`.

    `samples` and `resolution` are the paper's unless given; fields are solved for the resolution,
    not resampled to it.
    """
    return load_samples(Samples.of(problem, split, resolution, seed, samples), **reading)


def load_samples(
    samples: Samples,
    folder: Path | str | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Fields:
    """The samples from the data folder, verified; made there, on `device`, if missing.

    The data folder is `folder`, else $TORCHCNO_DATA, else a cache folder.
    """
    home = home_folder(data_folder(folder), samples)
    path = make_file(samples, home, device=device, progress=progress)
    (inputs, outputs), grid = files.read(path, samples.count)
    return Fields(torch.from_numpy(inputs), torch.from_numpy(outputs), grid)


def data_folder(folder: Path | str | None = None) -> Path:
    """Where data files lie: `folder`, else $TORCHCNO_DATA, else a cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or os.environ.get("TORCHCNO_DATA") or Path(caches) / "torchcno").expanduser()


def home_folder(folder: Path, wanted: Samples) -> Path:
    """`folder`, or where in it samples lie whose file name is taken or left to others.

    The plain name `<problem>-<split>-<resolution>.nc` is for the problem's own constants and the
    seed 0, unless the user has put other data there. Any other recipe has its own folder, so that
    one is never taken for another. A file by another version of the problem's recipe keeps the
    plain name until the user decides: `generate` refuses it, and says what to do.
    """
    path = folder / files.file_name(wanted)
    is_home = wanted.is_default
    if path.exists():
        there = files.read_header(path).identity
        is_outdated = there["recipe_version"] != wanted.problem.version
        is_home = there == wanted.identity or (is_home and is_outdated)
    if is_home:
        return folder
    constants = [asdict(wanted.problem), wanted.seed]
    if wanted.problem.version > 1:  # the first had no number: its folders keep their names
        constants.append(wanted.problem.version)
    text = json.dumps(constants, sort_keys=True).encode()
    digest = hashlib.blake2b(text, digest_size=4).hexdigest()
    return folder / f"{wanted.problem.name}-{digest}"
