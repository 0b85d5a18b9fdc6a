"""Model selection as in the paper: train many configurations, keep the best on validation.

Optuna keeps the trials, in a database that several searching processes may share. Trial i is the
run folder `trials/i`. With the random sampler its configuration depends on (seed, i) alone, so a
search that was killed and goes on ends with the trials of one that was left alone.

A process that works on a trial says so in the trial, its claim, and repeats it. A claim that is not
kept up falls to the next process that looks for work, which goes on in the trial's folder.
"""

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from torchcno.data.samples import Samples
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.folder import RunFolder
from torchcno.runs.job_process import Answer, request_stop
from torchcno.runs.jobs import (
    Job,
    Outcome,
    Workers,
    outcome_of,
    stop_on_error,
    workers,
)
from torchcno.runs.search.space import parameters_of
from torchcno.runs.search.study import (
    Search,
    open_study,
    refuse_another_search,
    trial_folder,
)

CLAIM = 30.0  # seconds between two confirmations of a claim
FORFEIT = 120.0  # seconds without one after which a trial is anyone's
LOOK = 1.0  # seconds between two looks at what has happened
CLOSED = RuntimeError  # what Optuna answers to whoever writes to a trial that is done


@dataclass(frozen=True)
class Means:
    """With what a search is done; none of it decides a trial."""

    parallel: int = 1  # trials at a time on this machine
    cluster: str | None = None  # the address of a dask scheduler; None: this machine
    storage: str | None = None  # the URL of a database; None: SQLite in the folder
    gpus: float = 0.0  # that a trial needs of a cluster's resource GPU


def run_search(
    search: Search,
    out: str | Path,
    trials: int,
    means: Means = Means(),  # noqa: B008
    on_update: Callable[[Study], None] | None = None,
) -> Study:
    """Bring the first `trials` trials of `search` to their ends, with whoever else works on it.

    There are no more of them than the ranges have configurations, and those that are drawn at
    random are never alike. Trials see no test data. Returns the study when all are done, here or
    elsewhere, but for those that failed here: their errors are in the study, and another call tries
    them again.

    >>> space = Space.of(RunConfig.resolve("poisson", "cno"))
    >>> study = run_search(Search(space), "runs/search", trials=30)
    """
    if trials < 1:
        raise ValueError(f"{trials} trials; use at least 1.")
    folder = Path(out)
    refuse_another_search(search, folder)
    for split in EVALUATED:  # the best trial is judged by these
        Samples.of(search.space.base.problem, split, search.space.base.resolution).check_inputs()
    trials = search.space.count(trials)
    example = Job(folder, search.space.base, gpus=means.gpus)
    with workers(means.parallel, means.cluster, [example]) as pool:
        study = open_study(search, folder, means.storage)
        _Driver(search, folder, trials, means.gpus, study, pool).run(on_update)
    return study


@dataclass
class _Driver:
    """One process at work on a search."""

    search: Search
    folder: Path
    trials: int
    gpus: float
    study: Study
    pool: Workers
    running: "dict[Future[Answer], Job]" = field(default_factory=dict)
    trial_of: dict[Path, Trial] = field(default_factory=dict)  # by the folders of `running`
    pruned: set[int] = field(default_factory=set)  # trials that were asked to stop
    failed: set[int] = field(default_factory=set)  # trials that could not be run here
    confirmed: float = field(default_factory=time.monotonic)  # when the claims were last

    def run(self, on_update: Callable[[Study], None] | None) -> None:
        """Work until nothing is left to do, here or elsewhere."""
        report = on_update or (lambda study: None)
        try:
            with stop_on_error(self.running):
                self.start_trials()
                report(self.study)
                while self.running or self.others_at_work():
                    self.look()
                    self.start_trials()
                    report(self.study)
        finally:
            for trial in self.trial_of.values():
                release(trial)

    def start_trials(self) -> None:
        """Start trials while there is room for them."""
        while len(self.running) < self.pool.places:
            trial = self.forfeited() or self.new()
            if trial is None:
                return
            if claim(trial):
                self.start(trial)

    def start(self, trial: Trial) -> None:
        """Train by the choice that the study has for `trial`."""
        space = self.search.space
        choice = {
            name: trial.suggest_categorical(name, values) for name, values in space.ranges.items()
        }
        config = space.config(choice)
        say(trial, "parameters", parameters_of(config))
        folder = trial_folder(self.folder, trial.number)
        job = Job(folder, config, splits=("val",), gpus=self.gpus)
        self.trial_of[folder] = trial
        self.running[self.pool.submit(job)] = job

    def new(self) -> Trial | None:
        """The next trial that no one has begun, if the search is to have more."""
        if len(self.study.get_trials(deepcopy=False)) >= self.trials:
            return None
        trial = self.study.ask()
        if trial.number < self.trials:
            return trial
        release(trial)  # another process took the last one; this is for a longer search
        return None

    def forfeited(self) -> Trial | None:
        """A trial that someone began and no one is at work on."""
        mine = {trial.number for trial in self.trial_of.values()} | self.failed
        for frozen in self.open_trials():
            if frozen.number not in mine and is_forfeit(frozen):
                return Trial(self.study, frozen._trial_id)
        return None

    def open_trials(self) -> list[FrozenTrial]:
        """The trials of this search that have begun and are not done."""
        begun = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [frozen for frozen in begun if frozen.number < self.trials]

    def others_at_work(self) -> bool:
        """Whether trials are open that may still be done, or fall to this process."""
        return any(frozen.number not in self.failed for frozen in self.open_trials())

    def look(self) -> None:
        """Wait a moment, note what ended, stop what lags, confirm the claims."""
        if self.running:
            done = wait(self.running, timeout=LOOK, return_when=FIRST_COMPLETED).done
        else:
            time.sleep(LOOK)
            done = set()
        for future in done:
            job = self.running.pop(future)
            self.note(self.trial_of.pop(job.folder), outcome_of(job, future))
        for folder, trial in self.trial_of.items():
            if self.search.pruner != "none" and lags(trial, folder):
                self.pruned.add(trial.number)
                request_stop(folder)
        if time.monotonic() - self.confirmed > CLAIM:
            self.confirmed = time.monotonic()
            for trial in self.trial_of.values():
                claim(trial)

    def note(self, trial: Trial, outcome: Outcome) -> None:
        """Tell the study what became of a trial."""
        say(trial, "folder", str(outcome.job.folder.absolute()))
        say(trial, "error", outcome.error)
        if outcome.state == "finished":
            result = outcome.result or {}
            for key in ("epochs", "seconds_per_epoch", "device"):
                say(trial, key, result[key])
            self.tell(trial, TrialState.COMPLETE, result["best_validation_error"])
        elif outcome.state == "diverged":
            self.tell(trial, TrialState.FAIL)
        elif outcome.state == "stopped" and trial.number in self.pruned:
            self.tell(trial, TrialState.PRUNED)
        else:  # the fault of a machine, not of the configuration: left for another attempt
            self.failed.add(trial.number)
            release(trial)

    def tell(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        """Close a trial, unless one that took this process for dead was quicker."""
        self.study.tell(trial.number, value, state, skip_if_finished=True)


def say(trial: Trial, key: str, value: Any) -> bool:
    """Note something in `trial`; whether it is open.

    One that another process has closed, which took this one for dead, stays as it is.
    """
    with suppress(CLOSED):
        trial.set_user_attr(key, value)
        return True
    return False


def claim(trial: Trial) -> bool:
    """Say that this process is at work on `trial`, now; whether there is work to do."""
    made = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
    return say(trial, "claim", made)


def release(trial: Trial) -> None:
    """Say that no one is at work on `trial`."""
    say(trial, "claim", {"host": "", "process": 0, "time": 0.0})


def is_forfeit(frozen: FrozenTrial) -> bool:
    """Whether no one is at work on an open trial any more."""
    made = frozen.user_attrs.get("claim")
    if made is None:  # between its beginning and its first claim
        assert frozen.datetime_start is not None
        return time.time() - frozen.datetime_start.timestamp() > FORFEIT
    if made["host"] == socket.gethostname() and not is_alive(made["process"]):
        return True
    return bool(time.time() - made["time"] > FORFEIT)


def is_alive(process: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def lags(trial: Trial, folder: Path) -> bool:
    """Report a trial's validation errors so far to its study; whether the pruner would stop it."""
    known = trial.storage.get_trial(trial._trial_id).intermediate_values
    with suppress(CLOSED):
        for epoch, error in validation_errors(folder):
            if epoch not in known:
                trial.report(error, epoch)
                if trial.should_prune():
                    return True
    return False


def validation_errors(folder: Path) -> list[tuple[int, float]]:
    """Epochs and validation errors of a run so far."""
    errors = ((row["epoch"], row["validation_error"]) for row in RunFolder(folder).rows())
    return [(epoch, error) for epoch, error in errors if error is not None]
