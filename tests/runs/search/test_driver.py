import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.study import Study
from optuna.trial import TrialState

from torchcno.runs.config import RunConfig, read_tree, write_tree
from torchcno.runs.folder import read_config
from torchcno.runs.search import driver
from torchcno.runs.search.driver import Means, run_search
from torchcno.runs.search.report import best_of, trial_rows, write_report
from torchcno.runs.search.space import Space
from torchcno.runs.search.study import SAMPLERS, Search, open_study

SCRIPT = Path(__file__).with_name("small_search.py")
spec = spec_from_file_location("small_search", SCRIPT)
small = module_from_spec(spec)
spec.loader.exec_module(small)


def start(*words: object) -> subprocess.Popen[str]:
    """The search in a process of its own."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def outcomes(study: Study) -> list[tuple]:
    """What a search came to, but for times and places."""
    return [(t.number, t.state, t.params, t.value) for t in study.get_trials()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A search that was left alone, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "LOOK", 0.05)
        patch.setattr("torchcno.runs.jobs.run_in_process", lambda r, e: small.jobs.run_request(r))
        study = run_search(small.search(data), folder, small.TRIALS)
    return study, folder


def test_a_trial_is_a_run_of_its_choice_that_saw_no_test_data(alone, data):
    study, folder = alone
    space = small.search(data).space
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    for trial in study.trials:
        run = folder / "trials" / f"{trial.number:04d}"
        assert read_config(run) == space.config(space.draw(0, trial.number))
        result = json.loads((run / "result.json").read_text())
        assert trial.value == result["best_validation_error"]
        assert trial.user_attrs["parameters"] == result["parameters"]
        assert list(result["errors"]) == ["val"]


def test_the_report_evaluates_the_best_trial_only(alone, data):
    study, folder = alone
    rows = trial_rows(study, small.TRIALS)
    best = best_of(rows)
    assert best.validation_error == min(trial.value for trial in study.trials)
    result = write_report(small.search(data), rows, folder, "cpu")
    assert (result["best"], result["finished"]) == (best.number, 3)
    assert list(result["errors"]) == ["test", "ood"]
    again = RunConfig.from_tree(read_tree(folder / "best.yaml"))
    assert again == read_config(folder / "trials" / f"{best.number:04d}")
    table = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [float(row["validation_error"]) for row in table] == [t.value for t in study.trials]
    devices = [t.user_attrs["device"] for t in study.trials]
    assert [row["device"] for row in table] == [row.size.device for row in rows] == devices


def test_a_search_may_be_moved(alone, data, tmp_path):
    study, folder = alone
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    rows = [replace(row, folder="/gone/trials/0000") for row in trial_rows(study, small.TRIALS)]
    best = best_of(rows).number
    assert write_report(small.search(data), rows, tmp_path)["folder"] == f"trials/{best:04d}"
    shutil.rmtree(tmp_path / "trials")
    with pytest.raises(ValueError, match=r"cno evaluate /gone/trials/0000` there"):
        write_report(small.search(data), rows, tmp_path)


def test_there_are_no_more_trials_than_configurations(data, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "LOOK", 0.05)
    diverged = {"state": "diverged", "error": "the loss is nan."}
    monkeypatch.setattr("torchcno.runs.jobs.run_in_process", lambda r, e: diverged)
    study = run_search(small.search(data), tmp_path, 99)
    assert len(study.trials) == len({tuple(t.params.items()) for t in study.trials}) == 12


def test_what_cannot_be_tested_is_not_trained(data, tmp_path):
    base = small.search(data).space.base
    coarse = replace(base, problem=replace(base.problem, K=16), resolution=20)
    with pytest.raises(ValueError, match="does not resolve K = 20"):
        run_search(Search(Space(coarse, small.RANGES)), tmp_path / "search", 1)
    assert not (tmp_path / "search").exists()


def test_a_killed_search_ends_with_the_trials_of_one_left_alone(
    alone, data, tmp_path, in_this_process
):
    process = start(data, tmp_path, small.TRIALS)
    metrics = tmp_path / "trials" / "0001" / "metrics.jsonl"
    end = time.monotonic() + 120
    while not metrics.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    process.communicate()
    begun = open_study(small.search(data), tmp_path)
    assert [t.state for t in begun.trials] == [TrialState.COMPLETE, TrialState.RUNNING]
    study = run_search(small.search(data), tmp_path, small.TRIALS)
    assert outcomes(study) == outcomes(alone[0])


def test_two_processes_share_a_study(alone, data, tmp_path):
    share(alone, data, tmp_path, None)


@pytest.mark.slow
def test_two_processes_share_a_study_on_postgresql(alone, data, tmp_path, postgresql):
    share(alone, data, tmp_path, postgresql)


def share(alone: tuple[Study, Path], data: Path, out: Path, url: str | None) -> None:
    """Each trial once, with the results of one process."""
    words = (data, out, small.TRIALS, *([url] if url else []))
    processes = [start(*words) for _ in range(2)]
    for process in processes:
        assert process.wait(200) == 0, process.stderr.read()
        process.stderr.close()
    for trial in alone[0].trials:
        run, there = (f / "trials" / f"{trial.number:04d}" for f in (out, alone[1]))
        assert read_config(run) == read_config(there)
        result = json.loads((run / "result.json").read_text())
        assert result["best_validation_error"] == trial.value
        lines = (run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 13))
    assert len(list((out / "trials").iterdir())) == small.TRIALS


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server from Debian's packages."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    folder = Path(tempfile.mkdtemp())
    user = "postgres" if os.getuid() == 0 else None  # it does not run as root
    if user:
        shutil.chown(folder, user)
    options = f"-k {folder} -c listen_addresses=''"

    def call(program: str, *words: str) -> None:
        command = [str(programs[-1] / program), "-D", str(folder / "data"), *words]
        subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    call("initdb", "--auth", "trust", "--username", "cno")
    call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://cno@/postgres?host={folder}"
    finally:
        call("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def test_successive_halving_stops_what_lags(data, tmp_path, monkeypatch):
    """Of trials that differ in learning rate alone, those that do not learn do not go on."""
    good, bad = 1e-2, 1e-12
    search = small.search(data, epochs=16)
    search = Search(
        Space(replace(search.space.base, seed=1), {"train.learning_rate": (good, bad)}),
        pruner="halving",
    )
    assert search.space.draw(1, 0) == {"train.learning_rate": good}  # a standard for the others

    def pretend(request, environment):
        """A run of that learning rate, which stops when it is asked to."""
        folder = Path(request["folder"])
        folder.mkdir(parents=True)
        learns = request["config"]["train"]["learning_rate"] == good
        errors = [1 / epoch if learns else 1.0 for epoch in range(1, 17)]
        rows = [{"epoch": i, "validation_error": e} for i, e in enumerate(errors, start=1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        end = time.monotonic() + (1 if learns else 60)
        while time.monotonic() < end:
            if (folder / "stop").exists():
                return {"state": "stopped"}
            time.sleep(0.02)
        result = {"best_validation_error": errors[-1], "epochs": 16}
        result |= {"seconds_per_epoch": 1.0, "device": "none"}
        (folder / "result.json").write_text(json.dumps(result))
        return {"state": "finished"}

    monkeypatch.setattr(driver, "LOOK", 0.05)
    monkeypatch.setattr("torchcno.runs.jobs.run_in_process", pretend)
    study = run_search(search, tmp_path, 4)
    for trial in study.trials:
        learns = trial.params["train.learning_rate"] == good
        assert trial.state == (TrialState.COMPLETE if learns else TrialState.PRUNED)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_tpe_proposes_only_what_counts(data):
    """After the startup the sampler asks a model of the errors; a budget still holds."""
    base = small.search(data).space.base
    ranges = small.RANGES | {"train.batch_size": (1, 2, 4, 8)}
    space = Space.of(base, ranges, ("model.modes", "model.pad"), max_parameters=500)
    assert 30 <= space.count(99) < 96
    study = optuna.create_study(sampler=SAMPLERS["tpe"](Search(space, "tpe")))
    for _ in range(30):
        trial = study.ask({name: CategoricalDistribution(v) for name, v in space.ranges.items()})
        assert not space.refusal(trial.params)
        study.tell(trial, trial.params["train.learning_rate"])
    late = [trial.params["train.learning_rate"] for trial in study.trials[15:]]
    assert late.count(1e-3) > len(late) / 2  # it learns where the error is small


def test_a_claim_is_kept_up_or_falls_to_others(data, tmp_path, monkeypatch):
    study = open_study(small.search(data), tmp_path)
    trial = study.ask()

    def forfeit() -> bool:
        return driver.is_forfeit(study.trials[0])

    assert not forfeit()  # not yet claimed
    driver.claim(trial)
    assert not forfeit()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + driver.FORFEIT + 1)
    assert forfeit()  # not kept up
    driver.claim(trial)
    assert not forfeit()
    driver.release(trial)
    assert forfeit()
    driver.claim(trial)
    monkeypatch.setattr(driver, "is_alive", lambda process: False)
    assert forfeit()  # its process is gone


@pytest.mark.parametrize("state", ["finished", "diverged", "failed"])
def test_a_trial_that_another_process_has_closed_stays_as_it_is(data, tmp_path, monkeypatch, state):
    search = replace(small.search(data), pruner="halving")

    def slow(request, environment):
        """A run that is taken for dead, and another process ends its trial."""
        folder = Path(request["folder"])
        folder.mkdir(parents=True)
        open_study(search, tmp_path).tell(0, 0.5)
        (folder / "metrics.jsonl").write_text('{"epoch": 1, "validation_error": 1.0}\n')
        time.sleep(0.5)  # in which it is looked at, and claimed again
        result = {"best_validation_error": 0.7, "epochs": 1}
        result |= {"seconds_per_epoch": 1.0, "device": "none"}
        (folder / "result.json").write_text(json.dumps(result))
        return {"state": state, "error": "it went wrong."}

    monkeypatch.setattr(driver, "LOOK", 0.05)
    monkeypatch.setattr(driver, "CLAIM", 0.0)
    monkeypatch.setattr("torchcno.runs.jobs.run_in_process", slow)
    (trial,) = run_search(search, tmp_path, 1).trials
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.5)
    assert not driver.claim(optuna.trial.Trial(open_study(search, tmp_path), trial._trial_id))


def test_what_failed_here_is_tried_again_later(data, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "LOOK", 0.05)
    broken = {"state": "failed", "error": "the disk is full."}
    monkeypatch.setattr("torchcno.runs.jobs.run_in_process", lambda r, e: broken)
    study = run_search(small.search(data), tmp_path, 2)
    with pytest.raises(ValueError, match=r"none of 2 trials finished\. Trial 0: the disk is full"):
        best_of(trial_rows(study, 2))
    monkeypatch.setattr("torchcno.runs.jobs.run_in_process", lambda r, e: small.jobs.run_request(r))
    study = run_search(small.search(data), tmp_path, 2)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2


def test_how_trials_are_run_kept_and_drawn_makes_no_other_search(data, tmp_path):
    search = small.search(data)
    study = open_study(search, tmp_path)
    trial = study.ask()
    base = search.space.base
    training = replace(base.train, fast="compiled", checkpoint_every=7.0)
    otherwise = replace(base, train=training, tensorboard=True)
    other = replace(search, space=replace(search.space, base=otherwise))
    assert [t.number for t in open_study(other, tmp_path).trials] == [trial.number]


def that_said_how_trials_were_run(base: dict[str, Any]) -> None:
    base["train"] |= {"fast": "compiled", "checkpoint_every": 7.0}
    base["tensorboard"] = True


def with_fewer_fields(base: dict[str, Any]) -> None:
    del base["train"]["fast"], base["train"]["frozen_statistics"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("as_then", [that_said_how_trials_were_run, with_fewer_fields])
def test_a_search_of_an_older_version_goes_on_with_its_trials(
    data, tmp_path, monkeypatch, as_then, shared
):
    search = small.search(data)
    url = f"sqlite:///{tmp_path / 'shared.db'}" if shared else None
    tree = search.to_tree()
    as_then(tree["base"])
    with monkeypatch.context() as then:
        then.setattr(Search, "to_tree", lambda search: tree)
        trial = open_study(search, tmp_path, url).ask()
    assert read_tree(tmp_path / "search.yaml") == tree
    assert [t.number for t in open_study(search, tmp_path, url).trials] == [trial.number]


def test_a_search_from_before_a_field_was_there_has_it_as_by_default(data, tmp_path):
    open_study(small.search(data), tmp_path)
    path = tmp_path / "search.yaml"
    tree = read_tree(path)
    with_fewer_fields(tree["base"])
    write_tree(tree, path)
    with pytest.raises(ValueError, match=r"differs in base\.train\.frozen_statistics; choose"):
        open_study(small.search(data, frozen_statistics=0.5), tmp_path)
    open_study(small.search(data, frozen_statistics=0.0), tmp_path)


def test_a_search_by_the_defaults_is_named_after_all_fields():
    """Studies in databases are called so: by another name they would have no trials."""
    base = RunConfig.resolve("poisson", "fno")
    named = Search(Space.of(base)).to_tree()["base"]
    assert named == {key: base.to_tree()[key] for key in named}
    assert base.to_tree().keys() - named.keys() == {"format", "torchcno", "data", "hardware"}


def test_another_search_is_kept_out_of_the_folder(data, tmp_path):
    open_study(small.search(data), tmp_path)
    open_study(small.search(data), tmp_path)
    with pytest.raises(ValueError, match=r"differs in base\.train\.epochs; choose another --out"):
        run_search(small.search(data, epochs=13), tmp_path, 1)


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://localhost:1/x", "nonsense", "sqlite:////nowhere/at/all.db", "soap://x"],
)
def test_a_database_that_does_not_answer_is_named(data, tmp_path, url):
    with pytest.raises(ValueError, match="no database answers at"):
        run_search(small.search(data), tmp_path / "search", 1, Means(storage=url))
    assert not (tmp_path / "search").exists()
