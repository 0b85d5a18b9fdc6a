import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import torchcno.runs.train
from torchcno.cli import main
from torchcno.runs.config import RunConfig


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cno(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`cno` with these words."""

    def call(*words: object) -> Outcome:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        if "For full helptext" in err:  # in a frame, with lines as wide as the terminal
            err = re.sub(r"[│╭╮╰╯─\s]+|-{3,}", " ", err)
            err = re.sub(r" +", " ", err)
        return Outcome(code, out, err)

    return call


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    """The configuration that `cno train` with these words would train."""

    def call(*words: object) -> RunConfig:
        found: list[RunConfig] = []

        def keep(config: RunConfig, *_: object) -> dict[str, object]:
            found.append(config)
            return {}

        monkeypatch.setattr(torchcno.runs.train, "train_run", keep)
        monkeypatch.setattr("torchcno.runs.watching.describe_run", lambda config: "")
        assert main(["train", *map(str, words), "--out", "unused"]) == 0
        return found[0]

    return call


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Words after `cno train` for two epochs of a CNO of some thousand weights, on the CPU."""
    options = {
        "--data": tmp_path_factory.mktemp("data"),
        "--device": "cpu",
        "--resolution": 24,
        "--problem.K": 4,
        "--model.levels": 1,
        "--model.width": 4,
        "--model.lift_width": 4,
        "--model.neck_blocks": 1,
        "--model.skip_blocks": 1,
        "--train.epochs": 2,
        "--train.samples": 8,
        "--train.batch_size": 4,
        "--train.evaluate_every": 1,
        "--train.symmetric_predictions": False,
    }
    return ["poisson", "cno", *(str(word) for option in options.items() for word in option)]


@pytest.fixture(scope="session")
def run_folder(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert main(["train", *tiny, "--out", str(folder)]) == 0
    return folder
