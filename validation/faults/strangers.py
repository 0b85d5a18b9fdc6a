"""A folder of someone else: it writes nothing outside itself, runs nothing, and costs little."""

import ctypes
import errno
import fcntl
import io
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import h5netcdf
import numpy as np
from validation.faults.scene import WORKS, Count, Scene, in_child, remove

from torchcno.data import files
from torchcno.data.generate import Work, generate
from torchcno.locks import locked
from torchcno.problems.poisson import Poisson
from torchcno.runs import job_process
from torchcno.runs.config import read_tree, write_tree
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.job_process import run_in_process
from torchcno.runs.jobs import Job
from torchcno.runs.predict import read_array, read_dataset
from torchcno.runs.search.space import Space
from torchcno.runs.search.study import Search, open_study
from torchcno.runs.train import resume_run
from torchcno.training.checkpoint import load_tensors

SECONDS, MEGABYTES = 10.0, 300.0  # that a bomb may cost


def follow_links(scene: Scene) -> Count:
    """Links out of a folder, in place of each name that is written there."""
    count = Count("link out of a folder")
    for name in (
        *(".lock", ".lock-owner", "metrics.jsonl", "model.safetensors", "config.yaml"),
        *("model.json", "checksums.jsonl", "result.json", "errors.npz", "examples.npz", "log.txt"),
        *("stop", "checkpoint", "checkpoint/state.safetensors", "tensorboard", "trust.npz"),
    ):
        act = _resume if name in ("metrics.jsonl", "checkpoint", "tensorboard") else _run_job
        _try_links(count, scene, lambda: scene.interrupted("linked"), name, act)
    members = ("members", "members/0", "members/1/metrics.jsonl", "members/1/model.safetensors")
    for name in (*members, "data.safetensors"):
        _try_links(count, scene, lambda: _empty(scene), name, WORKS["ensemble"])
    partial = str(in_child(lambda: _partial_name(scene)).value)
    inside = (".lock", "00000000.npz", "00000000.writing.npz", "complete.nc")
    for name in (partial, "poisson-val-24.nc", *(f"{partial}/{name}" for name in inside)):
        _try_links(count, scene, lambda: _empty(scene), name, _make)
    for name in (".lock", "study.db", "study.db-journal", "search.yaml", "trials"):
        _try_links(count, scene, lambda: _empty(scene), name, _search)
    return count


def _empty(scene: Scene) -> Path:
    folder = scene.fresh("linked")
    folder.mkdir()
    return folder


def _try_links(
    count: Count,
    scene: Scene,
    make: Callable[[], Path],
    name: str,
    act: Callable[[Scene, Path], object],
) -> None:
    """Put a link in place of `name`, to a copy of it, a full file, an empty one, and nothing."""
    for kind in ("copy", "full", "empty", "folder", "nothing"):
        folder, outside = make(), scene.fresh("outside")
        outside.mkdir()
        link, target = folder / name, outside / "target"
        if kind == "copy" and link.exists():
            (shutil.copytree if link.is_dir() else shutil.copy)(link, target)
        elif kind in ("full", "empty"):
            target.write_text("precious" * (kind == "full"))
        elif kind == "folder":
            target.mkdir()
        remove(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        before = _picture(outside)
        ending = in_child(lambda act=act, folder=folder: act(scene, folder))
        if _picture(outside) != before:
            count.miss(f"{name} as a link ({kind}): {sorted(_picture(outside))}")
        elif ending.killed or ending.error.startswith(("OSError", "IsADirectoryError")):
            count.lose(f"{name} as a link ({kind}): {ending.error or ending.killed}")
        else:
            count.survive()


def _picture(folder: Path) -> dict[str, bytes]:
    """All names below a folder, and contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def _resume(scene: Scene, folder: Path) -> None:
    config = replace(scene.config, tensorboard=True)
    if not (folder / "config.yaml").is_symlink() and (folder / "config.yaml").exists():
        write_tree(config.to_tree(), folder / "config.yaml")
    resume_run(folder)


def _run_job(scene: Scene, folder: Path) -> None:
    request = Job(folder, scene.config, ("val",)).request
    # In this process: what a job does itself is tried above.
    job_process._attempt = lambda request, log, environment: (log.write("log\n"), (0, {}))[1]
    job_process.request_stop(folder)
    run_in_process(request)
    with without_flock():
        scene.train(folder)


def _make(scene: Scene, folder: Path) -> None:
    generate(Poisson(K=4), "val", folder=folder, samples=6, resolution=24, workers=1)


def _partial_name(scene: Scene) -> str:
    """The name of the folder of finished chunks that `_make` goes on from."""
    names: list[str] = []

    def note(work: Work, *_: object) -> None:
        names.append(work.partial.name)

    with patch.object(Work, "run", note), suppress(FileNotFoundError, OSError):
        _make(scene, _empty(scene))
    return names[0]


def _search(scene: Scene, folder: Path) -> None:
    open_study(Search(Space.of(scene.config)), folder)


def name_data_elsewhere(scene: Scene) -> Count:
    """`data:` of a configuration that names a place outside: nothing is made there."""
    count = Count("data: of a foreign config.yaml")
    for kind in ("missing", "there"):
        folder, outside = scene.interrupted("foreign"), scene.fresh("outside")
        outside.mkdir()
        place = outside / "a" / "b" if kind == "missing" else outside
        tree = read_tree(folder / "config.yaml")
        write_tree({**tree, "data": str(place)}, folder / "config.yaml")
        ending = in_child(lambda f=folder: resume_run(f))
        if _picture(outside):
            count.miss(f"{kind}: {sorted(_picture(outside))}")
        elif "--data" not in ending.error:
            count.lose(f"{kind}: no remedy in {ending.error!r}")
        else:
            count.survive()
    return count


def run_foreign_code(scene: Scene) -> Count:
    """Modules in the current folder under the names of others: none of them is executed."""
    count = Count("foreign code in the current folder")
    launcher = scene.fresh("launcher") / "cno.py"
    launcher.parent.mkdir()
    launcher.write_text("import sys\nfrom torchcno.cli import main\nsys.exit(main())\n")
    recipe = "--train.epochs 1 --train.samples 8 --train.batch_size 4 --resolution 24 --problem.K 4"
    network = "--model.levels 1 --model.width 4 --model.neck_blocks 1 --model.skip_blocks 1"
    for words in (
        "generate poisson --split val --samples 5 --workers 2 --out made",
        f"search poisson cno --trials 1 --jobs 1 --device cpu --out found --data {scene.data} "
        f"{recipe} {network}",
        f"evaluate {scene.reference} --split val --device cpu",
    ):
        folder = scene.fresh("current")
        folder.mkdir()
        for name in ("yaml", "pickle", "json", "socket", "struct", "torch", "numpy", "torchcno",
                     "sitecustomize", "optuna"):  # fmt: skip
            (folder / f"{name}.py").write_text(f"open('{folder}/executed', 'a').write('{name} ')\n")
        done = subprocess.run(
            [sys.executable, launcher, *words.split()],
            cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        verb = words.split()[0]
        if (folder / "executed").exists():
            count.miss(f"{verb}: {(folder / 'executed').read_text()}")
        elif done.returncode:
            count.lose(f"{verb}: {done.stderr[-500:]}")
        else:
            count.survive()
    return count


def share_without_flock(scene: Scene) -> Count:
    """A file system without flock: one at a time all the same, and sound files are read."""
    count = Count("no flock")

    def check(what: str, work: Callable[[], object], expected: str = "") -> None:
        def there() -> None:
            forbid_flock()
            work()

        ending = in_child(there)
        if ending.killed or (expected not in ending.error if expected else ending.error):
            count.lose(f"{what}: {ending.error or ending.killed}")
        else:
            count.survive()

    folder, made = scene.fresh("unlocked"), scene.fresh("unlocked-data")
    check("data are made", lambda: _make(scene, made))
    check("data are read", lambda: _make(scene, made))
    check("a run", lambda: scene.train(folder))
    scene.settle(count, folder, "a run without flock")
    check("a search", lambda: _search(scene, scene.fresh("unlocked-search")))
    check("a trained operator", lambda: load(scene.reference))
    for moment in (0.2, 0.5, 0.8):
        folder = scene.fresh("unlocked")

        def work(folder: Path = folder) -> None:
            forbid_flock()
            scene.train(folder)

        in_child(work, kill_after=moment)
        check("who comes after a kill", work)
        scene.settle(count, folder, "after a kill without flock")
    for _ in range(3):
        folder = scene.fresh("unlocked")
        child = os.fork()
        if child == 0:  # who trains at the same time
            try:
                with open(os.devnull, "w") as quiet:
                    os.dup2(quiet.fileno(), 2)
                forbid_flock()
                scene.train(folder)
            finally:
                os._exit(0)
        while not (folder / ".lock-owner").exists():
            time.sleep(0.01)
        check("who does not wait is refused", lambda f=folder: _take(f), "another process is at")
        check("who waits finds it done", lambda f=folder: scene.train(f))
        os.waitpid(child, 0)
        scene.settle(count, folder, "two at a time without flock")
    return count


def _take(folder: Path) -> None:
    with locked(folder, wait=False):
        pass


def without_flock() -> Any:
    """flock as Python has it fails inside."""
    return patch.object(fcntl, "flock", side_effect=OSError(errno.ENOLCK, "No locks available"))


def forbid_flock() -> None:
    """From now on the kernel answers this process' flock, of C libraries too, by "no locks"."""
    number = {"x86_64": 73, "aarch64": 32}[platform.machine()]
    steps = (
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, number),  # is it flock?
        (0x06, 0, 0, 0x00050000 | errno.ENOLCK),  # then this error
        (0x06, 0, 0, 0x7FFF0000),  # else go on
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    program, libc = Program(len(steps), ctypes.addressof(code)), ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program)):
        raise RuntimeError("this kernel takes no filter of system calls")


def light_bombs(scene: Scene) -> Count:
    """Files that claim far more than they are: refused by name, before time or memory is spent."""
    count = Count("bomb")
    for name, (make, read) in BOMBS.items():
        folder = scene.copy("bomb")
        path = make(folder)
        ending = in_child(lambda read=read, p=path: read(p))
        cost = f"{ending.seconds:.1f} s, {ending.megabytes:.0f} MB"
        if ending.killed or ending.seconds > SECONDS or ending.megabytes > MEGABYTES:
            count.lose(f"{name}: {cost}")
        elif not ending.error:
            count.miss(f"{name} was taken")
        elif path.name not in ending.error or len(ending.error) > 2000:
            count.lose(f"{name}: {ending.error[:200]}")
        else:
            count.survive()
    return count


def _long_header(folder: Path) -> Path:
    path = RunFolder(folder).weights
    entries = {f"w{i:0300d}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
               for i in range(240_000)}  # fmt: skip
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def _many_values(folder: Path) -> Path:
    path = folder / "poisson-val-24.nc"
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"sample": 10**6, "channel": 1, "y": 160, "x": 144}
        for name in ("input", "output"):
            variable = ("sample", "channel", "y", "x")
            file.create_variable(name, variable, "<f4", chunks=(1, 1, 160, 144))
        file.attrs.update(problem="poisson", recipe="", sha256="")
    return path


def _aliases(folder: Path) -> Path:
    path = folder / "config.yaml"
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    path.write_text("\n".join(["a0: &a0 [xxxxxxxx]", *lines, "problem: *a8", "model: *a8"]))
    (folder / "checksums.jsonl").unlink()
    return path


def _nested(text: str, name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        (folder / "checksums.jsonl").unlink(missing_ok=True)
        return folder / name

    return make


def _sparse(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).unlink()
        with (folder / name).open("wb") as file:
            file.truncate(2**37)
        return folder / name

    return make


def _endless(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        return folder / name

    return make


def _pipe(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).unlink()
        os.mkfifo(folder / name)
        return folder / name

    return make


def _archive(folder: Path) -> Path:
    path = folder / "errors.npz"
    header = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (2**28,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("val/normalized.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(2**10):
            member.write(bytes(2**20))
    (folder / "checksums.jsonl").unlink()
    return path


def _array(folder: Path) -> Path:
    header = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (10**9,)}
    np.lib.format.write_array_header_1_0(header, shape)
    (folder / "input.npy").write_bytes(header.getvalue() + bytes(4000))
    return folder / "input.npy"


def _read_config(path: Path) -> object:
    return RunFolder(path.parent).config()


def _read_rows(path: Path) -> object:
    return RunFolder(path.parent).rows()


def _read_operator(path: Path) -> object:
    return load(path.parent)


def _read_result(path: Path) -> object:
    return RunFolder(path.parent).result()


def _read_errors(path: Path) -> object:
    return RunFolder(path.parent).errors("val")


def _read_data(path: Path) -> object:
    return files.read(path, 1)


Reader = Callable[[Path], object]
BOMBS: dict[str, tuple[Callable[[Path], Path], Reader]] = {
    "safetensors with a header of 87 MB": (_long_header, load_tensors),
    "data file of 184 GB in some kilobytes": (_many_values, _read_data),
    "inputs of 92 GB in some kilobytes": (_many_values, read_dataset),
    "YAML aliases": (_aliases, _read_config),
    "nested YAML": (_nested("problem: " + "[" * 10**5, "config.yaml"), _read_config),
    "long YAML": (_nested("problem: " + "[0]\n" * 10**6, "config.yaml"), _read_config),
    "nested JSON": (_nested("[" * 10**6, "result.json"), _read_result),
    "nested model.json": (_nested('{"a":' * 10**5, "model.json"), _read_operator),
    "nested rows": (_nested("[" * 10**6 + "\n", "metrics.jsonl"), _read_rows),
    "sparse config.yaml": (_sparse("config.yaml"), _read_config),
    "sparse result.json": (_sparse("result.json"), _read_result),
    "sparse metrics.jsonl": (_sparse("metrics.jsonl"), _read_rows),
    "sparse errors.npz": (_sparse("errors.npz"), _read_errors),
    "endless model.json": (_endless("model.json"), _read_operator),
    "endless metrics.jsonl": (_endless("metrics.jsonl"), _read_rows),
    "endless weights": (_endless("model.safetensors"), _read_operator),
    "pipe for config.yaml": (_pipe("config.yaml"), _read_config),
    "pipe for weights": (_pipe("model.safetensors"), _read_operator),
    "archive of a gigabyte in a megabyte": (_archive, _read_errors),
    "array of 4 GB in some kilobytes": (_array, read_array),
}
