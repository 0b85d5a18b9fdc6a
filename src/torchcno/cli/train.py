"""`cno train`: one model on one problem, into a run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes

from torchcno.cli.arguments import (
    DEVICES,
    HELP,
    Fields,
    Names,
    Numbers,
    describe,
    leading_names,
    parse,
    read_numbers,
    read_times,
)

if TYPE_CHECKING:
    from torchcno.runs.config import RunConfig
    from torchcno.runs.own import OwnData

HARDWARE = {name: name for name in ("devices", "nodes", "strategy")} | {"device": "accelerator"}

ProblemName = Annotated[str | None, describe("problem to learn; `cno problems` lists them", "")]
ModelName = Annotated[str | None, describe("network that learns it, such as cno or fno", "")]


@dataclass(frozen=True)
class SharedOptions:
    """Data, folder and hardware of any run."""

    out: Annotated[Path | None, describe("new folder for the run", "", "FOLDER")] = None
    config: Annotated[
        Path | None,
        describe("take settings from this file, such as a run's config.yaml", "", "FILE"),
    ] = None
    preset: Annotated[
        str | None, describe("recipe, such as paper (as published) or best (ours)", "best")
    ] = None
    seed: Annotated[int | None, describe("seed of weights and of the samples' order", "0")] = None
    members: Annotated[
        int | None, describe("train this many networks together, to predict their mean", "1")
    ] = None
    resolution: Annotated[
        int | None, describe("points per axis of a benchmark", "the paper's number")
    ] = None
    data: Annotated[
        Path | None,
        describe("your file; for a benchmark, the folder of its files", "the cache folder"),
    ] = None
    times: Annotated[
        str | None,
        describe(
            "times of a benchmark's trajectories: 0:1:0.1; of your file: time steps of input and "
            "output: 0,-1 is first and last",
            "no times",
            "A:B:STEP|I,J",
        ),
    ] = None
    start: Annotated[
        Path | None,
        tyro.conf.arg(name="from"),
        describe("begin with the weights of this run", "", "RUN"),
    ] = None
    device: Annotated[
        str | None, describe("where to compute; auto takes a GPU if there is one", "auto", DEVICES)
    ] = None
    devices: Annotated[int | None, describe("GPUs per machine", "1")] = None
    nodes: Annotated[int | None, describe("machines", "1")] = None
    strategy: Annotated[
        str | None,
        describe("several GPUs: ddp copies weights, fsdp divides them", "ddp", "ddp|fsdp"),
    ] = None
    tensorboard: Annotated[bool, describe("also write curves for TensorBoard")] = False


@dataclass(frozen=True)
class FileOptions:
    """What a run on the user's own file needs to know of it."""

    inputs: Annotated[Names, describe("variables of your file that are given", "input")] = ()
    outputs: Annotated[Names, describe("variables of your file to predict", "output")] = ()
    layout: Annotated[
        Names,
        describe("where grid points lie: periodic, inclusive or cell-centred", "as the file says"),
    ] = ()
    mask: Annotated[
        str | None, describe("variable that is true where outputs count", "everywhere")
    ] = None
    time: Annotated[
        str | None,
        describe("axis of times of your file: learn its trajectories", "no trajectories", "NAME"),
    ] = None
    parameters: Annotated[
        Names, describe("variables with one number per trajectory, which the network is told", "")
    ] = ()
    sample: Annotated[str | None, describe("axis of the samples", "the first")] = None
    dimension: Annotated[int | None, describe("number of axes of space", "by their names")] = None
    format: Annotated[
        str | None, describe("format of your file, such as the-well", "by its ending")
    ] = None
    split: Annotated[Numbers, describe("samples for train,val,test", "8:1:1")] = ()
    split_seed: Annotated[int, describe("seed of the order before the split")] = 0
    val: Annotated[
        Path | None, describe("another file to validate on", "a part of --data", "FILE")
    ] = None
    test: Annotated[
        Path | None, describe("another file to test on", "a part of --data", "FILE")
    ] = None
    ood: Annotated[
        Path | None, describe("a file of unusual inputs, to test on as well", "", "FILE")
    ] = None
    name: Annotated[str | None, describe("what to call your data", "the file's name")] = None
    model: Annotated[str | None, describe("network for your data", "cno")] = None


@dataclass(frozen=True)
class RunOptions(FileOptions, SharedOptions):
    """Data, folder and hardware of the run."""

    def resolve(self, names: Sequence[str | None], fields: Mapping[str, Any]) -> RunConfig:
        """The run of the file, the `names` of problem and model, these options, and `fields`."""
        from torchcno.runs.config import RunConfig, read_tree, section

        if self.is_own:
            return self._resolve_own(names, fields)
        for option in dataclasses.fields(FileOptions):
            if getattr(self, option.name):
                flag = option.name.replace("_", "-")
                raise ValueError(f"--{flag} is for your own file; leave it out, or add --data.")
        tree = read_tree(self.config) if self.config else {}
        for key, name in zip(("problem", "model"), names, strict=False):
            named = section(tree, key)
            if name is not None and named.setdefault("name", name) != name:
                other = named["name"]
                raise ValueError(f"{self.config} is of {key} {other}, not {name}; leave one out.")
            tree[key] = named
        given = {k: v for k, v in vars(self).items() if not (v is None or v is False)}
        if "preset" in given and tree.get("preset", self.preset) != self.preset:
            raise ValueError(
                f"{self.config} is of preset {tree['preset']}, not {self.preset}; leave --preset "
                "out, or name PROBLEM MODEL in place of the file."
            )
        if "resolution" in given and tree.get("resolution", self.resolution) != self.resolution:
            # The file's network is of the file's grid: on another one it is made anew.
            tree["model"] = {k: v for k, v in section(tree, "model").items() if k != "size"}
        for key in ("preset", "seed", "members", "resolution", "data", "tensorboard"):
            if key in given:
                tree[key] = given[key]
        if self.times is not None:
            tree["times"] = list(read_times(self.times))
        for key, values in {**fields, "hardware": self.hardware}.items():
            tree[key] = {**section(tree, key), **values}
        return RunConfig.from_tree(tree)

    @property
    def hardware(self) -> dict[str, Any]:
        """The fields of `Hardware` that are given."""
        named = {field: getattr(self, option) for option, field in HARDWARE.items()}
        return {field: value for field, value in named.items() if value is not None}

    @property
    def is_own(self) -> bool:
        """Whether the data are the user's."""
        file = self.data is not None and (self.data.is_file() or self.data.suffix)
        return bool(self.inputs or self.outputs or self.time or file)

    def _resolve_own(self, names: Sequence[str | None], fields: Mapping[str, Any]) -> RunConfig:
        """The run on the user's file."""
        from torchcno.runs.config import RunConfig
        from torchcno.runs.plain import from_plain
        from torchcno.training import Hardware

        if self.config or any(names):
            word = "--config" if self.config else " ".join(filter(None, names))
            if self.time:
                raise ValueError(
                    f"--time is the axis of times of your file, and {word} is for a benchmark, "
                    "whose times are --times 0:1:0.1; leave one out."
                )
            raise ValueError(f"{word} is for a benchmark, --inputs for your file; leave one out.")
        if self.data is None:
            raise ValueError(
                "--inputs and --outputs are variables of a file; name it: --data FILE."
            )
        return RunConfig.for_fields(
            describe_own(self),
            self.model or "cno",
            self.preset or "best",
            network=fields.get("model", {}),
            recipe=fields.get("train", {}),
            seed=self.seed or 0,
            members=1 if self.members is None else self.members,
            hardware=from_plain(Hardware, self.hardware, "hardware"),
            tensorboard=self.tensorboard,
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How the user's files are opened."""
        how: dict[str, Any] = {
            **(self._trajectories() if self.time else self._pairs()),
            "layout": (self.layout[0] if len(self.layout) == 1 else list(self.layout)) or None,
            "sample": self.sample,
            "dimension": self.dimension,
            "format": self.format,
        }
        return {key: value for key, value in how.items() if value is not None}

    def _pairs(self) -> dict[str, Any]:
        """Which variables of the file are inputs and outputs."""
        if self.parameters:
            raise ValueError("--parameters is for trajectories; name their axis of times: --time.")
        entries = read_numbers(self.times) if self.times else ()
        if len(entries) not in (0, 2):
            raise ValueError("--times has two entries, of inputs and outputs; give --times 0,-1.")
        return {
            "inputs": list(self.inputs) or None,
            "outputs": list(self.outputs) or None,
            "mask": self.mask,
            "times": entries or None,
        }

    def _trajectories(self) -> dict[str, Any]:
        """Which variables of the file are states."""
        for name in ("times", "mask", "outputs"):
            if getattr(self, name):
                raise ValueError(
                    f"--{name} is for pairs of fields, --time for trajectories; leave one out. "
                    "--inputs names the variables of a state."
                )
        return {
            "time": self.time,
            "states": list(self.inputs) or None,
            "parameters": list(self.parameters) or None,
        }


@lru_cache(maxsize=1)  # asked for twice: which options there are, and what is trained
def describe_own(run: RunOptions) -> OwnData:
    """What the user's files hold."""
    from torchcno.runs.own import describe_files

    assert run.data is not None
    files = {"train": run.data, "val": run.val, "test": run.test, "ood": run.ood}
    return describe_files(
        {split: path for split, path in files.items() if path is not None},
        run.reading,
        run.split,
        run.split_seed,
        run.name or run.data.stem,
    )


def train(
    problem: ProblemName = None,
    model: ModelName = None,
    /,
    *,
    run: OmitArgPrefixes[RunOptions],
    fields: Fields,
) -> None:
    """Train a network on your data or on a benchmark, and evaluate it.

    Your data are one file: NetCDF, Zarr, HDF5, .npz or .npy. Name its variables. A
    network and a recipe that fit the data are chosen and printed. --model.FIELD and
    --train.FIELD change them.

    For a benchmark, name a problem and a network. `cno train PROBLEM MODEL --help`
    lists every setting of both, with its default. Options go before a configuration
    file, and that goes before the defaults.

    examples:
      cno train --data flow.nc --inputs velocity --outputs pressure --out runs/flow
      cno train --data flow.nc --time time --inputs u,v --out runs/flow
      cno train --data more.nc --inputs a --outputs u --from runs/flow --out runs/on
      cno train poisson cno --out runs/poisson
      cno train poisson cno --out runs/small --train.epochs 100 --model.width 8
      cno train poisson cno --out runs/published --preset paper --seed 1
      cno train poisson cno --out runs/five --members 5
      cno train --config runs/small/config.yaml --out runs/longer --train.epochs 300
    """
    from torchcno.cli.watching import show_result, watch_training
    from torchcno.runs.train import start_from, train_run, with_hashes

    config = run.resolve([problem, model], fields)
    if run.out is None:
        raise ValueError("say where the run shall lie: --out FOLDER.")
    if run.start is not None:
        config = start_from(config, run.start, fields.get("model", {}))
    config = with_hashes(config)
    where = f" --data {run.data}" if run.data and not run.is_own else ""
    with watch_training(config, go_on=f"cno resume {run.out}{where}") as watch:
        result = train_run(config, run.out, watch)
    show_result(run.out, result, config.train.epochs)


def find_sections(words: Sequence[str]) -> dict[str, Any]:
    """Problem, model and recipe of the run that `words` name; every field of them is an option."""
    verb, names = words[0], leading_names(words[1:])
    options = [word for word in words[1:] if word not in HELP]
    run, _ = parse(RunOptions, f"cno {verb}", args=options, return_unknown_args=True)
    if len(names) < 2 and run.config is None and not run.is_own and HELP & set(words):
        return {}
    from torchcno.models import MODELS
    from torchcno.problems import PROBLEMS
    from torchcno.runs.own import OwnData
    from torchcno.training import PRESETS

    if len(names) < 2 and run.config is None and not run.is_own:
        raise ValueError(
            f"name a problem and a model before all options (cno {verb} PROBLEM MODEL --out "
            f"FOLDER), or your file (cno {verb} --data FILE --inputs A --outputs U --out FOLDER)."
            f" Problems: {', '.join(PROBLEMS)}. Models: {', '.join(MODELS)}."
            f" Presets: {', '.join(PRESETS)}."
        )
    describe_own.cache_clear()  # files may have changed since an earlier call
    base = run.resolve(names, {})
    sections = {"problem": base.problem, "model": base.architecture, "train": base.train}
    if isinstance(base.problem, OwnData):  # whose fields are the data's
        del sections["problem"]
    return sections
