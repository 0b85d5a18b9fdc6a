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
from torchcno.locks import is_alive
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.folder import RunFolder
from torchcno.runs.job_process import Answer, request_stop
from torchcno.runs.jobs import Job, Outcome, Workers, outcome_of, stop_on_error, workers
from torchcno.runs.own import OwnData
from torchcno.runs.search.space import parameters_of
from torchcno.runs.search.study import Search, open_study, trial_folder

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
    base = search.space.base
    if not isinstance(base.problem, OwnData):
        for split in EVALUATED:  # the best trial is judged by these
            Samples.of(base.problem, split, base.resolution).check_inputs()
    trials = search.space.count(trials)
    example = Job(folder, search.space.base, gpus=means.gpus)
    with workers(means.parallel, means.cluster, [example]) as pool:
        study = open_study(search, folder, means.storage)
        _Driver(search, folder, trials, means.gpus, study, pool).run(on_update)
    return study


@dataclass(frozen=True, kw_only=True)
class _TrialJob(Job):
    """The run of a trial, which sees no test data."""

    trial: Trial
    splits: tuple[str, ...] = ("val",)


@dataclass
class _Driver:
    """One process at work on a search."""

    search: Search
    folder: Path
    trials: int
    gpus: float
    study: Study
    pool: Workers
    running: "dict[Future[Answer], _TrialJob]" = field(default_factory=dict)
    pruned: set[int] = field(default_factory=set)  # trials that were asked to stop
    failed: set[int] = field(default_factory=set)  # trials that could not be run here
    confirmed: float = field(default_factory=time.monotonic)  # when the claims were last

    def run(self, on_update: Callable[[Study], None] | None) -> None:
        """Work until nothing is left to do, here or elsewhere."""
        report = on_update or (lambda study: None)
        try:
            with stop_on_error(self.running):
                self.start_trials()
                while self.running or self.open_trials():
                    report(self.study)
                    self.look()
                    self.start_trials()
                report(self.study)
        finally:
            for job in self.running.values():
                release(job.trial)

    def start_trials(self) -> None:
        """Start trials while there is room for them, each by the choice that the study has."""
        space = self.search.space
        while len(self.running) < self.pool.count_places():
            trial = self.find_trial()
            if trial is None:
                return
            if not claim(trial):
                continue
            choice = {
                name: trial.suggest_categorical(name, values)
                for name, values in space.ranges.items()
            }
            config = space.config(choice)
            say(trial, "parameters", parameters_of(config))
            folder = trial_folder(self.folder, trial.number)
            job = _TrialJob(folder=folder, config=config, gpus=self.gpus, trial=trial)
            self.running[self.pool.submit(job)] = job

    def find_trial(self) -> Trial | None:
        """A trial that no one is at work on any more, else the next if there are to be more."""
        mine = {job.trial.number for job in self.running.values()}
        for frozen in self.open_trials():
            if frozen.number not in mine and is_forfeit(frozen):
                return Trial(self.study, frozen._trial_id)
        if len(self.study.get_trials(deepcopy=False)) >= self.trials:
            return None
        trial = self.study.ask()
        if trial.number < self.trials:
            return trial
        release(trial)  # another process took the last one; this is for a longer search
        return None

    def open_trials(self) -> list[FrozenTrial]:
        """The trials that have begun and may still be done, here or elsewhere."""
        begun = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [t for t in begun if t.number < self.trials and t.number not in self.failed]

    def look(self) -> None:
        """Wait a moment, note what ended, stop what lags, confirm the claims."""
        if self.running:
            done = wait(self.running, timeout=LOOK, return_when=FIRST_COMPLETED).done
        else:
            time.sleep(LOOK)
            done = set()
        for future in done:
            job = self.running.pop(future)
            self.note(job.trial, outcome_of(job, future))
        for job in self.running.values():
            if self.search.pruner != "none" and lags(job.trial, job.folder):
                self.pruned.add(job.trial.number)
                request_stop(job.folder)
        if time.monotonic() - self.confirmed > CLAIM:
            self.confirmed = time.monotonic()
            for job in self.running.values():
                claim(job.trial)

    def note(self, trial: Trial, outcome: Outcome) -> None:
        """Tell the study what became of a trial."""
        say(trial, "folder", str(outcome.job.folder.absolute()))
        say(trial, "error", outcome.error)
        ends = {"finished": TrialState.COMPLETE, "diverged": TrialState.FAIL}
        if trial.number in self.pruned:
            ends["stopped"] = TrialState.PRUNED
        if outcome.state not in ends:  # the fault of a machine: left for another attempt
            self.failed.add(trial.number)
            release(trial)
            return
        result = outcome.result or {}
        for key in ("epochs", "seconds_per_epoch", "device"):
            if key in result:
                say(trial, key, result[key])
        error = result.get("best_validation_error")
        # Unless a process that took this one for dead was quicker.
        self.study.tell(trial.number, error, ends[outcome.state], skip_if_finished=True)


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


def lags(trial: Trial, folder: Path) -> bool:
    """Report a trial's validation errors so far to its study; whether the pruner would stop it."""
    known = trial.storage.get_trial(trial._trial_id).intermediate_values
    with suppress(CLOSED):
        for row in RunFolder(folder).rows():
            epoch, error = row["epoch"], row["validation_error"]
            if error is not None and epoch not in known:
                trial.report(error, epoch)
                if trial.should_prune():
                    return True
    return False
