"""The same bits however a file is made, and nothing half-made under its name."""

import contextlib
import dataclasses
import errno
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from torchcno.data import files
from torchcno.data.generate import CPU_CHUNK, generate
from torchcno.problems import PROBLEMS
from torchcno.problems.poisson import Poisson

NAME = "toy-train-16.nc"


def values(path):
    return files.read(path, files.read_header(path).samples)[0]


def test_files_made_twice_are_equal_bit_for_bit(toy, tmp_path):
    first, second = (
        generate(toy, "train", folder=tmp_path / name).read_bytes() for name in ("a", "b")
    )
    assert first == second


@pytest.mark.parametrize("count", [1, CPU_CHUNK, CPU_CHUNK + 1, 7])
def test_a_larger_file_begins_with_the_smaller_ones_samples(toy, tmp_path, count):
    small = values(generate(toy, "train", folder=tmp_path / "small", samples=count))
    large = values(generate(toy, "train", folder=tmp_path / "large", samples=11))
    assert all(np.array_equal(a, b[:count]) for a, b in zip(small, large, strict=True))


def test_an_extended_file_equals_one_made_at_once_and_keeps_whole_chunks(toy, tmp_path):
    generate(toy, "train", folder=tmp_path, samples=CPU_CHUNK + 1)
    toy.solved.clear()
    extended = generate(toy, "train", folder=tmp_path, samples=3 * CPU_CHUNK)
    assert sum(toy.solved) == 2 * CPU_CHUNK
    at_once = generate(toy, "train", folder=tmp_path / "other", samples=3 * CPU_CHUNK)
    assert extended.read_bytes() == at_once.read_bytes()


def test_processes_make_the_same_bits_and_do_not_run_the_users_script_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            from torchcno.data.generate import generate
            from torchcno.problems.poisson import Poisson
            print("begins")
            generate(Poisson(), "ood", folder="many", samples=9, resolution=32, workers=2)
        """)
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("begins\n", "")
    one = generate(Poisson(), "ood", folder=tmp_path / "one", samples=9, resolution=32, workers=1)
    assert one.read_bytes() == (tmp_path / "many" / one.name).read_bytes()


def test_the_number_of_threads_changes_no_bit_and_is_left_as_it_was(tmp_path):
    files_made = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            folder = tmp_path / str(threads)
            files_made.append(
                generate(Poisson(), "train", folder=folder, samples=2, resolution=129)
            )
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
    assert files_made[0].read_bytes() == files_made[1].read_bytes()


def test_a_larger_file_of_trajectories_begins_with_the_smaller_ones(decay, tmp_path):
    times = [0.0, 0.5, 2.0]
    (small,) = values(generate(decay, "train", folder=tmp_path / "small", samples=2, times=times))
    path = generate(decay, "train", folder=tmp_path, samples=CPU_CHUNK + 1, times=times)
    decay.solved.clear()
    extended = generate(decay, "train", folder=tmp_path, samples=3 * CPU_CHUNK, times=times)
    assert sum(decay.solved) == 2 * CPU_CHUNK
    at_once = generate(decay, "train", folder=tmp_path / "b", samples=3 * CPU_CHUNK, times=times)
    assert path == extended
    assert extended.read_bytes() == at_once.read_bytes()
    (states,) = values(extended)
    assert np.array_equal(states[:2], small)
    np.testing.assert_allclose(states[:, 2], math.exp(-4) * states[:, 0], rtol=1e-6)


def test_interrupted_trajectories_go_on_from_their_chunks(decay, tmp_path):
    def stop(done, total):
        if done >= CPU_CHUNK:
            raise KeyboardInterrupt

    asked = {"folder": tmp_path, "times": (0.0, 1.0), "workers": 1}
    with pytest.raises(KeyboardInterrupt):
        generate(decay, "train", progress=stop, **asked)
    assert not list(tmp_path.glob("*.nc"))
    decay.solved.clear()
    resumed = generate(decay, "train", **asked)
    assert sum(decay.solved) == decay.samples["train"] - CPU_CHUNK
    whole = generate(decay, "train", **(asked | {"folder": tmp_path / "whole"}))
    assert resumed.read_bytes() == whole.read_bytes()


def test_more_times_than_memory_holds_are_refused(decay, tmp_path):
    with pytest.raises(ValueError, match=r"at 1000000 times would take .* or fewer times"):
        generate(decay, "val", folder=tmp_path, resolution=1024, times=range(1_000_000))
    assert not list(tmp_path.iterdir())


def test_other_times_are_another_recipe(decay, toy, tmp_path):
    generate(decay, "val", folder=tmp_path, times=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"times: .* there, .* asked for"):
        generate(decay, "val", folder=tmp_path, times=[0.0, 2.0])
    with pytest.raises(ValueError, match="toy is steady"):
        generate(toy, "val", folder=tmp_path, times=[0.0, 1.0])
    for times in ([1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, math.inf], [0.0, math.nan]):
        with pytest.raises(ValueError, match=r"time"):
            generate(decay, "val", folder=tmp_path, times=times)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_processes_and_company_change_no_bit_of_any_problem(name, tmp_path):
    problem = PROBLEMS[name]()
    alone = generate(problem, "test", folder=tmp_path / "alone", samples=1, workers=1)
    many = generate(problem, "test", folder=tmp_path / "many", samples=CPU_CHUNK + 1, workers=2)
    (a, b), (c, d) = values(alone), values(many)
    assert np.array_equal(a, c[:1])
    assert np.array_equal(b, d[:1])


@pytest.mark.gpu
def test_on_a_gpu_too_samples_do_not_depend_on_their_number(tmp_path):
    small, large = (
        values(generate(Poisson(), "val", folder=tmp_path / str(n), samples=n, device="cuda"))
        for n in (3, 130)
    )
    assert all(np.array_equal(a, b[:3]) for a, b in zip(small, large, strict=True))
    cpu = values(generate(Poisson(), "val", folder=tmp_path, samples=3))
    assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(small, cpu, strict=True))


@pytest.fixture
def at_work(tmp_path):
    """A process group whose workers have made their first chunk."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import signal
            from torchcno.data.generate import generate
            from torchcno.problems.darcy import Darcy
            signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us
            report = lambda done, total: print(done, flush=True)
            generate(Darcy(), "train", folder="data", workers=2, progress=report)
        """)
    )
    run = subprocess.Popen(
        [sys.executable, script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert [run.stdout.readline() for _ in range(2)] == ["0\n", f"{CPU_CHUNK}\n"]
    yield run
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_and_keeps_their_finished_chunks(at_work, tmp_path):
    os.killpg(at_work.pid, signal.SIGINT)  # as a terminal does
    _, errors = at_work.communicate(timeout=30)  # would not end while a worker holds the pipe
    assert errors.count("Traceback") == 1
    assert errors.endswith("KeyboardInterrupt\n")
    assert not list((tmp_path / "data").glob("*.nc"))
    assert list((tmp_path / "data").glob(".*.partial/*[0-9].npz"))


def test_workers_do_not_outlive_who_started_them(at_work):
    at_work.kill()
    at_work.communicate(timeout=60)  # would not end while a worker holds the pipe


class TestInterrupted:
    @staticmethod
    def interrupt(toy, folder):
        def stop(done: int, total: int) -> None:
            if done >= 2 * CPU_CHUNK:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            generate(toy, "train", folder=folder, samples=3 * CPU_CHUNK, progress=stop)

    def test_it_goes_on_where_it_was_and_leaves_nothing_behind(self, toy, tmp_path):
        self.interrupt(toy, tmp_path)
        assert not (tmp_path / NAME).exists()
        toy.solved.clear()
        reported = []
        path = generate(
            toy,
            "train",
            folder=tmp_path,
            samples=3 * CPU_CHUNK,
            progress=lambda done, total: reported.append((done, total)),
        )
        assert sum(toy.solved) == CPU_CHUNK
        assert reported == [(2 * CPU_CHUNK, 3 * CPU_CHUNK), (3 * CPU_CHUNK, 3 * CPU_CHUNK)]
        at_once = generate(toy, "train", folder=tmp_path / "other", samples=3 * CPU_CHUNK)
        assert path.read_bytes() == at_once.read_bytes()
        assert {entry.name for entry in tmp_path.iterdir()} == {NAME, "other"}

    def test_a_damaged_chunk_is_made_again(self, toy, tmp_path):
        self.interrupt(toy, tmp_path)
        chunk = next(tmp_path.glob(".*.partial/00000000.npz"))
        chunk.write_bytes(chunk.read_bytes()[:-100])
        path = generate(toy, "train", folder=tmp_path, samples=3 * CPU_CHUNK)
        at_once = generate(toy, "train", folder=tmp_path / "other", samples=3 * CPU_CHUNK)
        assert path.read_bytes() == at_once.read_bytes()

    def test_chunks_of_another_recipe_are_not_taken(self, toy, tmp_path):
        self.interrupt(toy, tmp_path)
        other = dataclasses.replace(toy, a=3.0)
        inputs, outputs = values(generate(other, "train", folder=tmp_path, samples=9))
        assert np.allclose(outputs, 3 * inputs, rtol=1e-6)

    def test_chunks_of_another_version_are_not_taken(self, toy, corrected, tmp_path):
        self.interrupt(toy, tmp_path)
        inputs, outputs = values(generate(corrected, "train", folder=tmp_path, samples=9))
        assert np.allclose(outputs, -2 * inputs, rtol=1e-6)


def test_two_callers_at_once_make_a_file_once(toy, tmp_path):
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(generate, toy, "train", folder=tmp_path) for _ in range(2)]
        paths = {call.result() for call in calls}
    assert paths == {tmp_path / NAME}
    assert sum(toy.solved) == 10
    assert list(tmp_path.iterdir()) == [tmp_path / NAME]  # and nothing is left of the work


class TestWhatIsThere:
    def test_enough_samples_are_left_as_they_are(self, toy, tmp_path):
        path = generate(toy, "train", folder=tmp_path, samples=6)
        before = path.stat()
        assert generate(toy, "train", folder=tmp_path, samples=5) == path
        assert path.stat().st_ino == before.st_ino

    @pytest.mark.parametrize("change", ["constant", "seed"])
    def test_another_recipe_is_refused_unless_told(self, toy, tmp_path, change):
        path = generate(toy, "train", folder=tmp_path)
        before = path.read_bytes()
        problem = dataclasses.replace(toy, K=4) if change == "constant" else toy
        seed = 1 if change == "seed" else 0
        with pytest.raises(ValueError, match="holds data of another recipe"):
            generate(problem, "train", folder=tmp_path, seed=seed)
        assert path.read_bytes() == before
        generate(problem, "train", folder=tmp_path, seed=seed, overwrite=True)
        assert path.read_bytes() != before

    def test_another_version_is_refused_unless_told(self, toy, corrected, tmp_path):
        generate(toy, "train", folder=tmp_path)
        with pytest.raises(ValueError, match="version 1 of the recipe of toy"):
            generate(corrected, "train", folder=tmp_path)
        inputs, outputs = values(generate(corrected, "train", folder=tmp_path, overwrite=True))
        assert np.allclose(outputs, -2 * inputs, rtol=1e-6)

    def test_a_foreign_file_is_not_touched(self, toy, tmp_path):
        (tmp_path / NAME).write_text("my thesis")
        with pytest.raises(ValueError, match=r"toy-train-16\.nc is not a NetCDF4 file"):
            generate(toy, "train", folder=tmp_path)
        assert (tmp_path / NAME).read_text() == "my thesis"

    def test_a_damaged_file_to_extend_is_no_full_disk(self, toy, tmp_path, monkeypatch):
        generate(toy, "train", folder=tmp_path, samples=3)

        def unreadable(file):
            raise OSError(errno.EIO, "Can't read data")

        monkeypatch.setattr(files, "checksum", unreadable)
        with pytest.raises(OSError, match=r"^\S*toy-train-16\.nc is damaged .* overwrite\.$"):
            generate(toy, "train", folder=tmp_path, samples=5)


class TestFileSystem:
    def test_a_folder_that_cannot_be_made(self, toy, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match=r"toy-train-16\.nc.* cannot be made: .*choose"):
            generate(toy, "train", folder=tmp_path / "file" / "data")

    @pytest.mark.parametrize("limit", [4_000, 15_000])  # bytes: less than a chunk, than the file
    def test_a_full_disk_leaves_no_file_and_keeps_what_is_finished(self, toy, tmp_path, limit):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(OSError, match=r"toy-train-16\.nc cannot be written"):
                generate(toy, "train", folder=tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not (tmp_path / NAME).exists()
        path = generate(toy, "train", folder=tmp_path)
        at_once = generate(toy, "train", folder=tmp_path / "other")
        assert path.read_bytes() == at_once.read_bytes()


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"workers": 0}, {"resolution": -1}])
def test_impossible_requests(toy, tmp_path, wrong):
    with pytest.raises(ValueError, match=r"use 1 or more|too small"):
        generate(toy, "train", folder=tmp_path, **wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(toy, tmp_path):
    with pytest.raises(ValueError, match="no device 'cuda' here"):
        generate(toy, "train", folder=tmp_path, device="cuda")


def test_a_problem_that_no_other_process_can_import_is_solved_here(toy, tmp_path):
    class Local(type(toy)):
        """A problem of this function."""

    path = generate(Local(), "train", folder=tmp_path / "local", samples=9, workers=2)
    expected = generate(toy, "train", folder=tmp_path / "toy", samples=9, workers=1)
    assert all(np.array_equal(*pair) for pair in zip(values(path), values(expected), strict=True))


def test_what_the_disk_cannot_hold_is_refused_before_the_work(tmp_path):
    with pytest.raises(ValueError, match=r"GB left; ask for fewer samples"):
        generate(Poisson(), "train", folder=tmp_path / "data", samples=10**12)
    assert not (tmp_path / "data").exists()


def test_workers_import_nothing_from_the_current_folder(tmp_path):
    for name in ("pickle", "yaml", "json", "socket"):
        (tmp_path / f"{name}.py").write_text(f"open('executed', 'w').write({name!r})")
    launcher = tmp_path / "bin" / "launcher.py"
    launcher.parent.mkdir()
    launcher.write_text("import sys\nfrom torchcno.cli import main\nsys.exit(main())\n")
    words = ["poisson", "--split", "test", "--samples", "5", "--workers", "2", "--out", "data"]
    subprocess.run([sys.executable, launcher, "generate", *words], cwd=tmp_path, check=True)
    assert not (tmp_path / "executed").exists()
