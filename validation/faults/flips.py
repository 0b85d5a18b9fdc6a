"""One flipped bit in each kind of file: it is refused with the file's name, or does not matter."""

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from validation.faults.scene import Count, Scene, in_child

from torchcno.data import files
from torchcno.data.fields import Fields
from torchcno.data.generate import Work
from torchcno.data.samples import Samples
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.runs.folder import RunFolder
from torchcno.runs.half import halved
from torchcno.runs.hub import write_hub
from torchcno.runs.own import keep_fields
from torchcno.training.checkpoint import load_tensors, save_tensors
from torchcno.training.folder import TrainingFolder

SAMPLES = Samples.of(Poisson(K=4), "val", 24, samples=3)
TRAJECTORIES = Samples.of(NavierStokes(), "val", 24, samples=3, times=(0.0, 0.5, 1.0))


def flip_bits(scene: Scene, kind: str, tries: int) -> Count:
    """Flip `tries` random bits of a kind of file, one at a time."""
    count, draw = Count(f"flipped bit: {kind}"), random.Random(kind)
    folder = replace(scene, work=WORK_OF.get(kind, scene.work)).copy("flips")
    path, read = KINDS[kind](folder)
    whole, expected = path.read_bytes(), pickle.dumps(read())
    # Half of them in the first kilobytes, where most formats say what they hold.
    ends = [8 * len(whole), 8 * min(len(whole), 4096)]

    def attempt(bit: int) -> str:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = read()
        except Exception as error:
            named = path.name in str(error) or "checksums.jsonl" in str(error)
            return "refused" if named else f"{type(error).__name__}: {error}"
        return "equal" if pickle.dumps(found) == expected else "silent"

    for number in range(tries):
        bit = draw.randrange(ends[number % 2])
        if kind in IN_C:
            ending = in_child(lambda bit=bit: attempt(bit))
            found = str(ending.value or f"{ending.error} {ending.killed}")
        else:
            found = attempt(bit)
        if found in ("refused", "equal"):
            count.survive()
        elif found == "silent":
            count.miss(f"bit {bit} of {path.name}")
        else:
            count.lose(f"bit {bit} of {path.name}: {found}")
    path.write_bytes(whole)
    return count


def _weights(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.weights, lambda: _plain(run.operator().network.state_dict())


def _checkpoint(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.checkpoint, lambda: _checkpoint_of(run)


def _checkpoint_of(training: TrainingFolder) -> Any:
    saved = training.load()
    assert saved is not None
    return _plain(saved[0]), saved[1]


def _export(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    save_tensors(run.weights, halved(run.operator().network))
    return run.weights, lambda: _plain(load_tensors(run.weights)[0])


def _hub(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(write_hub(RunFolder(folder).operator(), folder / "hub"))
    return run.hub_file, lambda: run.operator().description()


def _kept(folder: Path) -> tuple[Path, Callable[[], Any]]:
    inputs, outputs = map(torch.from_numpy, _arrays(SAMPLES))
    path = RunFolder(folder).data_file
    keep_fields({"train": Fields(inputs, outputs, SAMPLES.grid)}, path)
    return path, lambda: _plain(load_tensors(path)[0])


def _model(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.model_file, lambda: run.operator().description()


def _config(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.config_file, lambda: run.config().to_tree()


def _result(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.result_file, run.result


def _rows(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.metrics, run.rows


def _errors(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.errors_file, lambda: run.errors("val")


def _examples(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)

    def read() -> Any:
        examples = run.examples("val")
        return None if examples is None else examples.to_arrays()

    return run.examples_file, read


def _trust(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)

    def read() -> Any:
        trust = run.trust()
        return None if trust is None else trust.to_arrays()

    return run.trust_file, read


def _member(folder: Path) -> tuple[Path, Callable[[], Any]]:
    member = RunFolder(folder).trainings(2)[1]
    return member.checkpoint, lambda: _checkpoint_of(member)


def _member_rows(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.trainings(2)[1].metrics, run.rows


def _kept_paths(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return run.data_file, lambda: _plain(load_tensors(run.data_file)[0])


def _checksums(folder: Path) -> tuple[Path, Callable[[], Any]]:
    run = RunFolder(folder)
    return folder / "checksums.jsonl", lambda: [run.config().to_tree(), run.result()]


def _data_of(samples: Samples) -> Callable[[Path], tuple[Path, Callable[[], Any]]]:
    def make(folder: Path) -> tuple[Path, Callable[[], Any]]:
        path = folder / files.file_name(samples)
        files.write(path, samples, "cpu", [_arrays(samples)])
        return path, lambda: [files.read(path, samples.count), files.read_header(path)]

    return make


def _chunk(folder: Path) -> tuple[Path, Callable[[], Any]]:
    work, chunk = Work(SAMPLES, folder, torch.device("cpu"), 4), range(3)

    def read() -> Any:
        if not work.is_finished(chunk):  # as generation does
            work.put(chunk, _arrays(SAMPLES))
        return work.read(chunk)

    read()
    return work.path(chunk), read


def _arrays(samples: Samples) -> files.Arrays:
    draw = np.random.default_rng(0)
    return tuple(
        draw.standard_normal((samples.count, *shape)).astype(np.float32)
        for shape in samples.shapes.values()
    )


def _plain(tensors: Any) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in sorted(tensors.items())}


IN_C = (
    "data file",
    "data file of trajectories",
)  # whose reader may crash: in a process of its own each time
WORK_OF = {  # the kind of run that a file is of, where it is no plain one
    **dict.fromkeys(
        ("weights of an ensemble", "checkpoint of a member", "metrics.jsonl of a member",
         "model.json of an ensemble"), "ensemble"
    ),
    **dict.fromkeys(("weights of an evolution", "copy of own trajectories"), "trajectories"),
}  # fmt: skip
KINDS: dict[str, Callable[[Path], tuple[Path, Callable[[], Any]]]] = {
    "weights": _weights,
    "checkpoint": _checkpoint,
    "exported weights": _export,
    "config.json of a Hub folder": _hub,
    "copy of own data": _kept,
    "model.json": _model,
    "config.yaml": _config,
    "result.json": _result,
    "metrics.jsonl": _rows,
    "errors.npz": _errors,
    "examples.npz": _examples,
    "trust.npz": _trust,
    "weights of an ensemble": _weights,
    "checkpoint of a member": _member,
    "metrics.jsonl of a member": _member_rows,
    "model.json of an ensemble": _model,
    "weights of an evolution": _weights,
    "copy of own trajectories": _kept_paths,
    "checksums.jsonl": _checksums,
    "data file": _data_of(SAMPLES),
    "data file of trajectories": _data_of(TRAJECTORIES),
    "chunk of data": _chunk,
}
