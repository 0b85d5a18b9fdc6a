"""The run that faults are tried on, processes to try them in, and the count of what came out."""

import os
import pickle
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from torchcno.data.fields import Fields
from torchcno.data.trajectories import Trajectories
from torchcno.grids import Grid
from torchcno.models.ffnn import FFNN
from torchcno.problems.poisson import Poisson
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.train import Watch, train, train_on, train_run
from torchcno.training import Hardware
from torchcno.training.checkpoint import load_tensors

SPLITS = ("val",)
PATIENCE = 120.0  # seconds for a process
KEYS = ("tries", "survived", "lost", "silent")


@dataclass
class Count:
    """What came out of the tries of one kind."""

    kind: str
    tries: int = 0
    survived: int = 0  # ended as if nothing had happened, or was refused with the file's name
    lost: int = 0  # work that could not be gone on with, or a refusal without a name or a remedy
    silent: int = 0  # another result without a word, bytes outside the folder, foreign code run
    cpu_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Count") -> None:
        """Take the tries of another count into this one."""
        for key in (*KEYS, "cpu_seconds", "failures"):
            setattr(self, key, getattr(self, key) + getattr(other, key))

    def survive(self) -> None:
        """A try that ended well."""
        self.tries += 1
        self.survived += 1

    def lose(self, why: str) -> None:
        """A try that cost work."""
        self.tries += 1
        self.lost += 1
        self.failures.append(why)

    def miss(self, why: str) -> None:
        """A try whose fault nobody was told of."""
        self.tries += 1
        self.silent += 1
        self.failures.append(why)


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    value: Any = None
    error: str = ""  # "Type: message" of what it raised
    killed: int = 0  # the signal that ended it
    megabytes: float = 0.0  # that its memory grew by at most
    seconds: float = 0.0


def in_child(work: Callable[[], Any], kill_after: float | None = None) -> Ending:
    """Do `work` in a process of its own, which is killed after some seconds, if given.

    A copy of this one: nothing is imported anew. Its output goes nowhere.
    """
    source, sink = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(source)
        _be_child(work, sink)
    os.close(sink)
    content = b""
    end = start + (PATIENCE if kill_after is None else kill_after)
    with open(source, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
            part = stream.read(2**20) if ready else b""
            if not part:
                if not ready:
                    os.kill(child, signal.SIGKILL)
                break
            content += part
    _, status = os.waitpid(child, 0)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    seconds = time.monotonic() - start
    if killed or not content:
        return Ending(killed=killed or -1, seconds=seconds)
    return replace(pickle.loads(content), seconds=seconds)


def _be_child(work: Callable[[], Any], sink: int) -> None:
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        ending = Ending(work())
    except BaseException as error:
        ending = Ending(error=f"{type(error).__name__}: {error}")
        if os.environ.get("FAULTS_TRACEBACK"):
            ending = replace(ending, error=traceback.format_exc())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with open(sink, "wb") as stream:
        pickle.dump(replace(ending, megabytes=grown / 1024), stream)
    os._exit(0)


@dataclass(frozen=True)
class Scene:
    """A finished run of each kind that nothing happened to, and its data."""

    home: Path
    config: RunConfig
    tries: Path  # where the folders of tries lie
    work: str = "run"  # the kind that faults happen to: a name of `WORKS`

    @property
    def reference(self) -> Path:
        """The folder of the run that was left alone."""
        return self.home / "reference" / self.work

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.home / "data"

    def train(self, folder: Path) -> None:
        """Bring the run in `folder` to its end, whatever part of it is done."""
        WORKS[self.work](self, folder)

    def fresh(self, name: str) -> Path:
        """A folder that is not there."""
        folder = self.tries / name
        remove(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder

    def copy(self, name: str) -> Path:
        """A copy of the finished run."""
        folder = self.fresh(name)
        shutil.copytree(self.reference, folder)
        return folder

    def interrupted(self, name: str) -> Path:
        """A copy of the run as it was after its first epochs."""
        folder = self.fresh(name)
        shutil.copytree(self.home / "interrupted", folder)
        return folder

    def difference(self, folder: Path) -> str:
        """What tells the run in `folder` from the one that was left alone; nothing where equal."""
        mine, other = outcome(folder), outcome(self.reference)
        for key, value in other.items():
            if mine.get(key) != value:
                return f"{key} differs"
        return ""

    def settle(self, count: Count, folder: Path, what: str) -> None:
        """Go on with the run in `folder`, and count whether it ends as the one left alone."""
        ending = in_child(lambda: self.train(folder))
        if ending.error or ending.killed:
            count.lose(f"{what}: {ending.error or ending.killed}")
            return
        different = in_child(lambda: self.difference(folder))
        left = [path.name for path in folder.rglob("*.part")]
        if different.error or different.value:
            count.miss(f"{what}: {different.error or different.value}")
        elif left:
            count.lose(f"{what}: {left[0]} is left over")
        else:
            count.survive()


def remove(path: Path) -> None:
    """Whatever is at `path`, away."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def outcome(folder: Path) -> dict[str, Any]:
    """All of a run that is the same each time, to the last bit: of the folder and those in it."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        tensors = load_tensors(path)[0]
        found[str(path.relative_to(folder))] = {n: t.numpy().tobytes() for n, t in tensors.items()}
    for path in sorted(folder.rglob("result.json")):
        run = RunFolder(path.parent)
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in run.rows()]
        result = run.result() or {}
        said = {key: result.get(key) for key in ("errors", "weights", "best_validation_error")}
        found[str(path.relative_to(folder))] = said, rows
    return found


def _train_benchmark(scene: Scene, folder: Path) -> None:
    train_run(scene.config, folder, splits=SPLITS, mode="either")


def _train_own(scene: Scene, folder: Path) -> None:
    """Fields in memory, of which the folder keeps a copy, and a network of the user's own."""
    u = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    fields = Fields(u, 1 + u.flip(-1), Grid((8, 8), "periodic"))
    torch.manual_seed(0)
    network = FFNN(FFNN.Config(size=(8, 8), layers=2, width=8))
    train_on(network, fields[:8], fields[8:], folder, **_own_way(scene))


def _train_ensemble(scene: Scene, folder: Path) -> None:
    """Two members, each with a training of its own in the folder."""
    u = torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    fields = Fields(u, 1 + u.flip(-1), Grid((8, 8), "periodic"))
    way = _own_way(scene) | {"members": 2, "layers": 2, "width": 8}
    train("ffnn", fields[:8], fields[8:], folder, watch=Watch(), **way)


def _train_evolution(scene: Scene, folder: Path) -> None:
    """Steps of trajectories, of which the folder keeps a copy."""
    u = torch.rand(12, 3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    times = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    paths = Trajectories(u, times, Grid((8, 8), "periodic"))
    way = _own_way(scene) | {"layers": 2, "width": 8}
    train("ffnn", paths[:8], paths[8:], folder, watch=Watch(), **way)


def _own_way(scene: Scene) -> dict[str, Any]:
    recipe = replace(scene.config.train, samples=None, augmentation="none", normalization=None)
    return {"recipe": recipe, "hardware": Hardware(accelerator="cpu"), "resume": True}


# What brings the run in a folder to its end, whatever part of it is done. A new kind of run folder
# is one entry here, and new kinds of file in it are entries of `flips.KINDS`.
WORKS: dict[str, Callable[[Scene, Path], None]] = {
    "run": _train_benchmark,
    "own data": _train_own,
    "ensemble": _train_ensemble,
    "trajectories": _train_evolution,
}


def make_scene(home: Path) -> Scene:
    """The scene in the folder `home`: data, runs left alone, and one that was interrupted.

    The runs left alone are trained in this very process. So whatever is made once is made, and the
    processes of all tries, which are copies of this one, begin with it.
    """
    torch.set_num_threads(1)  # no thread but this one: a copy would not have the others
    config = RunConfig.resolve(
        Poisson(K=4),
        "cno",
        resolution=24,
        data=home / "data",
        hardware=Hardware(accelerator="cpu"),
    )
    config = replace(
        config,
        architecture=replace(
            config.architecture, levels=1, width=4, lift_width=4, neck_blocks=1, skip_blocks=1
        ),
        train=replace(
            config.train,
            epochs=3,
            samples=8,
            batch_size=4,
            evaluate_every=1,
            checkpoint_every=0,
            averaging_half_life=1,
            symmetric_predictions=False,  # sixteen times the work, and no other file
        ),
    )
    scene = Scene(home, config, home / "tries")
    for work in WORKS:
        one = replace(scene, work=work)
        one.train(one.reference)
    stopped = in_child(lambda: _stop_after(scene, home / "interrupted", epochs=2))
    if stopped.error or stopped.killed:
        sys.exit(f"the scene could not be made: {stopped.error or stopped.killed}")
    return scene


def _stop_after(scene: Scene, folder: Path, epochs: int) -> None:
    """Train, and stop with the state saved after some epochs."""
    from torchcno.training import Interrupted

    def stop(epoch: Any) -> None:
        if epoch.epoch == epochs:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        train_run(scene.config, folder, Watch(epoch=stop), SPLITS)
    except Interrupted:
        return
    raise RuntimeError("the run was not interrupted")
