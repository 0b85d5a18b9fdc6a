"""One way to run many runs: on the cores and GPUs of this machine, or on a dask cluster.

A job is a run folder and what belongs in it. It can be asked for again and again: what is finished
is left alone and what is not goes on from its checkpoint, so a lost machine costs the work since
the last checkpoint and nothing else.
"""

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from torchcno.data.processes import available_cores
from torchcno.disk import refuse_link
from torchcno.runs.config import RunConfig
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.folder import RunFolder
from torchcno.runs.job_process import Answer, Request, request_stop, run_in_process, stop_file
from torchcno.runs.train import train_runs_together
from torchcno.training import Diverged, Interrupted
from torchcno.training.interruption import terminable

JOBS_A_GPU = 4  # small networks leave most of a GPU idle; more than four gain little
GO_ON = "Start it again: the same command goes on from what is saved."
CONNECTING = 10.0  # seconds to wait for a cluster's scheduler


@dataclass(frozen=True)
class Job:
    """A run to be brought to its end in a folder."""

    folder: Path
    config: RunConfig
    splits: tuple[str, ...] = EVALUATED  # to evaluate at the end
    gpus: float = 0.0  # of a cluster's resource GPU; 0.25: four such jobs share one

    def __post_init__(self) -> None:
        hardware = self.config.hardware
        if hardware.devices * hardware.nodes > 1:
            raise ValueError(
                "many runs have a device each, or share one; leave --devices and --nodes out, or "
                "train the run by itself: cno train."
            )

    @property
    def request(self) -> Request:
        """The job as a plain tree, for another process or another machine."""
        return {
            "folder": str(self.folder.absolute()),
            "config": self.config.to_tree(),
            "splits": list(self.splits),
        }

    @property
    def result(self) -> dict[str, Any] | None:
        """What result.json says, once the run is finished."""
        return RunFolder(self.folder).result()


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    state: str  # "finished", "stopped", "diverged" or "failed"
    error: str = ""  # why it is not finished
    worked: bool = True  # False: nothing was done, since it was finished already, or refused

    @property
    def result(self) -> dict[str, Any] | None:
        """What result.json says, if the run is finished."""
        return self.job.result if self.state == "finished" else None


def run_jobs(
    jobs: Sequence[Job],
    *,
    parallel: int | None = None,
    cluster: str | None = None,
    together: bool = False,
    on_update: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Bring all `jobs` to their ends; the outcomes, in the order of the jobs.

    `parallel` of them at a time in processes of this machine (unless given: `default_parallel`; 0:
    one after the other in this process), or as many as there is room for on the dask `cluster` at
    that address. Or `together`, in this process: those that differ in their seeds alone at once, on
    CUDA in one graph, and one such group after the other. `on_update` hears of every outcome as it
    comes, first of the jobs that were finished before, or are refused. One job's failure stops no
    other; an interrupt stops all, with their states saved.
    """
    outcomes: dict[Path, Outcome] = {}

    def note(outcome: Outcome) -> None:
        outcomes[outcome.job.folder] = outcome
        if on_update is not None:
            on_update(outcome)

    folders = [job.folder.absolute() for job in jobs]
    for folder in folders:
        if folders.count(folder) > 1:
            raise ValueError(f"two jobs have the folder {folder}; give each its own.")
    for job in jobs:
        if outcome := find_outcome(job):
            note(outcome)
    todo = [job for job in jobs if job.folder not in outcomes]
    if together:
        for group in group_by_seed(todo):
            for job in group:
                job.folder.mkdir(parents=True, exist_ok=True)
            answers = run_together([job.request for job in group])
            for job, answer in zip(group, answers, strict=True):
                note(Outcome(job, **answer))
            if any(outcomes[job.folder].state == "stopped" for job in group):
                raise KeyboardInterrupt
    elif parallel == 0:
        for job in todo:
            job.folder.mkdir(parents=True, exist_ok=True)
            note(Outcome(job, **run_request(job.request)))
            if outcomes[job.folder].state == "stopped":
                raise KeyboardInterrupt
    elif todo:
        with workers(parallel or default_parallel(todo[0].config), cluster, todo) as pool:
            futures = {pool.submit(job): job for job in todo}
            with stop_on_error(futures):  # who is told of outcomes may fail, too
                while futures:
                    for future in wait(futures, return_when=FIRST_COMPLETED).done:
                        note(outcome_of(futures.pop(future), future))
    return [outcomes[job.folder] for job in jobs]


def find_outcome(job: Job) -> Outcome | None:
    """What is clear before any work: that a run is finished, or its folder refused; else None."""
    folder = RunFolder(job.folder)
    if not folder.has_begun:
        return None
    try:
        folder.refuse_another(job.config)
    except ValueError as error:
        return Outcome(job, "failed", str(error), worked=False)
    return None if folder.result() is None else Outcome(job, "finished", worked=False)


def outcome_of(job: Job, future: "Future[Answer]") -> Outcome:
    """The outcome of a job that was run; a worker that could not even try is a failure too."""
    try:
        answer = future.result()
    except CancelledError:
        answer = {"state": "failed", "error": f"its cluster's scheduler is gone. {GO_ON}"}
    except Exception as error:
        answer = {"state": "failed", "error": f"{type(error).__name__}: {error}"}
    return Outcome(job, **answer)


@contextmanager
def stop_on_error(futures: Mapping["Future[Answer]", Job]) -> Iterator[None]:
    """When the body fails, or is interrupted, the jobs under way stop with their states saved."""
    try:
        with terminable():
            yield
    except BaseException:
        running = [future for future in futures if not future.cancel()]
        # Also cancelled ones that have a folder: dask cancels what a worker has begun, and leaves
        # it at it.
        for future, job in futures.items():
            if future in running or job.folder.exists():
                request_stop(job.folder)
        wait(running)
        raise


@dataclass(frozen=True)
class Workers:
    """Those who run jobs, here or elsewhere."""

    count_places: Callable[[], int]  # how many jobs they run at a time
    run: Callable[[Job], Future[Answer]]  # as soon as there is room

    def submit(self, job: Job) -> Future[Answer]:
        """Run `job`, also one that was stopped before: who asks again means it."""
        refuse_link(job.folder)
        stop_file(job.folder).unlink(missing_ok=True)
        return self.run(job)


def workers(
    parallel: int, cluster: str | None, jobs: Sequence[Job]
) -> AbstractContextManager[Workers]:
    """Processes of this machine, or the cluster at an address, if it has what `jobs` need."""
    return local_workers(parallel) if cluster is None else cluster_workers(cluster, jobs)


@contextmanager
def local_workers(parallel: int) -> Iterator[Workers]:
    """`parallel` processes of this machine at a time, which share its GPUs and cores evenly."""
    if parallel < 1:
        raise ValueError(f"{parallel} jobs at a time; use at least 1.")
    free: SimpleQueue[dict[str, str]] = SimpleQueue()  # the shares that no job has
    for place in range(parallel):
        free.put(_share(place, parallel))

    def run(job: Job) -> Answer:
        share = free.get()
        try:
            return run_in_process(job.request, share)
        finally:
            free.put(share)

    with ThreadPoolExecutor(parallel) as threads:
        yield Workers(lambda: parallel, lambda job: threads.submit(run, job))


@contextmanager
def cluster_workers(address: str, jobs: Sequence[Job]) -> Iterator[Workers]:
    """The workers of a dask cluster, which see the same files under the same names."""
    if find_spec("distributed") is None:
        raise ValueError("a cluster needs dask.distributed: pip install 'torchcno[cluster]'.")
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)  # a client that never had an address ends only after 20 s
        client: Any = Client(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"no dask scheduler answers at {address!r} ({error}); start one with `dask scheduler` "
            "and give the address that it prints, such as tcp://10.0.0.1:8786."
        ) from error

    def count_places() -> int:
        return max(1, sum(client.nthreads().values()))  # one where no worker has come yet

    def run(job: Job) -> Future[Answer]:
        resources = {"GPU": job.gpus} if job.gpus else None
        # Not pure: dask shall not take yesterday's answer for a job that was stopped since.
        executor = client.get_executor(pure=False, resources=resources)
        future: Future[Answer] = executor.submit(run_in_process, job.request)
        return future

    with client:
        _refuse_lack_of_gpus(client, address, jobs)
        try:
            yield Workers(count_places, run)
        except OSError as error:
            if client.status == "running":
                raise
            raise ConnectionError(f"the scheduler at {address} is gone. {GO_ON}") from error


def _refuse_lack_of_gpus(client: Any, address: str, jobs: Sequence[Job]) -> None:
    """Refuse jobs for which none of the workers that there are has the GPUs: they would not start.

    Workers may still be on their way, in the queue of a batch system: then jobs wait for them.
    """
    there = client.scheduler_info(n_workers=-1)["workers"].values()
    most = max((worker["resources"].get("GPU", 0) for worker in there), default=float("inf"))
    needed = max((job.gpus for job in jobs), default=0)
    if needed > most:
        raise ValueError(
            f"a job needs {needed:g} GPU and no worker of {address} offers more than {most:g}; "
            "start workers with `dask worker ADDRESS --resources GPU=1`, one a GPU."
        )


def default_parallel(config: RunConfig) -> int:
    """How many such runs fit on this machine: some on every GPU, or one a core."""
    if config.hardware.accelerator != "cpu" and _visible_gpus():
        return JOBS_A_GPU * len(_visible_gpus())
    return available_cores()


def _share(place: int, places: int) -> dict[str, str]:
    """The environment of the process in one of the `places` of this machine: a GPU, some cores."""
    cores, gpus = max(1, available_cores() // places), _visible_gpus()
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores))}
    return threads | ({"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if gpus else {})


def _visible_gpus() -> list[str]:
    """The names of this machine's GPUs for CUDA_VISIBLE_DEVICES."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


def group_by_seed(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that differ in their seeds and folders alone, in groups."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        tree = replace(job.config, seed=0).to_tree()
        groups.setdefault(json.dumps([tree, job.splits, job.gpus]), []).append(job)
    return list(groups.values())


def run_request(request: Request) -> Answer:
    """Bring the run of a request to its end in this process, and say how that went.

    Whatever part of it is done is left. Who finds another process at work there waits for it.
    """
    (answer,) = run_together([request])
    return answer


def run_together(requests: Sequence[Request]) -> list[Answer]:
    """`run_request` for runs that differ in their seeds alone, which are trained together."""
    folders, splits = [one["folder"] for one in requests], tuple(requests[0]["splits"])
    try:
        configs = [RunConfig.from_tree(one["config"]) for one in requests]
        found = train_runs_together(configs, folders, splits=splits, mode="either")
    except Interrupted as interrupted:
        return [{"state": "stopped", "error": str(interrupted)} for _ in requests]
    except Exception as error:
        traceback.print_exc()
        return [{"state": "failed", "error": str(error) or type(error).__name__} for _ in requests]
    return [
        {"state": "diverged", "error": str(one)} if isinstance(one, Diverged)
        else {"state": "finished"}
        for one in found
    ]  # fmt: skip
