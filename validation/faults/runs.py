"""Runs whose process, power or disk fails: each goes on to the end of the run left alone."""

import errno
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from validation.faults.operations import (
    FAILING,
    Failing,
    Killing,
    Operations,
    PowerCut,
    clear,
    count_operations,
)
from validation.faults.scene import Count, Scene, in_child

from torchcno.data.generate import make_file
from torchcno.data.samples import Samples
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson


def kill_at_operations(scene: Scene, share: range, name: str) -> Count:
    """SIGKILL at operations on files, of which `share` says every how many and from where."""
    count, folder = Count(f"kill at a file operation: {scene.work}"), scene.fresh(name)
    for at in _moments(scene, folder, share):
        clear(folder)
        _under(Killing(folder, at), scene, folder)
        scene.settle(count, folder, f"operation {at}")
    return count


def kill_at_random(scene: Scene, tries: int, seed: int) -> Count:
    """SIGKILL at random moments, up to three times in a run."""
    count, draw = Count("kill at a random moment"), random.Random(seed)
    seconds = in_child(lambda: scene.train(scene.fresh(f"timed-{seed}"))).seconds
    for number in range(tries):
        folder = scene.fresh(f"random-{seed}")
        for _ in range(draw.randint(1, 3)):
            in_child(partial(scene.train, folder), kill_after=draw.uniform(0, seconds))
        scene.settle(count, folder, f"try {number} of seed {seed}")
    return count


def cut_power(scene: Scene, share: range, name: str) -> Count:
    """Power cuts at operations on files; each leaves one of the disks that it may leave."""
    count, folder = Count(f"power cut: {scene.work}"), scene.fresh(name)
    after = folder.with_name(f"{name}-after")
    for at in _moments(scene, folder, share):
        clear(folder)
        clear(after)
        _under(PowerCut(folder, at, at, after), scene, folder)
        scene.settle(count, after, f"operation {at}")
    return count


def fail_disk(scene: Scene, number: int, share: range, name: str) -> Count:
    """A disk that fails from an operation on; then it is mended, and the same command goes on."""
    count, folder = Count(f"disk fails: {errno.errorcode[number]}"), scene.fresh(name)
    for at in _moments(scene, folder, share):
        clear(folder)
        ending = _under(Failing(folder, at, number), scene, folder)
        what = f"{errno.errorcode[number]} at operation {at}"
        if ending.error and not _is_explained(ending.error, folder):
            count.lose(f"{what}: {ending.error}")
        else:
            scene.settle(count, folder, what)
    return count


GENERATED: dict[str, Samples] = {
    "pairs": Samples.of(Poisson(), "train", 48, samples=200),
    "trajectories": Samples.of(
        NavierStokes(N=24), "train", 24, samples=40, times=(0.0, 0.01, 0.02)
    ),
}


def kill_generation(scene: Scene, tries: int, what: str) -> Count:
    """SIGKILL at random moments while data are made; the file in the end is the same."""
    count, draw = Count(f"kill while data are made: {what}"), random.Random(what)
    out = scene.fresh("generated")

    def make() -> bytes:
        return make_file(GENERATED[what], out, workers=1).read_bytes()

    whole = in_child(make)
    for number in range(tries):
        clear(out)
        in_child(make, kill_after=draw.uniform(0, whole.seconds))
        again = in_child(make)
        if again.error or again.killed:
            count.lose(f"try {number}: {again.error or again.killed}")
        elif again.value != whole.value or len(list(out.iterdir())) != 1:
            count.miss(f"try {number}: the file differs")
        else:
            count.survive()
    return count


def _moments(scene: Scene, folder: Path, share: range) -> Iterator[int]:
    """The operations at which something happens."""
    total = in_child(lambda: count_operations(folder, lambda: scene.train(folder)))
    assert total.value, total
    return iter(range(share.start, total.value + 1, share.step))


def _under(operations: Operations, scene: Scene, folder: Path) -> Any:
    """Train into `folder` under `operations`, in a process of its own."""

    def work() -> None:
        operations.install()
        scene.train(folder)

    return in_child(work)


def _is_explained(error: str, folder: Path) -> bool:
    """Whether an error names a file of the folder and what to do about it."""
    return error.startswith("DiskError") and str(folder) in error and ";" in error


ERRORS = tuple(FAILING)
