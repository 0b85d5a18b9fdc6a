"""The fields of a problem's splits, from the data folder."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.data import files
from torchcno.data.fields import Fields
from torchcno.data.generate import Progress, make_file
from torchcno.data.samples import Samples
from torchcno.data.trajectories import Trajectories
from torchcno.grids import Grid
from torchcno.problems.problem import Problem, Resolution


def load(
    problem: Problem,
    split: str,
    *,
    samples: int | None = None,
    resolution: Resolution | None = None,
    seed: int = 0,
    **reading: Any,
) -> Fields:
    """The fields of a split, by `read_samples`, whose other arguments are `reading`.

    `samples` and `resolution` are the paper's unless given; fields are solved for the resolution,
    not resampled to it.
    """
    wanted = Samples.of(problem, split, resolution, seed, samples)
    (inputs, outputs), grid = read_samples(wanted, **reading)
    return Fields(inputs, outputs, grid)


def load_trajectories(
    problem: Problem,
    split: str,
    times: Sequence[float],
    *,
    samples: int | None = None,
    resolution: Resolution | None = None,
    seed: int = 0,
    **reading: Any,
) -> Trajectories:
    """The trajectories of a split at `times`, by `read_samples`.

    As `load`: sample i begins where the i-th pair of `load` does.

    >>> times = [0.1 * i for i in range(11)]
    >>> train = load_trajectories(NavierStokes(components="uv"), "train", times)
    """
    wanted = Samples.of(problem, split, resolution, seed, samples, times)
    (states,), grid = read_samples(wanted, **reading)
    return Trajectories(states, torch.tensor(wanted.times, dtype=torch.float64), grid)


def read_samples(
    samples: Samples,
    folder: Path | str | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> tuple[tuple[Tensor, ...], Grid]:
    """The arrays of the samples from the data folder, verified, and their grid.

    What is missing is made there, on `device`. The data folder is `folder`, else $TORCHCNO_DATA,
    else a cache folder.
    """
    home = home_folder(data_folder(folder), samples)
    path = make_file(samples, home, device=device, progress=progress)
    arrays, grid = files.read(path, samples.count)
    return tuple(map(torch.from_numpy, arrays)), grid


def data_folder(folder: Path | str | None = None) -> Path:
    """Where data files lie: `folder`, else $TORCHCNO_DATA, else a cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder or os.environ.get("TORCHCNO_DATA") or Path(caches) / "torchcno").expanduser()


def holds_data(folder: Path, problem: str) -> bool:
    """Whether `folder` is a data folder: whether it has data of the problem, or the beginnings."""
    names = (f"{problem}-*.nc", f".{problem}-*.partial")
    patterns = [f"{home}{name}" for home in ("", f"{problem}-*/") for name in names]
    return any(True for pattern in patterns for _ in folder.expanduser().glob(pattern))


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
    if wanted.times:
        constants.append(wanted.times)
    text = json.dumps(constants, sort_keys=True).encode()
    digest = hashlib.blake2b(text, digest_size=4).hexdigest()
    return folder / f"{wanted.problem.name}-{digest}"
