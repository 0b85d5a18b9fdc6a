"""A user's fields as a problem: no equation is known, but inputs, outputs and where they came from.

A run on them keeps in its configuration how to open them again and what they were, by hash. Fields
that were in memory alone are kept in the run's folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from torch import Generator, Tensor

from torchcno.data.fields import Fields
from torchcno.data.opening import open_stored
from torchcno.data.stored import StoredFields, in_memory
from torchcno.data.trajectories import Trajectories
from torchcno.data.trajectory_files import open_trajectories
from torchcno.evaluation.resolution import on_grid
from torchcno.grids import Grid
from torchcno.problems.problem import SPLITS, Problem, Resolution
from torchcno.runs.plain import to_plain
from torchcno.selection import select
from torchcno.training.augmentation import AUGMENTATIONS, contradiction
from torchcno.training.checkpoint import load_tensors, save_tensors
from torchcno.training.windows import parameter_names

OwnSet = Fields | StoredFields | Trajectories
DIVIDED = ("train", "val", "test")  # among which a file is divided
KEPT_BYTES = 2**29  # of fields in memory that a run keeps a copy of
BLOCK = 64  # samples that are hashed at a time


@dataclass(frozen=True)
class OwnData(Problem):
    """Fields of the user: u ↦ v by samples alone."""

    name: ClassVar[str] = "own data"
    ood: ClassVar[Mapping[str, Any]] = {}
    square: ClassVar[bool] = False

    label: str = "own data"  # what the user calls them
    domain: Grid = Grid((1,), "cell-centred")  # noqa: RUF009
    in_channels: int = 1
    out_channels: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)  # samples per split
    hashes: Mapping[str, str] = field(default_factory=dict)  # of the values of each split
    times: tuple[float, ...] = ()  # of trajectories; empty: pairs of fields
    parameters: tuple[str, ...] = ()  # numbers of each trajectory, by name
    # How to open them again: {"kept": file of the run's folder}, or {"file": …, "inputs": …, …}.
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not {"train", "val"} <= set(self.counts):
            raise ValueError("own data come from files or from Python; use --data FILE.")

    @classmethod
    def of(
        cls,
        fields: Mapping[str, OwnSet],
        label: str,
        source: Mapping[str, Any],
    ) -> "OwnData":
        """What the `fields` by split are."""
        train = fields["train"]
        return cls(
            label=label,
            domain=train.grid,
            **describe_set(train),
            counts={split: len(one) for split, one in fields.items()},
            hashes={split: hash_fields(one) for split, one in fields.items()},
            source=source,
        )

    @property
    def channels(self) -> tuple[int, int]:
        """How many input and output channels there are."""
        return self.in_channels, self.out_channels

    @property
    def symmetries(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those that the grid allows; `cno audit --symmetries` tells which the data have."""
        names = (name for name in AUGMENTATIONS if name != "none")
        return tuple(n for n in names if not contradiction(n, self.domain, self.channels))

    @property
    def samples(self) -> Mapping[str, int]:  # type: ignore[override]
        """How many samples each split has."""
        return self.counts

    @property
    def layout(self) -> Any:  # type: ignore[override]
        """Where the samples lie."""
        return self.domain.layout

    @property
    def extent(self) -> tuple[tuple[float, float], ...]:  # type: ignore[override]
        """The box."""
        return self.domain.extent

    @property
    def resolution(self) -> int:
        """Points along the last axis."""
        return self.domain.shape[-1]

    @property
    def boundary(self) -> str:  # type: ignore[override]
        """How the fields meet the edge, as far as the grid says."""
        return "periodic" if self.domain.layout == "periodic" else "zero"

    def grid(self, resolution: Resolution) -> Grid:
        """The grid of so many points along the last axis, or of so many per axis."""
        if isinstance(resolution, tuple):
            return self.domain.resized(*resolution)
        shape = self.domain.shape
        return self.domain.resized(*(round(resolution * n / shape[-1]) for n in shape))

    def load(self, split: str, samples: int | None, resolution: int) -> Fields | Trajectories:
        """`open` a split, in memory, on `resolution` points along the last axis."""
        found = self.open(split, samples)
        if isinstance(found, Trajectories):
            return on_grid(found, resolution)
        return on_grid(in_memory(found), resolution)

    def open(self, split: str, samples: int | None = None) -> OwnSet:
        """The fields of a split, where they lie, if they are those that the run began with."""
        select(dict.fromkeys(SPLITS), split, "split")
        if split not in self.counts:
            raise ValueError(f"{self.label} has no {split} samples; use {', '.join(self.counts)}.")
        opened = open_splits(self)[split]
        found = hash_fields(opened) if split in self.hashes else ""
        if self.hashes.get(split, "") != found:
            raise ValueError(
                f"the {split} samples of {self.label} are not those that the run began with; bring "
                f"the data back ({describe_source(self.source)}), or train anew on the new ones."
            )
        if samples is not None and samples > len(opened):
            raise ValueError(
                f"{split} of {self.label} has {len(opened)} samples, not {samples}; ask for fewer."
            )
        if samples is not None and samples < 1:
            raise ValueError(f"samples is {samples}; use 1 or more.")
        return opened[:samples]

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> NoReturn:
        """No: nobody knows how the inputs were drawn."""
        raise ValueError(f"{self.label} are fields without a solver; use the samples there are.")

    def solve(self, inputs: Tensor) -> NoReturn:
        """No: nobody knows the equation."""
        raise ValueError(f"{self.label} are fields without a solver; use the samples there are.")


def present_splits(problem: Problem, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The `wanted` splits that there are samples of; the validation set where there are none."""
    if not isinstance(problem, OwnData):
        return wanted
    return tuple(split for split in wanted if split in problem.counts) or ("val",)


def describe_set(fields: OwnSet) -> dict[str, Any]:
    """The fields of `OwnData` that a training set decides: channels, times and parameters."""
    if isinstance(fields, Trajectories):
        return {
            "in_channels": fields.channels,
            "out_channels": fields.channels,
            "times": tuple(fields.times.tolist()),
            "parameters": parameter_names(fields),
        }
    return {"in_channels": fields.channels[0], "out_channels": fields.channels[1]}


def tensors_of(fields: Fields | Trajectories) -> dict[str, Tensor]:
    """What fields or trajectories consist of, by name."""
    names = ("inputs", "outputs", "mask")
    if isinstance(fields, Trajectories):
        names = ("states", "times", "parameters")
    parts = {name: getattr(fields, name) for name in names}
    return {name: tensor for name, tensor in parts.items() if tensor is not None}


def hash_fields(fields: OwnSet) -> str:
    """The SHA-256 of grid, values and mask, block by block.

    Stored fields are read in the order of their file, so that the order of a split does not count.
    """
    digest = hashlib.sha256(json.dumps(to_plain(fields.grid)).encode())
    for block in fields.blocks(BLOCK):
        for tensor in tensors_of(block).values():
            if tensor is not None:
                digest.update(tensor.to("cpu", torch.float64).contiguous().numpy().tobytes())
    return digest.hexdigest()


def keep_fields(fields: Mapping[str, OwnSet], path: Path) -> dict[str, Any]:
    """Write fields that are in memory alone to `path`, if they are not too large; their source."""
    tensors: dict[str, Tensor] = {}
    for split, one in fields.items():
        if isinstance(one, StoredFields):
            return {}
        tensors |= {f"{split}/{part}": tensor for part, tensor in tensors_of(one).items()}
    if sum(tensor.nbytes for tensor in tensors.values()) > KEPT_BYTES:
        return {}
    save_tensors(path, tensors)
    return {"kept": str(path.absolute())}


def open_splits(data: OwnData) -> Mapping[str, OwnSet]:
    """The fields of all splits, from where they came."""
    source = dict(data.source)
    if "kept" in source:
        return _read_kept(Path(source["kept"]), data)
    if "files" in source:
        return _open_files(**source)
    raise ValueError(
        f"{data.label} was in memory and too large to keep a copy of; do this in Python with the "
        "fields, or save them to a file and train with Fields.open(FILE)."
    )


def _read_kept(path: Path, data: OwnData) -> Mapping[str, OwnSet]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there any more; bring the data of the run back.")
    tensors, _ = load_tensors(path)
    splits, grid = dict.fromkeys(name.partition("/")[0] for name in tensors), data.domain
    if data.times:
        return {
            split: Trajectories(
                tensors[f"{split}/states"],
                tensors[f"{split}/times"],
                grid,
                parameters=tensors.get(f"{split}/parameters"),
                parameter_names=data.parameters,
            )
            for split in splits
        }
    return {
        split: Fields(
            tensors[f"{split}/inputs"],
            tensors[f"{split}/outputs"],
            grid,
            tensors.get(f"{split}/mask"),
        )
        for split in splits
    }


def describe_files(
    files: Mapping[str, Path],
    how: Mapping[str, Any],
    split: Sequence[int] = (),
    split_seed: int = 0,
    label: str = "own data",
) -> OwnData:
    """What lies in `files` by split, opened by `how`; their hashes are left out.

    The file of `train` is divided among train, val and test, but for those that have files of their
    own: by the numbers of samples `split`, else a tenth for each but the first.
    """
    source: dict[str, Any] = {
        "files": {name: str(Path(path).expanduser().absolute()) for name, path in files.items()},
        "how": dict(how),
        "split": list(split),
        "split_seed": split_seed,
    }
    found = _open_files(**source)
    train = found["train"]
    source["how"] = {**how, "layout": list(train.grid.layouts)}  # guessed once, where it was
    parts = [name for name in DIVIDED if name == "train" or name not in files]
    source["split"] = [len(found[name]) for name in parts if name in found]
    for name, one in found.items():
        if (one.channels, one.grid) != (train.channels, train.grid):
            raise ValueError(
                f"{files.get(name, name)} has {one.channels} channels on {one.grid}, and "
                f"{files['train']} {train.channels} on {train.grid}; give files of one kind."
            )
    return OwnData(
        label=label,
        domain=train.grid,
        **describe_set(train),
        counts={name: len(one) for name, one in found.items()},
        source=source,
    )


def _open_files(
    files: Mapping[str, str], how: Mapping[str, Any], split: Sequence[int], split_seed: int
) -> Mapping[str, Any]:
    """The splits of files, by name: fields, or trajectories where `how` names their `time`."""
    for path in files.values():
        if not Path(path).exists():
            raise FileNotFoundError(f"{path} does not exist; give the path of your data.")
    read: Callable[..., Any] = open_trajectories if "time" in how else open_stored
    opened = {name: read(path, **how) for name, path in files.items()}
    divided = [name for name in DIVIDED if name == "train" or name not in files]
    whole = opened["train"]
    counts = list(split) or _usual_split(len(whole), len(divided))
    if len(counts) > len(divided) or len(counts) < 1 + ("val" in divided):
        raise ValueError(
            f"--split {','.join(map(str, counts))} is for {', '.join(divided)}; give a number of "
            "samples for each."
        )
    parts = whole.split(*counts, seed=split_seed)
    return {**opened, **dict(zip(divided, parts, strict=False))}


def _usual_split(samples: int, parts: int) -> list[int]:
    """A tenth of the samples for each part but the first, and one at least."""
    tenth = max(1, samples // 10)
    if samples <= tenth * (parts - 1):
        raise ValueError(f"{samples} samples cannot be divided into {parts} parts; give more.")
    return [samples - tenth * (parts - 1), *[tenth] * (parts - 1)]


def reading_of(problem: Problem) -> Mapping[str, Any] | None:
    """How the files of a run were opened; None where they were not the user's."""
    return problem.source.get("how") if isinstance(problem, OwnData) else None


def describe_source(source: Mapping[str, Any]) -> str:
    """Where fields came from, in a few words."""
    files = source.get("files") or {"train": source.get("kept") or "in memory"}
    return ", ".join(dict.fromkeys(files.values()))


def moved(data: OwnData, folder: Path) -> OwnData:
    """The same data, whose copy lies in `folder` now."""
    kept = data.source.get("kept")
    here = folder / Path(kept).name if kept else None
    if here is None or not here.exists():
        return data
    return replace(data, source={**data.source, "kept": str(here.absolute())})
