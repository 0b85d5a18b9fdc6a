import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from threading import Thread

import psutil
import pytest
import torch

from torchcno.disk import write_noted
from torchcno.locks import locked
from torchcno.problems.poisson import Poisson
from torchcno.runs import job_process, jobs
from torchcno.runs.config import RunConfig, differences
from torchcno.runs.folder import read_config
from torchcno.runs.jobs import Job, local_workers, run_jobs, run_request
from torchcno.runs.train import Watch, train_run
from torchcno.training import Hardware, load_tensors


def patient(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait for `condition`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def epochs(folder: Path) -> list[int]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["epoch"] for line in lines if line.endswith("\n")]


def assert_same_result(folder: Path, other: Path) -> None:
    weights, others = (load_tensors(f / "model.safetensors")[0] for f in (folder, other))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    errors = [json.loads((f / "result.json").read_text())["errors"] for f in (folder, other)]
    assert errors[0] == errors[1]


def with_training(config: RunConfig, **fields: object) -> RunConfig:
    return replace(config, train=replace(config.train, **fields))


def process_in(folder: Path) -> psutil.Process | None:
    """The process whose job lies in `folder`: its standard error is a file there."""
    for process in psutil.process_iter():
        try:
            if os.readlink(f"/proc/{process.pid}/fd/2") == str(folder / "log.txt"):
                return process
        except OSError:
            continue
    return None


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Six epochs of some milliseconds."""
    config = RunConfig.resolve(
        Poisson(K=4),
        "fno",
        resolution=24,
        data=tmp_path_factory.mktemp("data"),
        hardware=Hardware(accelerator="cpu"),
    )
    architecture = replace(config.architecture, layers=1, width=2, modes=4, hidden_width=4)
    config = replace(config, architecture=architecture)
    return with_training(config, epochs=6, samples=8, batch_size=4, evaluate_every=3)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a dask scheduler without workers."""
    path = tmp_path_factory.mktemp("dask") / "scheduler.json"
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", path)
    process = start_dask("scheduler", *map(str, options))
    try:
        patient(path.exists)
        yield json.loads(path.read_text())["address"]
    finally:
        process.kill()
        process.wait()


def start_dask(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_cluster_that_loses_a_worker_finishes_every_job_once(scheduler, quick, tmp_path):
    """Two workers, one killed while its job trains: the other takes over where it was."""
    long = with_training(quick, epochs=40, checkpoint_every=0)  # time to kill someone in the middle
    todo = [Job(tmp_path / str(i), replace(long, seed=i), gpus=0.5) for i in range(2)]
    worker = ("worker", scheduler, "--no-nanny", "--no-dashboard", "--nthreads", "1")
    workers = [start_dask(*worker, "--resources", "GPU=1") for _ in range(2)]
    killed = []

    def kill_one() -> None:
        patient(lambda: len(epochs(todo[0].folder)) > 2)
        job = process_in(todo[0].folder)
        job.parent().kill()
        job.wait(10)  # it does not outlive its worker
        killed.append(len(epochs(todo[0].folder)))

    killer = Thread(target=kill_one)
    killer.start()
    try:
        heard = []
        outcomes = run_jobs(todo, cluster=scheduler, on_update=heard.append)
        killer.join()
        # Nobody offers two GPUs: an error now, where dask would wait for ever.
        greedy = replace(todo[0], folder=tmp_path / "greedy", gpus=2)
        with pytest.raises(ValueError, match=r"needs 2 GPU and no worker of .* offers more than 1"):
            run_jobs([greedy], cluster=scheduler)
    finally:
        for process in workers:
            process.kill()
            process.wait()

    assert 2 < killed[0] < 40
    assert [outcome.state for outcome in outcomes] == ["finished", "finished"]
    assert sorted(str(outcome.job.folder) for outcome in heard) == [str(j.folder) for j in todo]
    for i, job in enumerate(todo):
        assert epochs(job.folder) == list(range(1, 41))
        train_run(with_training(job.config, checkpoint_every=1e9), tmp_path / f"local-{i}")
        assert_same_result(job.folder, tmp_path / f"local-{i}")


def stand_in(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the process of a job be `script`, which starts in no time."""
    monkeypatch.setattr(job_process, "COMMAND", [sys.executable, "-c", textwrap.dedent(script)])


def test_a_process_that_dies_without_a_word_is_started_again(quick, tmp_path, monkeypatch):
    stand_in(
        monkeypatch,
        """
        import json, os, pathlib
        tries = pathlib.Path(json.loads(input())["folder"], "tries")
        tries.open("a").write("x")
        if len(tries.read_text()) < 3:
            os.kill(os.getpid(), 9)
        print('{"state": "finished"}')
        """,
    )
    job = Job(tmp_path / "run", quick)
    assert run_jobs([job], parallel=1)[0].state == "finished"
    stand_in(monkeypatch, "import os; input(); os.kill(os.getpid(), 9)")
    (outcome,) = run_jobs([job], parallel=1)
    assert outcome.state == "failed"
    assert "3 times without a word, at last by SIGKILL" in outcome.error


def test_a_job_is_by_itself_whatever_task_starts_it(quick, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("RANK", "3")
    stand_in(
        monkeypatch,
        """
        import json, os
        task = [name for name in ("SLURM_PROCID", "SLURM_NTASKS", "RANK") if name in os.environ]
        print(json.dumps({"state": "stopped", "error": " ".join(task)}))
        """,
    )
    (outcome,) = run_jobs([Job(tmp_path / "run", quick)], parallel=1)
    assert (outcome.state, outcome.error) == ("stopped", "")


def test_what_is_finished_is_left_and_what_is_not_goes_on(quick, tmp_path, in_this_process):
    def stop_at_five(epoch):
        if epoch.epoch == 5:
            raise RuntimeError("the machine is switched off")

    todo = [Job(tmp_path / name, quick) for name in ("finished", "begun", "new")]
    train_run(quick, todo[0].folder)
    with pytest.raises(RuntimeError, match="switched off"):
        train_run(quick, todo[1].folder, Watch(epoch=stop_at_five))
    before = (todo[0].folder / "result.json").read_text()

    heard = []
    outcomes = run_jobs(todo, parallel=1, on_update=heard.append)
    assert [outcome.worked for outcome in outcomes] == [False, True, True]
    assert heard[0].job == todo[0]
    assert (todo[0].folder / "result.json").read_text() == before
    for job in todo[1:]:
        assert_same_result(job.folder, todo[0].folder)


def test_a_run_goes_on_with_the_data_and_the_hardware_of_its_job(quick, tmp_path, in_this_process):
    """On another machine than it began on, say."""

    def stop(epoch):
        if epoch.epoch == 3:
            raise RuntimeError("the machine is switched off")

    job = Job(tmp_path / "run", replace(quick, data=copytree(quick.data, tmp_path / "new")))
    moved = copytree(quick.data, tmp_path / "old")
    with pytest.raises(RuntimeError, match="switched off"):
        train_run(replace(quick, data=moved), job.folder, Watch(epoch=stop))
    rmtree(moved)
    text = (job.folder / "config.yaml").read_text()
    text = text.replace("accelerator: cpu", "accelerator: cuda")
    write_noted(job.folder / "config.yaml", text.encode())
    assert read_config(job.folder).hardware.accelerator == "cuda"

    (outcome,) = run_jobs([job], parallel=1)
    assert (outcome.state, outcome.error) == ("finished", "")
    assert read_config(job.folder) == job.config
    assert not moved.exists()


def test_what_others_print_is_no_answer(quick, tmp_path, monkeypatch):
    stand_in(
        monkeypatch,
        """
        import os, subprocess, sys, types
        from torchcno.runs import job_process
        def answer(request):
            print("python")
            os.write(1, b"library\\n")
            subprocess.run(["echo", "process"])
            return {"state": "finished"}
        sys.modules["torchcno.runs.jobs"] = types.SimpleNamespace(run_request=answer)
        job_process.main()
        """,
    )
    (outcome,) = run_jobs([Job(tmp_path / "run", quick)], parallel=1)
    assert (outcome.state, outcome.error) == ("finished", "")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert all(word in log for word in ("python", "library", "process"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_stop_that_comes_before_the_job_begins_is_heard(quick, tmp_path, monkeypatch, is_there):
    stand_in(monkeypatch, "import time; input(); time.sleep(60)")
    job = Job(tmp_path / "run", quick)
    if is_there:
        job.folder.mkdir()
    job_process.request_stop(job.folder)
    assert job_process.run_in_process(job.request)["state"] == "stopped"
    stand_in(monkeypatch, """input(); print('{"state": "finished"}')""")
    assert run_jobs([job], parallel=1)[0].state == "finished"  # who asks again means it


def test_one_failure_stops_no_other_job(quick, tmp_path, in_this_process):
    diverging = Job(tmp_path / "diverging", with_training(quick, learning_rate=1e30))
    failing = Job(tmp_path / "failing", with_training(quick, batch_size=9))
    fine = Job(tmp_path / "fine", quick)
    outcomes = run_jobs([diverging, failing, fine], parallel=1)
    assert [outcome.state for outcome in outcomes] == ["diverged", "failed", "finished"]
    assert "smaller learning rate" in outcomes[0].error
    assert "batch_size 9 is larger than the 8 training samples" in outcomes[1].error
    assert outcomes[2].result["epochs"] == 6


@pytest.fixture
def _heard() -> Iterator[None]:
    """Ctrl-C is heard also where tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_asks_jobs_to_save_and_starts_no_other(quick, tmp_path, monkeypatch, number):
    stand_in(
        monkeypatch,
        """
        import json, pathlib, signal, sys, time
        folder = pathlib.Path(json.loads(input())["folder"])
        def save(*_):
            (folder / "saved").touch()
            sys.exit()
        signal.signal(signal.SIGTERM, save)
        (folder / "begun").touch()
        time.sleep(60)
        """,
    )
    begun, queued = (Job(tmp_path / name, quick) for name in ("begun", "queued"))

    def interrupt() -> None:
        patient((begun.folder / "begun").exists)
        os.kill(os.getpid(), number)

    Thread(target=interrupt).start()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([begun, queued], parallel=1)
    assert signal.getsignal(number) is before
    assert (begun.folder / "saved").exists()
    assert not queued.folder.exists()


def test_a_folder_is_one_process_at_a_time(tmp_path):
    second = (tmp_path / ".lock").open("w")
    with second, locked(tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_job_waits_for_who_is_at_work_in_its_folder(quick, tmp_path):
    """And finds the work done."""
    job = Job(tmp_path / "run", quick)
    train_run(quick, tmp_path / "elsewhere")
    job.folder.mkdir()
    waiting = Thread(target=run_request, args=[job.request])
    with locked(job.folder):
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        copytree(tmp_path / "elsewhere", job.folder, dirs_exist_ok=True)
        before = (job.folder / "result.json").stat().st_mtime_ns
    waiting.join(60)
    assert not waiting.is_alive()
    assert (job.folder / "result.json").stat().st_mtime_ns == before


def test_the_places_of_a_machine_share_its_gpus_and_cores(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    shares = [jobs._share(place, 4) for place in range(4)]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares] == ["3", "5", "3", "5"]
    assert {share["OMP_NUM_THREADS"] for share in shares} == {"2"}


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "ftp://x:1"])
def test_a_cluster_that_does_not_answer_is_named(quick, tmp_path, monkeypatch, address):
    monkeypatch.setattr(jobs, "CONNECTING", 1.0)
    with pytest.raises(ValueError, match=rf"no dask scheduler answers at '{address}'"):
        run_jobs([Job(tmp_path / "run", quick)], cluster=address)
    assert not (tmp_path / "run").exists()


def test_jobs_that_would_mix_are_refused(quick, tmp_path, in_this_process):
    job = Job(tmp_path / "run", quick)
    with pytest.raises(ValueError, match="two jobs have the folder"):
        run_jobs([job, replace(job, config=replace(quick, seed=1))])
    run_jobs([job], parallel=1)
    with pytest.raises(ValueError, match="0 jobs at a time"), local_workers(0):
        pass


def test_a_job_of_several_devices_is_refused(quick, tmp_path):
    """Its further processes would wait for a request that the first has read."""
    with pytest.raises(ValueError, match="leave --devices and --nodes out"):
        Job(tmp_path, replace(quick, hardware=Hardware(accelerator="cpu", devices=2)))


def test_a_problem_that_the_process_of_a_job_does_not_know_is_named(quick, tmp_path):
    request = Job(tmp_path, quick).request
    config = {**request["config"], "problem": {"name": "heat"}}
    answer = jobs.run_request({**request, "config": config})
    assert answer["state"] == "failed"
    assert "unknown problem 'heat'" in answer["error"]


def test_who_is_told_of_outcomes_may_stop_all(quick, tmp_path, in_this_process):
    def interrupted(outcome: jobs.Outcome) -> None:
        raise KeyboardInterrupt

    todo = [Job(tmp_path / str(i), quick) for i in range(3)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(todo, parallel=1, on_update=interrupted)
    assert todo[0].result is not None
    assert todo[2].result is None


def test_how_steps_are_run_and_kept_makes_no_other_run(quick, tmp_path, in_this_process):
    job = Job(tmp_path / "run", quick)
    run_jobs([job], parallel=1)
    elsewhere = replace(quick, data=tmp_path, hardware=Hardware(accelerator="auto"))
    other = with_training(elsewhere, fast="compiled", checkpoint_every=5.0)
    assert [o.worked for o in run_jobs([replace(job, config=other)])] == [False]
    assert not differences(other, quick)
    changed = differences(with_training(replace(other, seed=1), epochs=7), quick)
    assert changed == {"seed": (1, 0), "train.epochs": (7, 6)}


def test_a_folder_with_another_run_is_refused_and_stops_no_other(quick, tmp_path, in_this_process):
    job, new = Job(tmp_path / "run", quick), Job(tmp_path / "new", quick)
    run_jobs([job], parallel=1)
    before = (job.folder / "result.json").read_text()
    other = replace(job, config=with_training(quick, epochs=7))
    refused, trained = run_jobs([other, new], parallel=1)
    assert (refused.state, refused.worked, refused.result) == ("failed", False, None)
    assert "holds another run: train.epochs is 6, not 7; choose another folder" in refused.error
    assert f"or move {job.folder} away" in refused.error
    assert trained.state == "finished"
    assert (job.folder / "result.json").read_text() == before
    (job.folder / "config.yaml").unlink()
    (unknown,) = run_jobs([job], parallel=1)
    assert "a run without its config.yaml" in unknown.error


def test_a_damaged_run_is_neither_used_nor_written_over(quick, tmp_path, in_this_process):
    job = Job(tmp_path / "run", quick)
    run_jobs([job], parallel=1)
    whole = {path: path.read_bytes() for path in job.folder.iterdir() if path.is_file()}
    damages = {
        path: whole[path][: len(whole[path]) // 2]
        for path in whole
        if path.suffix in (".yaml", ".npz") or path.name == "result.json"
    }
    assert len(damages) == 5
    for path, rest in [*damages.items(), (job.folder / "result.json", b"{}")]:
        path.write_bytes(rest)
        (outcome,) = run_jobs([job], parallel=1)
        assert outcome.state == "failed"
        assert f"{path} cannot be read (" in outcome.error
        assert "the same command makes the run anew" in outcome.error
        assert all(p.read_bytes() == whole[p] for p in whole if p != path)
        assert path.read_bytes() == rest
        path.write_bytes(whole[path])
    assert run_jobs([job])[0].state == "finished"
