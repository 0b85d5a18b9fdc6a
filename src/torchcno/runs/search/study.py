"""The study of a search: what decides its trials, and the database that keeps them."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.pruners import BasePruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

from torchcno.disk import refuse_link
from torchcno.locks import locked
from torchcno.runs.config import RunConfig, differences, read_tree, section, write_tree
from torchcno.runs.folder import RunFolder
from torchcno.runs.search.space import Space
from torchcno.selection import select
from torchcno.training.recipe import EITHER_WAY, Recipe

STARTUP = 10  # trials that are drawn at random before a model of the errors is worth asking
PROPOSALS = 20  # of that model, for one that is valid
# Seconds to wait for another writer, or for a server.
WAITING: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": 60},
    "postgresql": {"connect_timeout": 10},
    "mysql": {"connect_timeout": 10},
}


@dataclass(frozen=True)
class Search:
    """What decides the trials of a search."""

    space: Space
    sampler: str = "random"
    pruner: str = "none"

    def __post_init__(self) -> None:
        select(SAMPLERS, self.sampler, "sampler")
        select(PRUNERS, self.pruner, "pruner")

    def to_tree(self) -> dict[str, Any]:
        """The search as a plain tree.

        How steps are run and kept, and whether curves are drawn, is said as it is by default: any
        other way it is the same search, of the same name.
        """
        usual = {name: getattr(Recipe(), name) for name in EITHER_WAY}
        train = replace(self.space.base.train, **usual)
        base = replace(self.space.base, train=train, tensorboard=False).to_tree()
        for elsewhere in ("data", "hardware"):  # on another machine it is the same search
            base.pop(elsewhere)
        return {
            "format": base.pop("format"),
            "torchcno": base.pop("torchcno"),
            "sampler": self.sampler,
            "pruner": self.pruner,
            "max_parameters": self.space.max_parameters,
            "ranges": {name: list(values) for name, values in self.space.ranges.items()},
            "base": base,
        }


def study_name(tree: Mapping[str, Any]) -> str:
    """The name of the search that began as `tree`: the same on all machines that share it."""
    deciding = {key: value for key, value in tree.items() if key != "torchcno"}
    digest = hashlib.blake2b(json.dumps(deciding, sort_keys=True).encode(), digest_size=4)
    base = tree["base"]
    return f"{base['problem']['name']}-{base['model']['name']}-{digest.hexdigest()}"


class ValidSampler(TPESampler):
    """Choices that count: `proposals` of TPE, or where none does those that (seed, number) draws.

    The seed is that of every trial's weights.
    """

    def __init__(self, space: Space, proposals: int) -> None:
        super().__init__(n_startup_trials=0, seed=space.base.seed)
        self.space = space
        self.proposals = proposals

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All ranges, as Optuna knows them."""
        return {n: CategoricalDistribution(values) for n, values in self.space.ranges.items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """One choice."""
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for _ in range(self.proposals if len(finished) >= STARTUP else 0):
            choice = {
                name: self.sample_independent(study, trial, name, distribution)
                for name, distribution in search_space.items()
            }
            if not self.space.refusal(choice):
                return choice
        return self.space.draw(self.space.base.seed, trial.number)


SAMPLERS: dict[str, Callable[[Search], BaseSampler]] = {
    "random": lambda search: ValidSampler(search.space, proposals=0),
    "tpe": lambda search: ValidSampler(search.space, PROPOSALS),
}
PRUNERS: dict[str, Callable[[Search], BasePruner]] = {
    "none": lambda search: NopPruner(),
    # After a sixteenth and a quarter of the epochs the best quarter goes on.
    "halving": lambda search: SuccessiveHalvingPruner(
        min_resource=max(1, search.space.base.train.epochs // 16), reduction_factor=4
    ),
}


def trial_folder(folder: Path, number: int) -> Path:
    """The run folder of a trial of the search in `folder`."""
    return folder / "trials" / f"{number:04d}"


def open_study(search: Search, folder: Path, url: str | None = None) -> Study:
    """The study of a search in the database at `url`, or in its folder; a new one if need be."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    refuse_another_search(search, folder)  # before a database hears of it
    if url is not None:
        study = _connect(search, folder, url)  # first: where it fails, no folder shall be left
    with locked(folder):
        for name in ("study.db", "study.db-journal", "trials"):
            refuse_link(folder / name)
        refuse_another_search(search, folder)
        if url is None:
            study = _connect(search, folder, f"sqlite:///{folder.absolute() / 'study.db'}")
        if not (folder / "search.yaml").exists():
            write_tree(search.to_tree(), folder / "search.yaml")
    return study


def refuse_another_search(search: Search, folder: Path) -> None:
    """Refuse the folder of a search whose trials would be others."""
    path = folder / "search.yaml"
    if not path.exists():
        run = RunFolder(folder)
        if run.has_begun or run.weights.exists():
            raise ValueError(f"{folder} holds a run; choose another --out.")
        return
    tree = read_tree(path)
    there, here = _choices_of(tree), _choices_of(search.to_tree())
    changed = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    began = RunConfig.from_tree({"format": tree.get("format"), **section(tree, "base")})
    changed += [f"base.{name}" for name in differences(began, search.space.base)]
    if changed:
        raise ValueError(
            f"{folder} holds another search, which differs in {', '.join(changed)}; "
            "choose another --out, or go on with that one by the same options."
        )


def _choices_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a search beside its base, by dotted names."""
    ranges = {f"ranges.{name}": values for name, values in section(tree, "ranges").items()}
    return {name: tree.get(name) for name in ("sampler", "pruner", "max_parameters")} | ranges


def _connect(search: Search, folder: Path, url: str) -> Study:
    """The study in the database at `url`, by the name that it has since its folder's beginning."""
    began = folder / "search.yaml"
    name = study_name(read_tree(began) if began.exists() else search.to_tree())
    try:
        return optuna.create_study(
            storage=_storage(url),
            study_name=name,
            sampler=SAMPLERS[search.sampler](search),
            pruner=PRUNERS[search.pruner](search),
            load_if_exists=True,
        )
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise ValueError(
            f"no database answers at {url} ({str(error).splitlines()[0]}); give a URL such as "
            "postgresql://user@host/name of a server that runs, with its driver installed "
            "(pip install 'psycopg[binary]'), or leave it out for a file in the --out folder."
        ) from error


def _storage(url: str) -> BaseStorage:
    dialect = url.partition(":")[0].partition("+")[0]
    if dialect not in WAITING:
        return optuna.storages.get_storage(url)
    settings = {"connect_args": WAITING[dialect]}
    try:
        return RDBStorage(url, settings)
    except (ProgrammingError, IntegrityError):
        time.sleep(1)  # another process was making the tables of a new database; now they are there
        return RDBStorage(url, settings)
