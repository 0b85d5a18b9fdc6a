"""The event file holds the rows of metrics.jsonl, each once, whatever happened in between."""

import json
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from torchcno.training import EventFile, Interrupted, fit

CURVES = {
    "train_loss",
    "learning_rate",
    "validation_error",
    "best_validation_error",
    "seconds",
}


def drawn(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves of a folder, as TensorBoard shows them."""
    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def assert_drawn_as_in_metrics(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curves = drawn(run / "tensorboard")
    assert curves.keys() == CURVES
    for name, curve in curves.items():
        known = [(row["epoch"], row[name]) for row in rows if row[name] is not None]
        np.testing.assert_allclose(curve, known, rtol=1e-6)  # events are float32


class Killed(BaseException):
    """Stands in for SIGKILL: nothing is saved."""


def run(small_run, folder: Path, resume: bool = False, then=lambda epoch: None) -> None:
    recipe = replace(small_run.RECIPE, checkpoint_every=1e9)  # only when asked to stop
    train, val = small_run.data(23, 1), small_run.data(5, 2)
    with closing(EventFile(folder / "tensorboard")) as draw:

        def on_epoch(epoch):
            draw(epoch)
            then(epoch.epoch)

        fit(small_run.network(), train, val, recipe, folder, on_epoch=on_epoch, resume=resume)


def test_curves_are_the_rows(small_run, tmp_path):
    run(small_run, tmp_path)
    assert_drawn_as_in_metrics(tmp_path)


def test_epochs_that_are_run_again_are_drawn_once(small_run, tmp_path):
    def press_ctrl_c(epoch):
        if epoch == 3:
            os.kill(os.getpid(), signal.SIGINT)

    def die(epoch):
        if epoch == 6:
            raise Killed

    with pytest.raises(Interrupted):
        run(small_run, tmp_path, then=press_ctrl_c)
    with pytest.raises(Killed):
        run(small_run, tmp_path, resume=True, then=die)
    run(small_run, tmp_path, resume=True)  # from epoch 4 on
    assert_drawn_as_in_metrics(tmp_path)


def test_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'torchcno\[log\]'"):
        EventFile(tmp_path)
