"""Reader of the Representative PDE Benchmarks' published files, in their authors' HDF5 layout.

One group a sample with the datasets `input` and `output`; in-distribution splits are stretches of
one file, and out-of-distribution samples begin another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.disk import refuse_bomb
from torchcno.problems.problem import Problem
from torchcno.selection import select


@dataclass(frozen=True)
class Archive:
    """How the files of one problem are laid out."""

    name: str  # of the files, less their endings
    train: int  # samples from the first on
    val_start: int  # up to `test_start`
    test_start: int
    test: int  # samples, as many of them out of distribution
    group: str = "Sample_{}"
    is_normalized: bool = False  # whether the stored values are scaled already
    ood_name: str = ""  # of the file out of distribution, where it is another

    def file(self, split: str) -> str:
        """The name of the file that holds a split."""
        return f"{self.ood_name or self.name}_OUT.h5" if split == "ood" else f"{self.name}_IN.h5"

    def samples(self, split: str) -> range:
        """The numbers of a split's samples in their file."""
        splits = {
            "train": range(self.train),
            "val": range(self.val_start, self.test_start),
            "test": range(self.test_start, self.test_start + self.test),
            "ood": range(self.test),
        }
        return select(splits, split, "split")


# fmt: off
ARCHIVES: dict[str, Archive] = {
    #                                   files                   train val   test  its samples
    "poisson":                 Archive("PoissonData_64x64",     1024, 1024, 1152, 256),
    "wave":                    Archive("WaveData_64x64",        512,  1024, 1152, 256,
                                       group="Sample_{}_t_5"),
    "smooth-transport":        Archive("ContTranslation_64x64", 512,  512,  768,  256,
                                       is_normalized=True),
    "discontinuous-transport": Archive("DiscTranslation_64x64", 512,  512,  768,  256,
                                       is_normalized=True),
    "allen-cahn":              Archive("AllenCahn_64x64",       256,  256,  384,  128),
    "navier-stokes":           Archive("NavierStokes_64x64",    750,  768,  896,  128,
                                       ood_name="NavierStokes_128x128"),
    "darcy":                   Archive("Darcy_64x64",           256,  256,  384,  128,
                                       group="sample_{}"),
    "airfoil":                 Archive("Airfoil_128x128",       750,  750,  878,  128),
}
# fmt: on
# Names of stored constants: least and largest input, least and largest output.
CONSTANTS = (
    ("min_inp", "max_inp", "min_out", "max_out"),
    ("min_u0", "max_u0", "min_u", "max_u"),
)


def read_fields(problem: Problem, split: str, folder: Path | str) -> Fields:
    """A split of the authors' files in `folder`, at the problem's resolution.

    A file of another resolution (navier-stokes' out-of-distribution one) is band-limited to it.
    """
    archive = select(ARCHIVES, problem.name, "problem with published files")
    numbers = archive.samples(split)
    with opened(Path(folder) / archive.file(split)) as file:
        inputs, outputs = (
            torch.stack([read_field(file, f"{archive.group.format(i)}/{name}") for i in numbers])
            for name in ("input", "output")
        )
    grid = problem.grid(outputs.shape[-1])
    fields = Fields(inputs, outputs, grid)
    shape = problem.grid(problem.resolution).shape
    return fields if grid.shape == shape else fields.resampled(*shape)


def read_normalization(problem: Problem, folder: Path | str) -> Normalization:
    """The constants that scale the authors' data: stored, or of their training set."""
    archive = select(ARCHIVES, problem.name, "problem with published files")
    if archive.is_normalized or not problem.normalized:
        return Normalization.identity()
    with opened(Path(folder) / archive.file("train")) as file:
        for names in CONSTANTS:
            if all(name in file for name in names):
                return Normalization(*(read(file, name).item() for name in names))
    return Normalization.fit(read_fields(problem, "train", folder))


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """One of the authors' files."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; download it from the authors' collection into that folder."
        )
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise OSError(f"{path} is no readable HDF5 file ({error}); download it again.") from error
    with file:
        yield file


def read(file: h5py.File, key: str) -> NDArray[Any]:
    """The values under `key`."""
    try:
        refuse_bomb(Path(file.filename), Path(file.filename).stat().st_size, file[key].nbytes)
        return np.asarray(file[key])
    except KeyError as error:
        raise ValueError(
            f"{file.filename} has no {key!r}; its first keys are {', '.join(list(file)[:3])}. "
            "Is it the authors' file for this problem?"
        ) from error


def read_field(file: h5py.File, key: str) -> Tensor:
    """One sample's field (channel, y, x), float32; a single channel is stored without its axis."""
    field = torch.from_numpy(read(file, key).astype(np.float32))
    return field[None] if field.ndim == 2 else field
