"""Data files made in parallel, atomically, and resumably.

Samples are made in chunks. A finished chunk lies in a hidden folder beside the file to be; when all
are there the file is put together and moved to its name, and the folder goes. An interrupted call
leaves its finished chunks, and the next one goes on from them.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchcno.data import files
from torchcno.data.processes import available_cores, call_in_processes, can_start_processes
from torchcno.data.samples import Samples
from torchcno.disk import DiskError, explain, flush_folder, make_own_folder, open_own
from torchcno.locks import locked
from torchcno.problems.problem import Problem, Resolution

Progress = Callable[[int, int], None]  # samples done, samples in all

CPU_CHUNK = 4  # samples; small, for a chunk is what an interruption can lose
PROCESSES_PAY = 10.0  # seconds of work below which starting other processes is not worth it


def generate(
    problem: Problem,
    split: str,
    *,
    folder: Path | str,
    samples: int | None = None,
    resolution: Resolution | None = None,
    seed: int = 0,
    times: Sequence[float] = (),
    **making: Any,
) -> Path:
    """The data file of a split in `folder`, by `make_file`, whose other arguments are `making`.

    `samples` and `resolution` are the paper's unless given. With `times`, samples are trajectories
    at these times, of a problem that evolves.
    """
    wanted = Samples.of(problem, split, resolution, seed, samples, times)
    return make_file(wanted, folder, **making)


def make_file(
    samples: Samples,
    folder: Path | str,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Path:
    """The file of these samples in `folder`, named by `files.file_name`, made unless it is there.

    A file of the same recipe that holds at least as many samples is left as it is; one that holds
    fewer is extended; one of another recipe is an error unless `overwrite`. On the CPU, `workers`
    processes make it: unless given, as many as there are cores if the work is worth their start.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; use 1 or more.")
    where = solver_device(device)
    path = Path(folder) / files.file_name(samples)
    if not overwrite and is_there(path, samples):
        return path
    samples.check_inputs()
    refuse_without_room(path, samples)
    with say_what_is_kept(path), partial_folder(path, samples, where.type) as partial:
        if not overwrite and is_there(path, samples):  # made while we waited for the folder
            shutil.rmtree(partial, ignore_errors=True)
            return path
        on_cpu = where.type == "cpu"
        size = CPU_CHUNK if on_cpu else samples.gpu_batch
        work = Work(samples, partial, where, size)
        if not overwrite and path.exists():
            work.adopt(path)
        work.run(workers, progress or (lambda done, total: None))
        complete = partial / "complete.nc"
        files.write(complete, samples, where.type, map(work.read, work.chunks))
        os.replace(complete, path)
        flush_folder(path.parent)
        # On a network file system the open lock outlives its removal for a moment: no error.
        shutil.rmtree(partial, ignore_errors=True)
    return path


def refuse_without_room(path: Path, samples: Samples) -> None:
    """Refuse now what the disk cannot hold, and not after days of work."""
    needed = files.bytes_of(samples)
    there = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise ValueError(
            f"{samples.count} samples take {needed / 1e9:.3g} GB, and the disk of {path.parent} "
            f"has {free / 1e9:.3g} GB left; ask for fewer samples, or choose another folder."
        )


def solver_device(name: str | torch.device) -> torch.device:
    """The device of that name, if PDEs are solved on its kind and it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {str(name)!r}; use cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no device {str(name)!r} here; use the device cpu.")
    return device


def is_there(path: Path, wanted: Samples) -> bool:
    """Whether the file at `path` holds the samples; an error where it holds others."""
    if not path.exists():
        return False
    header = files.read_header(path)
    there, asked = header.identity, wanted.identity
    if there["recipe_version"] != asked["recipe_version"]:
        raise ValueError(
            f"{path} holds data by version {there['recipe_version']} of the recipe of "
            f"{asked['problem']}; this torchcno makes version {asked['recipe_version']}, which is "
            "other data. Delete the file or overwrite it; to keep it, choose another folder."
        )
    if there != asked:
        differences = "; ".join(
            f"{key}: {there.get(key)!r} there, {value!r} asked for"
            for key, value in asked.items()
            if there.get(key) != value
        )
        raise ValueError(
            f"{path} holds data of another recipe ({differences}); "
            "choose another folder, or overwrite."
        )
    return header.samples >= wanted.count


@contextmanager
def say_what_is_kept(path: Path) -> Iterator[None]:
    """Errors of the file system in words that say what to do."""
    try:
        yield
    except (files.Damaged, ChildProcessError):  # they say themselves what to do
        raise
    except OSError as error:
        words = str(error) if isinstance(error, DiskError) else explain(error, path)
        kept = "Finished samples are kept where they could be written."
        raise DiskError(error.errno, f"{words} {kept}") from error


@contextmanager
def partial_folder(path: Path, wanted: Samples, device: str) -> Iterator[Path]:
    """The hidden folder of finished chunks for the file at `path`, for one process at a time."""
    key = json.dumps([wanted.identity, device]).encode()
    digest = hashlib.blake2b(key, digest_size=6).hexdigest()
    partial = path.with_name(f".{path.name}.{digest}.partial")
    make_own_folder(partial)
    with locked(partial):
        yield partial


@dataclass(frozen=True)
class Work:
    """Samples, to be made chunk by chunk into the folder `partial`."""

    samples: Samples
    partial: Path
    device: torch.device
    chunk_size: int  # samples

    @property
    def chunks(self) -> list[range]:
        """The numbers of the samples of each chunk."""
        numbers = range(self.samples.count)
        return [numbers[i : i + self.chunk_size] for i in numbers[:: self.chunk_size]]

    def path(self, chunk: range) -> Path:
        """Where a finished chunk lies."""
        return self.partial / f"{chunk.start:08d}.npz"

    def make(self, chunk: range) -> None:
        """Make a chunk and put it in its place.

        A solver's rounding may depend on which samples share a batch. So a batch is one sample on
        the CPU, and on a GPU always a full chunk, whose surplus is dropped: no sample's bits
        depend on how many were asked for.
        """
        size = 1 if self.device.type == "cpu" else self.chunk_size
        batches = [range(i, i + size) for i in chunk[::size]]
        made = zip(*(self.samples.make(batch, self.device) for batch in batches), strict=True)
        self.put(chunk, tuple(torch.cat(parts)[: len(chunk)].numpy() for parts in made))

    def put(self, chunk: range, arrays: files.Arrays) -> None:
        """Keep a chunk: under its own name once it is whole."""
        unfinished = self.path(chunk).with_suffix(".writing.npz")
        unfinished.unlink(missing_ok=True)  # what a kill left, or a stranger's link
        named: dict[str, Any] = dict(zip(self.samples.shapes, arrays, strict=True))
        with open(open_own(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            np.savez(file, **named)
        os.replace(unfinished, self.path(chunk))

    def read(self, chunk: range) -> files.Arrays:
        """A finished chunk."""
        with self.path(chunk).open("rb") as file, np.load(file) as kept:
            return tuple(kept[name][: len(chunk)] for name in self.samples.shapes)

    def is_finished(self, chunk: range) -> bool:
        """Whether a chunk lies in its place, whole."""
        try:
            return len(self.read(chunk)[-1]) == len(chunk)
        except Exception:  # a broken archive makes its reader raise anything
            return False

    def adopt(self, path: Path) -> None:
        """Take over the whole chunks of a shorter file of the same recipe."""
        header = files.read_header(path)
        if header.device != self.device.type:
            return
        arrays, _ = files.read(path, header.samples)
        for chunk in self.chunks:
            if chunk.stop <= header.samples:
                held = slice(chunk.start, chunk.stop)
                self.put(chunk, tuple(array[held] for array in arrays))

    def run(self, workers: int | None, progress: Progress) -> None:
        """Make every chunk that is not finished."""
        todo = [chunk for chunk in self.chunks if not self.is_finished(chunk)]
        done = self.samples.count - sum(map(len, todo))
        progress(done, self.samples.count)

        def report(chunk: range) -> None:
            nonlocal done
            done += len(chunk)
            progress(done, self.samples.count)

        if (
            self.device.type == "cuda"
            or workers == 1
            or not can_start_processes(type(self.samples.problem))
        ):
            make_here(self, todo, report)
        elif workers is not None:
            call_in_processes(self.make, todo, workers, report)
        else:
            start = time.perf_counter()
            make_here(self, todo[:1], report)
            remaining = (time.perf_counter() - start) * len(todo[1:])
            if remaining < PROCESSES_PAY or available_cores() == 1:
                make_here(self, todo[1:], report)
            else:
                call_in_processes(self.make, todo[1:], available_cores(), report)


def make_here(work: Work, chunks: Sequence[range], report: Callable[[range], None]) -> None:
    """Make chunks in this process, on one core: more threads would change the order of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for chunk in chunks:
            work.make(chunk)
            report(chunk)
    finally:
        torch.set_num_threads(threads)
