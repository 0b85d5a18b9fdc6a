"""What decides a run, and its file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from torchcno.disk import read_bytes, write_noted
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import Problem
from torchcno.runs.choose import (
    choose_conditioning,
    choose_network,
    choose_recipe,
    count_windows,
    shorten_epochs,
)
from torchcno.runs.own import OwnData
from torchcno.runs.plain import check_key, convert, convert_fields, from_plain, shown, to_plain
from torchcno.runs.presets import (
    ForeignConfig,
    build_problem,
    is_foreign,
    model_class,
    model_config,
    training_row,
)
from torchcno.selection import select
from torchcno.training import PRESETS, Hardware, Recipe
from torchcno.training.recipe import EITHER_WAY, completed
from torchcno.version import __version__

MOST_YAML = 2**18  # bytes of a configuration: a hundred times the longest
MOST_MEMBERS = 1000
FORMAT = 1  # of run folders; folders of another one are refused
DECIDING = (
    "problem",
    "model",
    "train",
    "preset",
    "seed",
    "resolution",
    "own_loss",
    "times",
    "members",
)  # what makes a run itself


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run. `resolve` fills in what is not said."""

    problem: Problem
    model: str
    architecture: Any  # the model's Config
    train: Recipe
    preset: str = "best"  # where the defaults of architecture and train came from
    seed: int = 0  # of the weights and the order of samples
    resolution: int = 64  # points an axis of the training data
    data: Path | None = None  # the folder of data files; None: the default one
    hardware: Hardware = field(default_factory=Hardware)
    tensorboard: bool = False  # whether TensorBoard's curves are drawn beside metrics.jsonl
    start: Path | None = None  # the run whose weights and scaling it begins with; None: none
    own_loss: str | None = None  # the user's loss function, which only Python can give again
    times: tuple[float, ...] = ()  # of trajectories, which are learnt then; empty: pairs
    members: int = 1  # networks that are trained together and averaged; the k-th has seed + k

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}; use zero or a positive number below 2⁶³.")
        if not 1 <= self.members <= MOST_MEMBERS:
            raise ValueError(f"members is {self.members}; use 1 to {MOST_MEMBERS}, such as 5.")
        devices = self.hardware.devices * self.hardware.nodes
        if self.members > 1 and devices > 1:
            raise ValueError(
                f"{self.members} members are trained on one device, not on {devices}; leave "
                "--devices and --nodes out, or --members."
            )

    @property
    def alone(self) -> "tuple[RunConfig, ...]":
        """The run of every member by itself; of a run of one network: this run."""
        return tuple(replace(self, seed=self.seed + k, members=1) for k in range(self.members))

    @classmethod
    def resolve(
        cls,
        problem: str | Problem,
        model: str,
        preset: str = "best",
        resolution: int | None = None,
        **settings: Any,
    ) -> "RunConfig":
        """The run of `model` on `problem` with the paper's hyper-parameters.

        The training recipe is the preset's, with the numbers of the model's table for the problem;
        for `best`, what was found better where that is known. `settings` are further fields.
        """
        problem = build_problem(problem)
        if isinstance(problem, OwnData):
            return cls.for_fields(problem, model, preset, **settings)
        resolution = problem.resolution if resolution is None else resolution
        size = problem.grid(resolution).shape
        return cls(
            problem=problem,
            model=model,
            architecture=model_config(model, problem, preset, size=size),
            train=replace(
                select(PRESETS, preset, "preset"), **training_row(model, problem, preset)
            ),
            preset=preset,
            resolution=resolution,
            **settings,
        )

    @classmethod
    def for_fields(
        cls,
        data: OwnData,
        model: str,
        preset: str = "best",
        /,
        network: Mapping[str, Any] = {},
        recipe: Mapping[str, Any] = {},
        **settings: Any,
    ) -> "RunConfig":
        """The run of `model` on a user's fields, chosen by the rules of `choose`.

        Fields of the `network` and of the `recipe` go over what is chosen.
        """
        channels, size, times = data.channels, data.domain.shape, data.times
        given = convert_fields(Recipe, recipe, "train")
        draft = replace(Recipe(), **given)
        samples = count_windows(data.counts["train"], times, draft)
        if is_foreign(model):
            architecture: Any = ForeignConfig(*channels, size)
        else:
            fields = convert_fields(model_class(model).Config, network, "model")
            told = choose_conditioning(times, draft, data.parameters)
            states = data.counts["train"] * max(1, len(times))
            architecture = choose_network(
                model, states, data.domain, channels, **{**told, **fields}
            )
        if channels[1] > 1:  # else the channel with the largest values would decide
            given = {"loss": "channel-l1", **given}
        train = choose_recipe(samples, preset, **given)
        settings = {**settings, "resolution": size[-1], "times": times}
        return cls(data, model, architecture, train, preset, **settings)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "RunConfig":
        """The run of a plain tree, such as a YAML file holds; what it leaves out is resolved.

        A tree that `to_tree` wrote left nothing out: what it lacks of the recipe was not there yet.
        """
        sections = ("problem", "model", "train", "hardware")
        hints = get_type_hints(cls)
        known = [name for name in hints if name != "architecture"]
        for key in tree:
            check_key(key, [*known, "format", "torchcno"])
        problem, model, train, hardware = (section(tree, name) for name in sections)
        if "format" in tree:
            train = completed(train)
        for fields, kind in ((problem, "problem"), (model, "model")):
            if "name" not in fields:
                raise ValueError(f"the configuration does not say which {kind}; add {kind}.name.")
        settings = {
            key: convert(value, hints[key], key)
            for key, value in tree.items()
            if key in known and key not in sections
        }
        own: dict[str, type[Problem]] = {OwnData.name: OwnData} if "counts" in problem else {}
        pde = select({**PROBLEMS, **own}, problem.pop("name"), "problem")
        # Files from before recipes had versions are of the first.
        check_version(pde, problem.pop("version", 1 if "format" in tree else pde.version))
        if own:
            settings.pop("resolution", None)  # they are the data's
            settings.pop("times", None)
        run = cls.resolve(
            from_plain(pde, problem, "problem"),
            model.pop("name"),
            hardware=from_plain(Hardware, hardware, "hardware"),
            **settings,
        )
        recipe = from_plain(Recipe, train, "train", base=run.train)
        if run.times and not own:
            if "epochs" not in train:  # as many steps as pairs would have had
                samples = recipe.samples or run.problem.samples["train"]
                ratio = count_windows(samples, run.times, recipe) / samples
                recipe = shorten_epochs(recipe, ratio, train)
            model = {**choose_conditioning(run.times, recipe), **model}
        return replace(
            run,
            architecture=from_plain(type(run.architecture), model, "model", base=run.architecture),
            train=recipe,
        )

    def to_tree(self) -> dict[str, Any]:
        """The inverse of `from_tree`, with every field.

        The path of the data is absolute: a run may go on from another directory.
        """
        return {
            "format": FORMAT,
            "torchcno": __version__,
            "problem": {
                "name": self.problem.name,
                "version": self.problem.version,
                **to_plain(self.problem),
            },
            "model": {"name": self.model, **to_plain(self.architecture)},
            "train": to_plain(self.train),
            "preset": self.preset,
            "seed": self.seed,
            "resolution": self.resolution,
            "data": to_plain(self.data and self.data.expanduser().absolute()),
            "hardware": to_plain(self.hardware),
            "tensorboard": self.tensorboard,
            **({"members": self.members} if self.members > 1 else {}),
            **{
                name: to_plain(value)
                for name in ("start", "own_loss")
                if (value := getattr(self, name)) is not None
            },
            **({"times": list(self.times)} if self.times else {}),
        }


def check_version(problem: type[Problem], version: int) -> None:
    """Refuse a run on data that this torchcno does not make: its problem has another recipe now."""
    if version != problem.version:
        raise ValueError(
            f"the run is on data by version {version} of the recipe of {problem.name}; this "
            f"torchcno makes version {problem.version}, which is other data. Its network predicts "
            "as before (cno predict); to evaluate it or go on with it, install the torchcno that "
            "trained it, or train again."
        )


def differences(there: RunConfig, planned: RunConfig) -> dict[str, tuple[Any, Any]]:
    """What makes two configurations those of different runs, by dotted names; of one run: nothing.

    Where data lie, what computes, and how steps are run and kept make no other run.
    """
    a, b = _deciding(there), _deciding(planned)
    return {name: (a.get(name), b.get(name)) for name in {**b, **a} if a.get(name) != b.get(name)}


def _deciding(config: RunConfig) -> dict[str, Any]:
    """What decides a run, by dotted names."""
    flat: dict[str, Any] = {}
    tree = config.to_tree()
    for key in DECIDING:
        section = tree.get(key)
        fields = section if isinstance(section, dict) else {"": section}
        flat |= {f"{key}.{name}".rstrip("."): value for name, value in fields.items()}
    for name in EITHER_WAY:
        del flat[f"train.{name}"]
    if flat["train.precision"] in ("tf32", "fp16-mixed"):
        flat["train.precision"] = (
            "auto"  # which comes to one of them, by the network and the device
        )
    flat.pop("problem.source", None)  # wherever the data lie now, their hashes say what they are
    return flat


def section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section of a configuration; a bare name is short for its `name`."""
    fields = tree.get(name) or {}
    if isinstance(fields, str):
        return {"name": fields}
    if not isinstance(fields, Mapping):
        raise ValueError(f"{name} is {shown(fields)}; give its fields as `key: value` lines.")
    return dict(fields)


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases, by which a few lines may stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """One node of the tree."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1} has an alias (*); write the value there")
        return super().compose_node(parent, index)


def read_tree(path: Path) -> dict[str, Any]:
    """The plain tree of a YAML file of this format."""
    try:
        tree = yaml.load(read_bytes(path, MOST_YAML).decode(), PlainLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        why = f"line {mark.line + 1} cannot be read" if mark else str(error).splitlines()[0]
        raise ValueError(f"{path} is not a YAML file: {why}; write `key: value` lines.") from error
    if not isinstance(tree, dict):
        raise ValueError(
            f"{path} holds no configuration of a run; give that of one, or write `key: value` "
            "lines."
        )
    check_format(tree, path)
    return tree


def check_format(tree: Mapping[str, Any], path: Path) -> None:
    """Refuse what another version of torchcno wrote in another format."""
    if tree.get("format", FORMAT) != FORMAT:
        raise ValueError(
            f"{path} was written by torchcno {tree.get('torchcno', '?')} in run format "
            f"{tree['format']}; torchcno {__version__} reads format {FORMAT}. "
            "Install that version to use it, or train again."
        )


def write_tree(tree: Mapping[str, Any], path: Path) -> None:
    """A plain tree as a YAML file, short lists on one line."""
    text = yaml.safe_dump(dict(tree), sort_keys=False, default_flow_style=None, allow_unicode=True)
    write_noted(path, text.encode())
