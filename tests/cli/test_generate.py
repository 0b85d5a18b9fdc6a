import dataclasses
import os
import signal

import numpy as np
import pytest
import xarray

from torchcno.data.generate import Work
from torchcno.problems import PROBLEMS


def test_a_file_holds_what_was_asked_for(cno, tmp_path):
    words = ("--split", "test", "--samples", 3, "--resolution", 24, "--problem.K", 5)
    outcome = cno("generate", "poisson", *words, "--out", tmp_path)
    assert outcome.code == 0
    path = tmp_path / "poisson-test-24.nc"
    assert outcome.out.split() == [str(path)]
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data["input"].shape == (3, 1, 24, 24)
        # The sixth sine mode is not there, the fifth is.
        sines = np.sin(np.pi * np.outer(data["x"].values, [5, 6]))
        modes = np.abs(np.einsum("scyx,xk->scyk", data["input"].values, sines))
        assert modes[..., 1].max() < 1e-4 * modes[..., 0].max()


def test_several_splits_make_several_files(cno, tmp_path):
    words = ("--split", "val", "--split", "ood", "--samples", 2, "--out", tmp_path)
    assert cno("generate", "poisson", *words).code == 0
    assert {path.name for path in tmp_path.glob("*.nc")} == {
        "poisson-val-64.nc",
        "poisson-ood-64.nc",
    }


def test_another_recipe_is_not_written_over(cno, tmp_path):
    words = ("generate", "poisson", "--split", "test", "--samples", 2, "--out", tmp_path)
    assert cno(*words).code == 0
    assert cno(*words, "--problem.K", 5).code == 2
    assert cno(*words, "--problem.K", 5, "--overwrite").code == 0


def test_trajectories_have_their_times(cno, tmp_path):
    words = ("--split", "test", "--samples", 2, "--resolution", 16, "--problem.N", 16)
    where = ("--problem.components", "uv", "--times", "0:0.3:0.1", "--out", tmp_path)
    assert cno("generate", "navier-stokes", *words, *where).code == 0
    path = tmp_path / "navier-stokes-trajectories-test-16.nc"
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data["state"].dims == ("sample", "time", "channel", "y", "x")
        assert data["state"].shape == (2, 4, 2, 16, 16)
        assert data["time"].values.tolist() == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize("times", ["1:0:0.1", "0:1:0", "0:1:1e-9", "0:inf:1", "0,inf", "a", "0.5"])
def test_times_that_are_none_are_refused(cno, tmp_path, times):
    outcome = cno("generate", "navier-stokes", "--times", times, "--out", tmp_path)
    assert outcome.code == 2
    assert "time" in outcome.err
    assert not any(tmp_path.iterdir())


def test_bad_words_are_named(cno, tmp_path):
    assert "one problem, or --all" in cno("generate").err
    assert "one problem, or --all" in cno("generate", "poisson", "--all").err
    assert "did you mean 'train'?" in cno("generate", "poisson", "--split", "trian").err
    assert (
        "Perhaps you meant: --problem.K N modes per axis (default: 16) --problem.r"
        in cno("generate", "poisson", "--problem.t", 3).err
    )
    (tmp_path / "file").write_text("not a folder")
    words = ("--split", "test", "--samples", 1, "--out", tmp_path / "file" / "data")
    assert cno("generate", "poisson", *words).code == 2


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_lists_its_constants(cno, problem):
    outcome = cno("generate", problem, "--help")
    assert outcome.code == 0
    constants = {field.name.replace("_", "-") for field in dataclasses.fields(PROBLEMS[problem])}
    assert {name for name in constants if f"--problem.{name}" in outcome.out} == constants


def test_a_constant_of_a_part_is_an_option(cno, tmp_path):
    words = ("--samples", 1, "--problem.mesh.around", "many", "--out", tmp_path)
    assert "problem.mesh.around" in cno("generate", "airfoil", *words).err


def test_a_problem_may_follow_the_options(cno, tmp_path):
    words = ("--split", "test", "--samples", 2, "--out", tmp_path)
    assert "did you mean 'poisson'?" in cno("generate", *words, "posson").err
    assert not any(tmp_path.iterdir())
    assert cno("generate", *words, "poisson").code == 0
    assert (tmp_path / "poisson-test-64.nc").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "gpu"), "unknown device 'gpu'; use cpu or cuda"),
        (("--device", "meta"), "unknown device 'meta'; use cpu or cuda"),
        (("--seed", 10**30), "use a number below 2⁶³"),
        (("--resolution", 16, "--problem.K", 20), "does not resolve K = 20 sine modes"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(cno, tmp_path, words, message):
    outcome = cno("generate", "poisson", "--samples", 2, "--out", tmp_path, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_by_what_is_kept(cno, tmp_path, monkeypatch, number):
    make = Work.make

    def signalled(work, chunk):
        if chunk.start == 8:
            os.kill(os.getpid(), number)
        make(work, chunk)

    words = ("generate", "poisson", "--split", "test", "--samples", 16, "--resolution", 24)
    with monkeypatch.context() as patch:
        patch.setattr(Work, "make", signalled)
        outcome = cno(*words, "--out", tmp_path)
    assert outcome.code == 130
    assert "8 of 16 samples of poisson test are kept. The same command makes the" in outcome.err
    assert cno(*words, "--out", tmp_path).code == 0
