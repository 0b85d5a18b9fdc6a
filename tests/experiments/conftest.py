from dataclasses import replace
from pathlib import Path

import pytest

from torchcno.experiments import jobs
from torchcno.experiments.run import train_run
from torchcno.experiments.run_config import RunConfig
from torchcno.problems.poisson import Poisson
from torchcno.training import Hardware


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Two epochs of a CNO with some thousand weights on smooth Poisson data of 24² points."""
    config = RunConfig.resolve(
        Poisson(K=4),
        "cno",
        resolution=24,
        data=tmp_path_factory.mktemp("data"),
        hardware=Hardware(accelerator="cpu"),
    )
    return replace(
        config,
        architecture=replace(
            config.architecture, levels=1, width=4, lift_width=4, neck_blocks=1, skip_blocks=1
        ),
        train=replace(
            config.train,
            epochs=2,
            samples=8,
            batch_size=4,
            evaluate_every=1,
            checkpoint_every=0,
        ),
    )


@pytest.fixture(scope="session")
def tiny_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train_run(tiny_config, folder)
    return folder


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in a thread of this process, which saves the start of others."""
    monkeypatch.setattr(jobs, "perform", lambda request, environment: jobs.answer(request))
