"""The folder of a run: the only place that knows its files and its state.

config.yaml         the whole configuration, every field resolved
metrics.jsonl       a row per epoch
tensorboard/        the rows as curves, where the configuration asks for them
model.safetensors   the weights that did best on validation
model.json          what they are the weights of: model, configuration, normalisation, grid
config.json         the same in the layout of the Hugging Face Hub, which has no run beside it
checkpoint/         everything to go on with an interrupted run
members/            of an ensemble: metrics, weights and checkpoint of each member, by its number
result.json         errors in and out of distribution, speed, size, and the hash of the weights
errors.npz          the relative L1 error of every sample, by split and space
data.safetensors    fields that came from memory, not from a file
start.safetensors   the weights that a network came with, where it was not built here
examples.npz        some samples of each split with their predictions
trust.npz           how far to trust its predictions: bands of errors, statistics of inputs
rollout.json        errors of a rollout against time, with rollout.png and rollout.gif
resolution.json     errors on many grids, where a study measured them
spectra.npz         spectra of truth and prediction, where a study measured them
checksums.jsonl     the SHA-256 of these files; rows and tensors carry theirs themselves
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from torchcno.data.dataset import holds_data
from torchcno.data.normalization import Normalization
from torchcno.disk import (
    CHECKSUMS,
    keep_checksums,
    read_arrays,
    read_json,
    read_rows,
    sweep,
    write_arrays,
)
from torchcno.evaluation.errors import published_error
from torchcno.evaluation.resolution import Evaluation, ResolutionCurve
from torchcno.grids import Grid
from torchcno.locks import locked
from torchcno.metrics import Mask
from torchcno.models.ensemble import Ensemble
from torchcno.runs.config import MOST_MEMBERS, RunConfig, check_format, differences, read_tree
from torchcno.runs.evidence import Examples
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData, moved
from torchcno.runs.plain import from_plain, to_plain
from torchcno.runs.presets import ForeignConfig, model_class
from torchcno.runs.ranges import TrainingRange
from torchcno.runs.rollout import EvolutionOperator
from torchcno.runs.trust import Trust
from torchcno.selection import select
from torchcno.training.augmentation import GROUPS
from torchcno.training.checkpoint import load_into, load_tensors, refuse_infinite
from torchcno.training.folder import TrainingFolder
from torchcno.training.hardware import Hardware, is_first_process
from torchcno.training.propagator import Propagator

FolderState = Literal["new", "begun", "finished", "damaged"]
Mode = Literal["new", "resume", "either"]

NAME_A_RUN = "name the --out folder of a run."
RESOLUTION_FILE, SPECTRA_FILE = "resolution.json", "spectra.npz"  # of studies

# What result.json of a finished run says at least.
KEYS = ("problem", "model", "parameters", "seconds_per_epoch", "best_validation_error",
        "inference", "device", "versions", "errors")  # fmt: skip
# How far errors of the same weights may differ, relatively: by TF32 on one device and float32 on
# another, say.
SAME_WEIGHTS = 0.02


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read."""

    file: Path
    why: str

    def __str__(self) -> str:
        return f"{self.file} cannot be read ({self.why})"


def damage_of(path: Path, read: Callable[[Path], object]) -> Damage | None:
    """Why `read` cannot read a file; None where it can, or where there is no file."""
    if path.exists():
        try:
            read(path)
        except Exception as error:  # a broken file makes its reader raise anything
            lacks = f"it lacks {error}" if isinstance(error, KeyError) else ""
            words = lacks or str(error) or type(error).__name__
            return Damage(path, words.replace(str(path), "it").strip().rstrip("."))
    return None


class RunFolder(TrainingFolder):
    """The folder of one run: its state, its files, and the right to work on it."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.config_file = self.path / "config.yaml"
        self.model_file = self.path / "model.json"
        self.hub_file = self.path / "config.json"
        self.result_file = self.path / "result.json"
        self.errors_file = self.path / "errors.npz"
        self.examples_file = self.path / "examples.npz"
        self.trust_file = self.path / "trust.npz"
        self.resolution_file = self.path / RESOLUTION_FILE
        self.spectra_file = self.path / SPECTRA_FILE
        self.rollout_file = self.path / "rollout.json"  # with a picture and an animation beside it
        self.curves = self.path / "tensorboard"
        self.data_file = self.path / "data.safetensors"  # fields that were in memory alone
        self.start_file = self.path / "start.safetensors"  # weights that a network came with
        self.members_folder = self.path / "members"  # of an ensemble: a training each
        # A configuration alone is no trace: its data could not be made.
        self.traces += (self.result_file, self.members_folder)
        # Which only the holder of the lock writes.
        self.files = (
            self.config_file, self.metrics, self.model_file, self.weights, self.result_file,
            self.errors_file, self.examples_file, self.trust_file, self.data_file, self.start_file,
        )  # fmt: skip

    def trainings(self, members: int) -> list[TrainingFolder]:
        """Where the members of the run are trained: here, if there is only one."""
        if members == 1:
            return [TrainingFolder(self.path)]
        parts = (self.members_folder / str(number) for number in range(members))
        return [TrainingFolder(part, run=self.path) for part in parts]

    def _members(self) -> list[TrainingFolder]:
        """The trainings of the members that there are of an ensemble."""
        found = self.members_folder.glob("*") if self.members_folder.is_dir() else ()
        numbers = sorted(int(path.name) for path in found if path.name.isdecimal())
        return [TrainingFolder(self.members_folder / str(number)) for number in numbers]

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a state to go on from, of the run or of a member."""
        return super().has_checkpoint or any(one.has_checkpoint for one in self._members())

    def rows(self) -> list[dict[str, Any]]:
        """The metrics so far; of an ensemble those of all members, epoch by epoch."""
        if not (members := self._members()):
            return super().rows()
        rows = [{**row, "member": k} for k, one in enumerate(members) for row in one.rows()]
        return sorted(rows, key=lambda row: (row["epoch"], row["member"]))

    @property
    def state(self) -> FolderState:
        """A run with a file that cannot be read is damaged, whatever the others say."""
        if not self.has_begun:
            return "new"
        if self.damage() is not None:
            return "damaged"
        return "finished" if self.result_file.exists() else "begun"

    @contextmanager
    def open(self, config: RunConfig, mode: Mode) -> Iterator[dict[str, Any] | None]:
        """Lock the folder for work on the run of `config`; its result, if it is finished already.

        new      there must be no run yet
        resume   what is there goes on
        either   this run, whatever part of it is done; who finds another process there waits

        Every other folder is refused with what to do.
        """
        with self.lock(config.hardware, wait=mode == "either") as is_first:
            if is_first:
                yield self._check(config, mode)
            else:  # which follows the first; its own answer is no result
                yield {} if mode == "resume" and self._check(config, mode) is not None else None

    @contextmanager
    def lock(self, hardware: Hardware, wait: bool = False) -> Iterator[bool]:
        """One process at a time in the folder; whether this one writes there.

        Of the processes of one run the first locks the folder for all of them, and writes.
        """
        if not is_first_process(hardware):
            yield False
            return
        self.refuse_strangers()
        with locked(self.path, wait):
            for file in self.files:  # what a kill left of them
                sweep(file)
            yield True

    def claim(self) -> None:
        """Start a new run here, with checksums of its files; refuse to write over another."""
        super().claim()
        keep_checksums(self.path)

    def refuse_strangers(self) -> None:
        """Refuse a folder that holds files of someone else, and no run."""
        if not self.path.is_dir() or self.has_begun or self.model_file.exists():
            return
        files = (self.config_file, self.curves, self.data_file, self.start_file)
        ours = {file.name for file in files} | {
            "log.txt",
            "stop",
            CHECKSUMS,
        }  # of jobs, and of files
        names = sorted(entry.name for entry in self.path.iterdir())
        # Hidden ones, and what a kill left of files, which is swept.
        left = tuple(f"{name}." for name in (*ours, self.model_file.name))
        others = [
            name
            for name in names
            if name not in ours
            and not name.startswith(".")
            and not (name.startswith(left) and name.endswith(".part"))
        ]
        if self.config_file.exists() and "format" not in _read_any_tree(self.config_file):
            others.insert(0, self.config_file.name)
        if others:
            some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            raise ValueError(
                f"{self.path} holds files that are not of a run ({some}); choose a new folder, "
                f"such as {self.path / 'run'}."
            )

    def _check(self, config: RunConfig, mode: Mode) -> dict[str, Any] | None:
        """The result of a finished run; None where it is to begin or to go on; else refuse."""
        if mode != "resume" and not self.has_begun:
            self.claim()
            return None
        if mode != "resume":
            self.refuse_another(config)
        if mode == "new":
            what = f"go on with it: cno resume {self.path}, or resume=True in Python."
            if self.result_file.exists():
                what = f"it is finished (cno evaluate {self.path}). Choose another folder."
            raise ValueError(f"{self.path} holds this run already; {what}")
        damage = damage_of(self.result_file, _check_result)
        if damage is None and self.result_file.exists():
            return self.result()
        if damage is not None and not self.has_checkpoint:
            raise ValueError(
                f"{damage}, and there is no {self.checkpoint} to go on from; bring one of them "
                f"back, or train anew: {self.command_to_train_again()}"
            )
        self.refuse_lone_weights()  # before anything there is written anew
        return None

    def refuse_another(self, config: RunConfig) -> None:
        """Refuse another run than that of `config`, or one that cannot be read.

        Neither is written over. Where the data lie and what computes may differ: a run may go on on
        another machine.
        """
        anew = f"or move {self.path} away, and the same command makes the run anew."
        damage = self.damage()
        if damage is not None:
            raise ValueError(f"{damage}; bring the file back, {anew}")
        if not self.config_file.exists():
            raise ValueError(
                f"{self.path} holds a run without its {self.config_file.name}, as `train_on` makes "
                f"it; choose another folder, bring the file back, {anew}"
            )
        changed = differences(self.config(), config)
        if changed:
            words = ", ".join(
                "its data are others" if key == "problem.hashes" else f"{key} is {a}, not {b}"
                for key, (a, b) in changed.items()
            )
            raise ValueError(
                f"{self.path} holds another run: {words}; choose another folder, go on with that "
                f"run (cno resume {self.path}), {anew}"
            )

    def refuse_another_operator(self, operator: TrainedOperator) -> None:
        """Refuse another network, scaling or grid than those that the run here began with."""
        there, path = read_json(self.existing(self.model_file)), self.model_file
        same = "give the same to go on, or start a new run in another folder."
        kind = there["model"]
        if kind != operator.model:
            raise ValueError(f"{path} is of the model {kind}, not {operator.model}; {same}")
        given = {
            "config": getattr(operator.network, "config", ForeignConfig()),
            "normalization": operator.normalization,
            "grid": operator.grid,
        }
        for part, value in given.items():
            before, now = (
                to_plain(from_plain(type(value), there[part] or {}, part)),
                to_plain(value),
            )
            changed = [f"{k} {before[k]}, not {now[k]}" for k in now if before[k] != now[k]]
            if changed:
                raise ValueError(f"{path} has another {part}: {', '.join(changed)}; {same}")

    def config(self) -> RunConfig:
        """The configuration."""
        config = RunConfig.from_tree(self._config_tree())
        if isinstance(config.problem, OwnData):  # the folder may have been moved
            return replace(config, problem=moved(config.problem, self.path))
        return config

    def _config_tree(self) -> dict[str, Any]:
        """What the configuration's file holds, if a run wrote it."""
        tree = read_tree(self.existing(self.config_file))
        if not {"format", "problem"} & tree.keys():
            raise ValueError(f"{self.config_file} is not of a run of torchcno; {NAME_A_RUN}")
        return tree

    def config_here(self, data: str | Path | None = None) -> RunConfig:
        """The configuration, with its data in the folder `data`, if given.

        Someone else's configuration may name any place. One that is no data folder is not made to
        be one unless the user says so.
        """
        config = self.config()
        if data is not None:
            return replace(config, data=Path(data))
        if config.data is not None and not holds_data(config.data, config.problem.name):
            raise ValueError(
                f"{config.data}, where {self.config_file} says that the data are, holds no data of "
                f"{config.problem.name}; say where they are or shall be made: --data FOLDER."
            )
        return config

    def result(self) -> dict[str, Any] | None:
        """What the run came to; None where it is not finished."""
        return read_json(self.result_file) if self.result_file.exists() else None

    def description(self) -> dict[str, Any]:
        """What the weights are the weights of."""
        path = self._model_path()
        description = read_json(path)
        check_format(description, path)
        if "model" not in description:
            raise ValueError(
                f"{path} describes no network of torchcno; {NAME_A_RUN[:-1]}, or one that "
                "`cno export --format hub` wrote."
            )
        return description

    def _model_path(self) -> Path:
        """The file that says it: in a folder in the Hub's layout it has another name."""
        is_hub = self.hub_file.is_file() and not self.model_file.is_file()
        return self.existing(self.hub_file if is_hub else self.model_file)

    def operator(
        self, device: str | torch.device = "cpu", network: nn.Module | None = None
    ) -> TrainedOperator:
        """The trained operator, in evaluation mode; `network` where it is not of this package."""
        description, weights_path = self.description(), self.existing(self.weights)
        try:
            if network is None:
                network = _build(description)
            assert network is not None
            kind: type[TrainedOperator] = TrainedOperator
            time: dict[str, Any] = {}
            if "propagator" in description:
                kind = EvolutionOperator
                time["propagator"] = from_plain(Propagator, description["propagator"], "propagator")
            operator = kind(
                network,
                from_plain(Normalization, description["normalization"], "normalization"),
                from_plain(Grid, description["grid"], "grid"),
                description["model"],
                description["problem"],
                error_scaling=(
                    from_plain(Normalization, description["error_scaling"], "error_scaling")
                    if "error_scaling" in description  # earlier folders have one scaling
                    else None
                ),
                symmetry=_read_group(description.get("symmetry")),
                range=(
                    from_plain(TrainingRange, description["range"], "range")
                    if "range" in description
                    else None
                ),
                **time,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._model_path()} does not describe a model: {str(error).rstrip('.')}; bring "
                "back a whole copy of it."
            ) from error
        weights, _ = load_tensors(weights_path)
        refuse_infinite(weights, weights_path)
        load_into(operator.network, weights, weights_path)
        operator.trust, operator.home = self.trust(), self.path
        return operator.eval().to(device)

    def hash_weights(self) -> str:
        """The sha256 of the file of weights: a measurement names by it what it measured."""
        return hashlib.sha256(self.weights.read_bytes()).hexdigest()

    def has_weights(self, digest: str | None, error: float | None) -> bool:
        """Whether a measurement was made with the weights of this finished run.

        By their hash. Where the run or the measurement was made before hashes were kept: by the
        published error on test data, in percent; if that is not known either, nobody knows: yes.
        """
        result = read_json(self.result_file)
        if digest is not None and "weights" in result:
            return bool(digest == result["weights"])
        test = result["errors"].get("test")
        if error is None or test is None:
            return True
        return abs(error - published_error(test)) <= SAME_WEIGHTS * published_error(test)

    def errors(self, split: str, space: str = "normalized") -> NDArray[Any] | None:
        """The relative L1 error of every sample, a fraction; None where there is none."""
        arrays = read_arrays(self.errors_file) if self.errors_file.exists() else {}
        return arrays.get(f"{split}/{space}")

    def examples(self, split: str) -> Examples | None:
        """The samples that the run keeps of `split`; None where there are none."""
        arrays = read_arrays(self.examples_file) if self.examples_file.exists() else {}
        start = f"{split}/"
        own = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        return Examples.from_arrays(own) if own else None

    def write_evidence(self, evaluations: Sequence[Evaluation], mask: Mask | None) -> None:
        """Keep the errors of every sample, and some samples with their predictions."""
        errors = {
            f"{one.split}/{space}": samples.float().cpu().numpy()
            for one in evaluations
            for space, samples in one.errors["relative_l1"].items()
        }
        write_arrays(errors, self.errors_file)
        self.write_examples({one.split: Examples.first_of(one, mask) for one in evaluations})

    def write_examples(self, examples: Mapping[str, Examples]) -> None:
        """Keep some samples by split."""
        arrays = {
            f"{split}/{name}": array
            for split, some in examples.items()
            for name, array in some.to_arrays().items()
        }
        write_arrays(arrays, self.examples_file)

    def trust(self) -> Trust | None:
        """How far to trust its predictions; None where that was not measured with these weights."""
        if not self.trust_file.exists():
            return None
        arrays = read_arrays(self.trust_file)
        digest = str(arrays.pop("weights", ""))
        if self.weights.exists() and digest != self.hash_weights():
            return None
        try:
            return Trust.from_arrays(arrays)
        except KeyError as error:
            raise ValueError(f"{self.trust_file} lacks {error}; remove it.") from error

    def write_trust(self, trust: Trust) -> None:
        """Keep how far to trust the operator."""
        digest = np.array(self.hash_weights())
        write_arrays({**trust.to_arrays(), "weights": digest}, self.trust_file)

    def resolutions(self) -> ResolutionCurve | None:
        """The published error against the resolution; None where it was not measured."""
        if not self.resolution_file.exists():
            return None
        return ResolutionCurve.of_json("", read_json(self.resolution_file))

    def damage(self) -> Damage | None:
        """The first file that is there and cannot be read."""
        readers: dict[Path, Callable[[Path], object]] = {
            self.config_file: lambda _: self.config(),
            self.model_file: read_json,
            self.result_file: _check_result,
            self.errors_file: read_arrays,
            self.examples_file: read_arrays,
            self.trust_file: lambda _: self.trust(),
            self.resolution_file: lambda _: self.resolutions(),
            self.spectra_file: read_arrays,
        }
        if self.result_file.exists():  # else a run that goes on mends the last rows
            parts = (TrainingFolder(self.path), *self._members())
            readers |= {part.metrics: read_rows for part in parts}
        found = (damage_of(path, read) for path, read in readers.items())
        return next((damage for damage in found if damage is not None), None)

    def existing(self, file: Path) -> Path:
        """`file`, if it is there; else what to do about it."""
        if not self.path.is_dir():
            what = "is no folder" if self.path.exists() else "does not exist"
            raise FileNotFoundError(f"{self.path} {what}; {NAME_A_RUN}")
        if file.is_file():
            return file
        if self.config_file.is_file():
            self._config_tree()  # someone else's file says nothing of a run
        remedy = NAME_A_RUN
        if self.config_file.is_file() and not self.result_file.exists():
            remedy = f"the run is not finished. Go on with it: cno resume {self.path}"
        elif self.config_file.is_file():
            again = self.command_to_train_again()
            remedy = f"the run came without its weights. Train them: {again}"
        elif self.model_file.is_file():
            remedy = (
                "it holds a network and no run of `cno train`: `cno predict` takes it, and "
                "`torchcno.load` in Python."
            )
        raise FileNotFoundError(f"{self.path} has no {file.name}; {remedy}")

    def command_to_train_again(self) -> str:
        """What trains the same run in a folder beside this one."""
        return f"cno train --config {self.config_file} --out {self.path}-again"


def read_config(folder: str | Path) -> RunConfig:
    """The configuration of a run folder."""
    return RunFolder(folder).config()


def load(
    folder: str | Path, device: str | torch.device = "cpu", network: nn.Module | None = None
) -> TrainedOperator:
    """The trained operator of a run folder, in evaluation mode.

    A network that is not of this package has to be given, built as it was for the training.

    >>> operator = load("runs/p1")
    >>> v = operator.predict(u)  # physical values, any resolution
    """
    return RunFolder(folder).operator(device, network)


def _build(description: Mapping[str, Any]) -> nn.Module:
    """The network that a description is of, with any weights."""
    model, count = model_class(description["model"]), description.get("members", 1)
    if not (isinstance(count, int) and 1 <= count <= MOST_MEMBERS):
        raise ValueError(f"members is {count!r}, not 1 to {MOST_MEMBERS}")
    config = from_plain(model.Config, description["config"], "config")
    networks = [model(config) for _ in range(count)]
    return Ensemble(networks) if count > 1 else networks[0]


def _read_any_tree(path: Path) -> dict[str, Any]:
    """The tree of a YAML file; nothing where it holds none of this program."""
    try:
        return read_tree(path)
    except (OSError, ValueError):
        return {}


def check_errors(errors: Mapping[str, Any]) -> None:
    """Refuse errors by split of which one has not what tables show."""
    for split, summary in errors.items():
        try:
            published_error(summary)
        except (KeyError, TypeError) as error:
            raise ValueError(f"it has no errors of {split}") from error


def _check_result(path: Path) -> None:
    """Refuse a result that does not say what it has to."""
    result = read_json(path)
    lacking = [key for key in KEYS if key not in result]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    check_errors(result["errors"])


def _read_group(name: Any) -> str | None:
    """The symmetries over which an operator averages, as model.json has them."""
    if name is not None:
        select(GROUPS, name, "group of symmetries")
    return name
