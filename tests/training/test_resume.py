"""A run that is killed, or asked to stop, and goes on is the run that was left alone."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchcno.training import Diverged, Interrupted, Pairs, epochs, fit, load_tensors
from torchcno.training.checkpoint import save_tensors
from torchcno.training.interruption import stop_requests


def metrics(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def undisturbed(small_run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    small_run.run(folder)
    return folder


def test_killed_at_random_moments(small_run, undisturbed, tmp_path):
    seconds = sum(json.loads(line)["seconds"] for line in metrics(undisturbed))
    script = [sys.executable, small_run.__file__, str(tmp_path / "run"), "0", str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 3
    small_run.assert_same_run(undisturbed, tmp_path / "run")


def test_what_kills_left_half_written_is_gone(small_run, tmp_path):
    recipe = replace(small_run.RECIPE, epochs=2, checkpoint_every=0.0)
    arguments = small_run.data(20, 1), small_run.data(20, 2), recipe, tmp_path
    with pytest.raises(Interrupted):
        fit(small_run.network(), *arguments, on_epoch=lambda _: os.kill(os.getpid(), signal.SIGINT))
    for left in ("checkpoint/state.safetensors.1f.part", "model.safetensors.2f.part"):
        (tmp_path / left).touch()
    another = tmp_path / "errors.json.3f.part"  # of who evaluates meanwhile
    another.touch()
    fit(small_run.network(), *arguments, resume=True)
    assert list(tmp_path.rglob("*.part")) == [another]


def test_muon_goes_on_too(small_run, tmp_path):
    recipe = replace(small_run.RECIPE, optimizer="muon", epochs=4)
    arguments = small_run.data(103, 1), small_run.data(20, 2), recipe

    def stop(epoch):
        if epoch.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    fit(small_run.network(), *arguments, tmp_path / "alone", seed=3)
    with pytest.raises(Interrupted):
        fit(small_run.network(), *arguments, tmp_path / "stopped", seed=3, on_epoch=stop)
    fit(small_run.network(), *arguments, tmp_path / "stopped", seed=3, resume=True)
    small_run.assert_same_run(tmp_path / "alone", tmp_path / "stopped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_in_the_middle_of_an_epoch(small_run, undisturbed, tmp_path, number):
    model, recipe, calls = small_run.network(), replace(small_run.RECIPE, checkpoint_every=1e9), []

    def ask(module, inputs):
        calls.append(None)
        if len(calls) == 50:  # 20 steps an epoch, and no evaluation of this copy: in the third
            signal.raise_signal(number)

    model.register_forward_pre_hook(ask)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=f"epoch 3 of 8.*cno resume {tmp_path}"):
        fit(model, train, val, recipe, tmp_path, seed=3)
    assert signal.getsignal(number) is before
    assert len(small_run.rows(tmp_path)) == 2
    fit(small_run.network(), train, val, recipe, tmp_path, seed=3, resume=True)
    small_run.assert_same_run(undisturbed, tmp_path)


def test_an_epoch_that_was_interrupted_counts_whole_and_names_its_devices(
    small_run, tmp_path, monkeypatch
):
    model, recipe, calls = small_run.network(), replace(small_run.RECIPE, epochs=2), []

    def slowly(module, inputs):
        time.sleep(0.02)
        calls.append(None)
        if len(calls) == 15:  # of 20 steps an epoch
            signal.raise_signal(signal.SIGINT)

    model.register_forward_pre_hook(slowly)
    arguments = small_run.data(103, 1), small_run.data(20, 2), recipe, tmp_path
    monkeypatch.setattr(epochs, "device_name", lambda device: "slow")
    with pytest.raises(Interrupted, match="epoch 1 of 2"):
        fit(model, *arguments, seed=3)
    monkeypatch.setattr(epochs, "device_name", lambda device: "fast")
    resumed = fit(small_run.network(), *arguments, seed=3, resume=True)
    first, second = (json.loads(line)["seconds"] for line in metrics(tmp_path))
    assert first >= 15 * 0.02
    assert resumed.seconds_per_epoch == pytest.approx((first + second) / 2)
    assert resumed.devices == ("slow", "fast")
    monkeypatch.setattr(epochs, "device_name", lambda device: "idle")
    assert fit(small_run.network(), *arguments, seed=3, resume=True) == resumed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_when_nothing_is_left_to_do(small_run, undisturbed, tmp_path, number):
    """The signal is the caller's: it comes again, when all is saved."""

    def ask(epoch):
        if epoch.epoch == small_run.RECIPE.epochs:
            signal.raise_signal(number)

    arguments = small_run.data(103, 1), small_run.data(20, 2), small_run.RECIPE, tmp_path
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(small_run.network(), *arguments, seed=3, on_epoch=ask)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    small_run.assert_same_run(undisturbed, tmp_path)


@pytest.mark.parametrize(
    ("error", "raised"), [(Diverged, KeyboardInterrupt), (Interrupted, Interrupted)]
)
def test_a_signal_that_another_error_overtakes_is_not_lost(error, raised):
    def work() -> None:
        with stop_requests():
            signal.raise_signal(signal.SIGTERM)
            raise error

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(raised):
            work()
    finally:
        signal.signal(signal.SIGTERM, before)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_that_goes_on_leaves_every_file_as_it_was(small_run, undisturbed):
    before = contents(undisturbed)
    again = small_run.run(undisturbed, resume=True)
    assert contents(undisturbed) == before
    assert again.epochs == 8
    assert again.best_validation_error == small_run.rows(undisturbed)[-1]["best_validation_error"]


def test_a_full_disk_leaves_the_weights_of_a_run_that_goes_on(small_run, undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    before = contents(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="no file of that size"):
            small_run.run(tmp_path, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(tmp_path) == before


def test_weights_without_a_checkpoint_are_not_written_over(small_run, undisturbed, tmp_path):
    """Checkpoints are large, and a finished run needs none."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "checkpoint")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"no .* to go on from.*move .* away and start again"):
        small_run.run(tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_a_full_disk_leaves_the_last_checkpoint(small_run, undisturbed, tmp_path):
    model, recipe = small_run.network(), replace(small_run.RECIPE, checkpoint_every=0)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(epoch):
        if epoch.epoch == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))

    try:
        with pytest.raises(OSError, match="no file of that size"):
            fit(model, train, val, recipe, tmp_path, seed=3, on_epoch=fill_the_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == ["state.safetensors"]
    fit(small_run.network(), train, val, recipe, tmp_path, seed=3, resume=True)
    small_run.assert_same_run(undisturbed, tmp_path)


def test_a_new_run_does_not_start_over_another(small_run, undisturbed):
    with pytest.raises(ValueError, match=f"holds a run already.*cno resume {undisturbed}"):
        small_run.run(undisturbed)


def test_a_run_goes_on_only_as_it_began(small_run, undisturbed):
    train, val, recipe = small_run.data(103, 1), small_run.data(20, 2), small_run.RECIPE
    model, faster = small_run.network(), replace(recipe, learning_rate=0.02)
    with pytest.raises(ValueError, match=r"learning_rate = 0.01, not 0.02"):
        fit(model, train, val, faster, undisturbed, seed=3, resume=True)
    with pytest.raises(ValueError, match=r"seed = 3, not 4"):
        fit(model, train, val, recipe, undisturbed, seed=4, resume=True)
    with pytest.raises(ValueError, match=r"another model: '0.weight' is \(4, 1, 3, 3\) there"):
        fit(small_run.network(width=5), train, val, recipe, undisturbed, seed=3, resume=True)
    with pytest.raises(ValueError, match="another model: 'weight' is missing there"):
        fit(torch.nn.Conv2d(1, 1, 1), train, val, recipe, undisturbed, seed=3, resume=True)


def test_a_run_goes_on_that_began_before_a_field_was_there(small_run, undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    path = folder / "checkpoint" / "state.safetensors"
    state, note = load_tensors(path)
    del note["protocol"]["gamma"]  # which this run has as it is by default
    save_tensors(path, state, note)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    fit(small_run.network(), train, val, small_run.RECIPE, folder, seed=3, resume=True)
    del note["protocol"]["schedule"]  # which it has not
    save_tensors(path, state, note)
    with pytest.raises(ValueError, match="made with schedule = 'step', not 'cosine'"):
        fit(small_run.network(), train, val, small_run.RECIPE, folder, seed=3, resume=True)


def of_another_program(path: Path) -> None:
    save_file({"layer.weight": torch.ones(2)}, path, {"format": "pt"})


def of_weights_alone(path: Path) -> None:
    save_tensors(path, {"model/0.weight": torch.ones(2)})


def of_nothing_but_words(path: Path) -> None:
    tensors, note = load_tensors(path)
    save_tensors(path, {"model/0.weight": tensors["model/0.weight"]}, note)


def of_another_protocol(path: Path) -> None:
    save_tensors(path, load_tensors(path)[0], {"protocol": 3, "progress": {}})


@pytest.mark.parametrize(
    "write", [of_another_program, of_weights_alone, of_nothing_but_words, of_another_protocol]
)
def test_a_foreign_checkpoint_is_named_and_nothing_is_written(
    small_run, undisturbed, tmp_path, write
):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    write(tmp_path / "checkpoint" / "state.safetensors")
    before = contents(tmp_path)
    message = r"state\.safetensors holds no state of a run.*; bring back .* or train again"
    with pytest.raises(ValueError, match=message):
        small_run.run(tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_a_checkpoint_of_a_newer_version_is_named_and_nothing_is_written(
    small_run, undisturbed, tmp_path
):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoint" / "state.safetensors"
    state, note = load_tensors(path)
    note["progress"] |= {"restarts": 2, "rate": 0.1}
    save_tensors(path, state, note)
    before = contents(tmp_path)
    message = r"state\.safetensors .* progress has rate, restarts, .*; install that version"
    with pytest.raises(ValueError, match=message):
        small_run.run(tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_how_steps_are_run_and_kept_may_change(small_run, undisturbed):
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    otherwise = replace(small_run.RECIPE, checkpoint_every=7.0, fast="off")
    fit(small_run.network(), train, val, otherwise, undisturbed, seed=3, resume=True)


def test_a_run_goes_on_only_with_its_data(small_run, tmp_path):
    shorter = replace(small_run.RECIPE, epochs=1)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    fit(small_run.network(), train, val, shorter, tmp_path, seed=3)
    scaled = Pairs(train.inputs, 2 * train.targets)
    with pytest.raises(ValueError, match=r"checkpoint was made with data = .*give the same"):
        fit(small_run.network(), scaled, val, shorter, tmp_path, seed=3, resume=True)
    fit(small_run.network(), train, val, shorter, tmp_path, seed=3, resume=True)
