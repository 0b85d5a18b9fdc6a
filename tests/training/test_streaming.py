"""Training from the disk is training, exactly: in any window, stopped or not, in little memory."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Generator

from torchcno import PRESETS, Fields, load, train_on
from torchcno.data.opening import open_stored
from torchcno.models.ffnn import FFNN
from torchcno.runs import loading, task
from torchcno.runs.config import RunConfig
from torchcno.runs.own import describe_files
from torchcno.runs.train import train_run
from torchcno.training import Hardware, Pairs, load_tensors
from torchcno.training.streaming import StreamedPairs

N, SIZE = 50, (4, 6)
HOW = {"inputs": "a", "outputs": "u", "layout": "periodic", "dimension": 2}
RECIPE = replace(
    PRESETS["best"],
    epochs=3,
    batch_size=4,
    evaluate_every=1,
    learning_rate=1e-2,
    checkpoint_every=0,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample i begins with i, so that one can tell which it is."""
    file = tmp_path_factory.mktemp("stored") / "fields.h5"
    a = np.random.default_rng(0).random((N, *SIZE)).astype(np.float32)
    a[:, 0, 0] = np.arange(N)
    with h5py.File(file, "w") as written:
        written["a"], written["u"] = a, a + np.roll(a, 1, -1)
    return file


def network(cls: type[FFNN] = FFNN) -> FFNN:
    torch.manual_seed(0)
    return cls(FFNN.Config(size=SIZE, layers=2, width=8))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / "checkpoint" / "state.safetensors")[0]


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


def assert_same(folder: Path, other: Path) -> None:
    ours, theirs = weights(folder), weights(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def test_a_window_of_the_whole_set_is_training_in_memory(path, tmp_path):
    val = Fields.open(path, **HOW)[:10]
    train_on(network(), Fields.open(path, **HOW)[10:], val, tmp_path / "memory", recipe=RECIPE)
    train_on(network(), open_stored(path, **HOW)[10:], val, tmp_path / "disk", recipe=RECIPE)
    assert_same(tmp_path / "memory", tmp_path / "disk")


def test_a_run_on_a_file_that_does_not_fit_streams_it(path, tmp_path, monkeypatch):
    how = {name: value for name, value in HOW.items() if name != "dimension"}
    data = describe_files({"train": path}, {**how, "layout": ["periodic", "periodic"]}, [40, 10])
    network = {"layers": 2, "width": 8}
    config = RunConfig.for_fields(data, "ffnn", "best", network, {"epochs": 2, "batch_size": 4})
    train_run(config, tmp_path / "memory")
    seen = []
    monkeypatch.setattr(loading, "available_memory", lambda: 4 * data.counts["train"])
    monkeypatch.setattr(task, "StreamedPairs", lambda *a: seen.append(a) or StreamedPairs(*a))
    train_run(config, tmp_path / "disk")
    assert len(seen) == 1
    assert_same(tmp_path / "memory", tmp_path / "disk")


def streamed(path: Path, window: int) -> StreamedPairs:
    def scale(stored, numbers):
        fields = stored.read(numbers)
        return Pairs(fields.inputs, fields.outputs)

    pairs = StreamedPairs(open_stored(path, **HOW), scale, window)
    return pairs.first(None).to(torch.device("cpu"))


def epoch_of(pairs: StreamedPairs, seed: int, start: int = 0) -> list[list[int]]:
    """The samples of every batch, by the number that they begin with."""
    rows = pairs.draw(Generator().manual_seed(seed), N // 4, 4)
    batches = []
    for step in range(start, len(rows)):
        pairs.load(step)
        batches.append(pairs.tensors[0][rows[step], 0, 0, 0].long().tolist())
    return batches


@pytest.mark.parametrize("window", [4, 9, 16, 49, 50])
def test_an_epoch_has_every_sample_once_and_is_its_seeds(path, window):
    pairs = streamed(path, window)
    first, second = epoch_of(pairs, 0), epoch_of(pairs, 1)
    for epoch in (first, second):
        seen = [number for batch in epoch for number in batch]
        assert len(seen) == len(set(seen)) == N // 4 * 4
    assert first != second
    assert epoch_of(pairs, 0) == first
    assert epoch_of(streamed(path, window), 0, start=5) == first[5:]
    assert len(pairs.tensors[0]) == window


def test_a_window_that_holds_no_batch_is_refused(path):
    with pytest.raises(ValueError, match="use window 4 or more"):
        epoch_of(streamed(path, 3), 0)


class Stops(FFNN):
    """A network that dies in the middle of an epoch."""

    calls = 0

    def forward(self, u):
        Stops.calls += self.training
        if Stops.calls == 17:
            raise RuntimeError("switched off")
        return super().forward(u)


def test_a_run_that_died_within_an_epoch_goes_on_exactly(path, tmp_path, monkeypatch):
    from torchcno.models import MODELS

    stored, recipe = open_stored(path, **HOW), replace(RECIPE, window=12)
    train, val = stored.split(40, 10, seed=1)
    train_on(network(), train, val, tmp_path / "alone", recipe=recipe)
    monkeypatch.setitem(MODELS, "ffnn", Stops)
    monkeypatch.setattr(Stops, "calls", 0)
    with pytest.raises(RuntimeError, match="switched off"):
        train_on(network(Stops), train, val, tmp_path / "killed", recipe=recipe)
    monkeypatch.setitem(MODELS, "ffnn", FFNN)
    train_on(network(), train, val, tmp_path / "killed", recipe=recipe, resume=True)
    assert_same(tmp_path / "alone", tmp_path / "killed")
    other = replace(recipe, window=16)
    with pytest.raises(ValueError, match="window is 12, not 16"):
        train_on(network(), train, val, tmp_path / "killed", recipe=other, resume=True)


LARGER_THAN_MEMORY = """
import resource, sys
from pathlib import Path
import h5py, numpy as np, torch
from torchcno import Fields, PRESETS, train_on
from torchcno.data.opening import open_stored
from torchcno.models.ffnn import FFNN
from dataclasses import replace

torch.set_num_threads(1)
folder, budget, n = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
with h5py.File(folder / "big.h5", "w") as file:
    a = file.create_dataset("a", (n, 128, 128), "f4")
    u = file.create_dataset("u", (n, 128, 128), "f4")
    for i in range(0, n, 64):
        a[i : i + 64] = rng.random((len(a[i : i + 64]), 1, 1), "f4") + rng.random((128, 128), "f4")
        u[i : i + 64] = 2 * a[i : i + 64]
how = {"inputs": "a", "outputs": "u", "layout": "periodic", "dimension": 2}
stored = open_stored(folder / "big.h5", **how)
recipe = replace(PRESETS["best"], epochs=1, batch_size=16, evaluate_every=1, window=64)

def learn(stored, name):
    train, val = stored.split(len(stored) - 16, 16)
    model = FFNN(FFNN.Config(size=(128, 128), layers=1, width=2))
    train_on(model, train, val, folder / name, recipe=recipe)
    return train

learn(stored[:80], "imports")  # what the packages take does not count
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + budget,) * 2)
try:
    Fields.open(folder / "big.h5", **how)
except ValueError as error:
    print(error)
print(learn(stored, "run").nbytes)
"""


def test_a_set_larger_than_the_memory_is_learnt(tmp_path):
    budget = 160 * 2**20
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    script = [sys.executable, "-c", LARGER_THAN_MEMORY, str(tmp_path), str(budget), "1400"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused, size = done.stdout.splitlines()
    assert "of memory" in refused
    assert int(size) > budget
    operator = load(tmp_path / "run")
    assert operator.predict(torch.rand(1, 1, 128, 128)).isfinite().all()


def test_statistics_of_a_stored_set_are_those_of_the_set(path):
    from torchcno.data.statistics import fields_statistics

    for stored, memory in zip(
        fields_statistics(open_stored(path, **HOW)),
        fields_statistics(Fields.open(path, **HOW)),
        strict=True,
    ):
        assert stored == memory


@pytest.mark.gpu
def test_on_a_gpu_windows_are_copied_into_the_place_that_the_graph_reads(path, tmp_path):
    hardware, train = Hardware(accelerator="cuda"), open_stored(path, **HOW)[10:]
    val, memory = Fields.open(path, **HOW)[:10], Fields.open(path, **HOW)[10:]
    recipe = replace(RECIPE, precision="32")
    for name, fields in (("memory", memory), ("disk", train)):
        train_on(network(), fields, val, tmp_path / name, recipe=recipe, hardware=hardware)
    assert_same(tmp_path / "memory", tmp_path / "disk")
    small = replace(recipe, window=12)
    # By small steps: at the recipe's, a weight's last digit is worth a twentieth of the loss.
    slow = replace(small, learning_rate=1e-4)
    for device in ("cuda", "cpu"):
        on = Hardware(accelerator=device)
        train_on(network(), train, val, tmp_path / device, recipe=slow, hardware=on)
    assert losses(tmp_path / "cuda") == pytest.approx(losses(tmp_path / "cpu"), rel=3e-3)
