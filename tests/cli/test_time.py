"""Trajectories on the command line: what is refused, and with what remedy."""

from pathlib import Path

import pytest
import torch

from torchcno import Grid, RunConfig, Trajectories
from torchcno.cli import main
from torchcno.cli.train import RunOptions


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    t, x = 0.1 * torch.arange(4), torch.arange(16) / 16
    states = torch.sin(2 * torch.pi * (x - t[:, None]))[None, :, None] * torch.rand(20, 1, 1, 1)
    path = tmp_path / "waves.nc"
    Trajectories(states, t, Grid((16,), "periodic"), parameters=torch.rand(20, 1),
                 parameter_names=("nu",)).write(path)  # fmt: skip
    return path


def test_a_file_of_trajectories_is_a_run(waves):
    config = RunOptions(data=waves, time="time").resolve([None, None], {})
    assert config.times == pytest.approx((0.0, 0.1, 0.2, 0.3))
    assert config.problem.counts == {"train": 16, "val": 2, "test": 2}
    assert config.architecture.conditioning == ("nu",)
    told = RunOptions(data=waves, time="time", parameters=("nu",)).resolve(
        [None, None], {"train": {"lead_times": "all-to-all"}}
    )
    assert told.architecture.conditioning == ("time", "nu")


def test_a_configuration_with_times_comes_back_from_its_tree(waves):
    for config in (
        RunOptions(data=waves, time="time", parameters=("nu",)).resolve([None, None], {}),
        RunOptions(times="0:1:0.5").resolve(["navier-stokes", "fno"], {}),
    ):
        assert RunConfig.from_tree(config.to_tree()) == config


def test_trajectories_of_a_benchmark_have_as_many_steps_as_its_pairs():
    pairs = RunOptions().resolve(["navier-stokes", "cno"], {})
    run = RunOptions(times="0:1:0.1").resolve(["navier-stokes", "cno"], {})
    assert run.times == tuple(i / 10 for i in range(11))
    assert run.train.epochs == round(pairs.train.epochs / 10)
    jumps = RunOptions(times="0:1:0.1").resolve(
        ["navier-stokes", "cno"], {"train": {"lead_times": "all-to-all", "epochs": 7}}
    )
    assert (jumps.train.epochs, jumps.architecture.conditioning) == (7, ("time",))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["navier-stokes", "cno", "--time", "time"], "--times 0:1:0.1"),
        (["navier-stokes", "cno", "--times", "1:0:0.1"], "0:1:0.1"),
        (["poisson", "cno", "--times", "0:1:0.1"], "a problem that evolves"),
        (["--data", "WAVES", "--time", "hour"], "time"),
        (["--data", "WAVES", "--time", "time", "--times", "0,-1"], "leave one out"),
        (["--data", "WAVES", "--parameters", "nu"], "--time"),
        (["--data", "WAVES", "--time", "time", "--train.unroll", "9"], "smaller unroll"),
        (["--data", "WAVES", "--time", "time", "--train.lead_times", "often"], "all-to-all"),
    ],
)
def test_bad_times_are_refused_before_anything_is_made(words, remedy, waves, tmp_path, capsys):
    words = [str(waves) if word == "WAVES" else word for word in words]
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--device", "cpu"])
    assert remedy in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_rollout_needs_a_run_on_trajectories(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), "--until", "2"])
    assert "--rollout" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path), "--rollout", "--plot", "a.png"])
    assert "leave" in capsys.readouterr().err
