import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shutil import copytree

import pytest

from torchcno.models import MODELS, count_parameters
from torchcno.paper import published as paper
from torchcno.paper.costs import AROUND, PROCESS, Cost, estimate
from torchcno.paper.studies import (
    BUDGETS,
    STUDIES,
    filter_runs,
    planned,
    run_study,
    sample_counts,
    scaling_series,
    study,
    tap_runs,
)
from torchcno.problems import PROBLEMS
from torchcno.runs.config import RunConfig, write_tree
from torchcno.runs.jobs import Job
from torchcno.runs.measurements import Measurement
from torchcno.training import Hardware

EVERYTHING = [(study, budget) for study in STUDIES for budget in BUDGETS.values()]


def test_a_name_stands_for_one_run_in_all_studies():
    configs: dict[str, RunConfig] = {}
    for name, budget in EVERYTHING:
        for run in STUDIES[name].plan(budget):
            assert configs.setdefault(run.name, run.config) == run.config


def test_every_configuration_survives_its_file():
    runs = {run.name: run for name, budget in EVERYTHING for run in STUDIES[name].plan(budget)}
    for run in runs.values():
        assert RunConfig.from_tree(run.config.to_tree()) == run.config


def test_table_1_has_every_model_on_every_problem():
    for budget in (BUDGETS["paper"], BUDGETS["best"]):
        runs = study("table1").plan(budget)
        pairs = {(run.config.problem.name, run.config.model) for run in runs}
        assert len(runs) == len(pairs) == len(paper.COMPARED) * len(paper.PROBLEM_TITLES)
        assert all(run.config.preset == budget.name and not run.tag for run in runs)


def test_studies_share_the_runs_of_table_1():
    table = {run.name for run in study("table1").plan(BUDGETS["paper"])}
    for name, shared in {"resolution": 3, "spectra": 6, "ablation": 8, "filters": 1}.items():
        assert len(table & {run.name for run in study(name).plan(BUDGETS["paper"])}) == shared
    assert filter_runs(BUDGETS["paper"])[2, 0.8].name in table
    assert tap_runs(BUDGETS["paper"])[12].name in table


def test_filters_cover_the_published_tables():
    assert filter_runs(BUDGETS["paper"]).keys() == paper.FILTERS.keys()
    assert tap_runs(BUDGETS["paper"]).keys() == paper.TAPS.keys()
    # N_tap counts the taps of both phases of an upsampling by two.
    run = tap_runs(BUDGETS["paper"])[24]
    assert 2 * run.config.architecture.filter.taps == 24


def test_the_small_cno_has_the_published_size():
    runs = scaling_series(BUDGETS["paper"])["navier-stokes", "small cno"]
    network = MODELS["cno"](runs[750].config.architecture)
    millions = count_parameters(network).entries / 1e6
    assert millions == pytest.approx(paper.SCALING_PARAMETERS["small cno"], abs=0.01)


@pytest.mark.parametrize("problem", ["poisson", "wave", "navier-stokes"])
def test_samples_double_up_to_the_training_set(problem):
    *smaller, all_samples = sample_counts(BUDGETS["paper"], problem)
    assert all_samples == PROBLEMS[problem].samples["train"]
    assert smaller[0] == 64
    assert all(b == 2 * a for a, b in pairwise(smaller))
    assert smaller[-1] < all_samples <= 2 * smaller[-1]


@pytest.mark.parametrize(("study", "budget"), EVERYTHING)
def test_a_batch_is_no_larger_than_the_training_set(study, budget):
    for run in STUDIES[study].plan(budget):
        train = run.config.train
        assert train.batch_size <= (train.samples or run.config.problem.samples["train"])


def test_trials_lie_apart_from_results():
    folders = {name: budget.folder for name, budget in BUDGETS.items()}
    assert folders["paper"] == folders["best"] == Path("runs")
    assert folders["quick"] == Path("quick/runs")


def test_a_pattern_chooses_runs():
    runs = study("seeds").plan(BUDGETS["best"], "poisson-*-[01]")
    assert {run.config.seed for run in runs} == {0, 1}
    assert {run.config.problem.name for run in runs} == {"poisson"}
    with pytest.raises(ValueError, match="no run of the study matches 'posson"):
        study("seeds").plan(BUDGETS["best"], "posson-*")


def test_an_unknown_study_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'table1'"):
        study("tabel1")


@pytest.fixture
def tiny_plan(tiny_config):
    """A planned run that takes seconds."""
    run = planned(BUDGETS["paper"], "poisson", "cno")
    return replace(run, config=tiny_config)


def test_a_finished_run_is_left_alone_and_measured(tiny_plan, tiny_run, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / tiny_plan.name).symlink_to(tiny_run)
    before = (tiny_run / "result.json").stat().st_mtime_ns
    told = []
    (outcome,) = run_study("resolution", [tiny_plan], folder, parallel=0, on_update=told.append)
    assert told == [outcome]
    assert not outcome.worked
    assert (tiny_run / "result.json").stat().st_mtime_ns == before
    errors = json.loads((tiny_run / "resolution.json").read_text())["errors"]["test"]
    assert [int(n) for n in errors] == [12, 18, 24, 30, 36, 42, 48]
    at_training = errors["24"]["relative_l1_median_percent"]["normalized"]
    result = json.loads((tiny_run / "result.json").read_text())
    # The data there are made on the finest grid and band-limited: the same functions.
    expected = result["errors"]["test"]["relative_l1_median_percent"]["normalized"]
    assert at_training == pytest.approx(expected, rel=1e-3)


def test_an_interrupted_study_goes_on(tiny_plan, tmp_path):
    folder = tmp_path / "runs"
    job = Job(folder / tiny_plan.name, tiny_plan.config)
    (first,) = run_study("table1", [tiny_plan], folder, parallel=0)
    assert first.state == "finished"
    (job.folder / "result.json").unlink()  # as if it had been killed while evaluating
    (second,) = run_study("table1", [tiny_plan], folder, parallel=0)
    assert second.worked
    assert second.result["errors"] == job.result["errors"]


def test_a_run_of_another_configuration_is_not_taken_for_the_planned_one(
    tiny_plan, tiny_run, tmp_path
):
    (tmp_path / tiny_plan.name).symlink_to(tiny_run)
    longer = replace(tiny_plan.config, train=replace(tiny_plan.config.train, epochs=3))
    told = []
    (outcome,) = run_study(
        "table1", [replace(tiny_plan, config=longer)], tmp_path, parallel=0, on_update=told.append
    )
    assert told == [outcome]
    assert outcome.state == "failed"
    assert "train.epochs is 2, not 3" in outcome.error
    cost = estimate([replace(tiny_plan, config=longer)], tmp_path)[tiny_plan.name]
    assert (cost.basis, cost.why) == ("refused", outcome.error)


def test_a_run_without_weights_is_not_taken_for_measured(tiny_plan, tiny_run, tmp_path):
    folder = tmp_path / tiny_plan.name
    copytree(tiny_run, folder)
    (folder / "model.safetensors").unlink()
    (folder / "spectra.npz").unlink(missing_ok=True)
    before = (folder / "result.json").read_text()
    cost = estimate([tiny_plan], tmp_path, study("spectra").measures)[tiny_plan.name]
    (outcome,) = run_study("spectra", [tiny_plan], tmp_path, parallel=0)
    assert outcome.state == "failed"
    assert "cannot measure spectra.npz" in outcome.error
    assert f"cno train --config {folder / 'config.yaml'} --out {folder}-again" in outcome.error
    assert (cost.basis, cost.why) == ("refused", outcome.error)
    assert (folder / "result.json").read_text() == before  # nothing is trained behind one's back
    assert not (folder / "spectra.npz").exists()
    (table,) = run_study("table1", [tiny_plan], tmp_path, parallel=0)
    assert table.state == "finished"


def test_a_failure_stops_no_other_run(tiny_plan, tmp_path):
    bad = replace(
        tiny_plan,
        tag="bad",
        config=replace(
            tiny_plan.config, train=replace(tiny_plan.config.train, batch_size=9, samples=8)
        ),
    )
    bad_outcome, good = run_study("table1", [bad, tiny_plan], tmp_path, parallel=0)
    assert bad_outcome.state == "failed"
    assert "batch_size 9" in bad_outcome.error
    assert good.state == "finished"


def test_what_is_left_of_a_run_costs_what_its_epochs_took(tiny_plan, tmp_path):
    longer = replace(tiny_plan.config, train=replace(tiny_plan.config.train, epochs=10))
    begun = tmp_path / tiny_plan.name
    begun.mkdir()
    write_tree(longer.to_tree(), begun / "config.yaml")
    rows = [{"epoch": epoch, "seconds": 3.0} for epoch in (1, 2)]
    (begun / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cost = estimate([replace(tiny_plan, config=longer)], tmp_path, processes=False)
    assert cost[tiny_plan.name] == Cost(AROUND + 8 * 3.0, "measured")


def test_a_cluster_is_taken_to_have_gpus_unless_it_is_to_use_none(tiny_plan, tmp_path):
    def seconds(accelerator: str, **where: bool) -> float:
        config = replace(tiny_plan.config, hardware=Hardware(accelerator=accelerator))
        plan = replace(tiny_plan, config=config)
        return estimate([plan], tmp_path, **where)[plan.name].seconds

    assert seconds("auto", cluster=True) == seconds("cuda") < seconds("cpu")
    assert seconds("cpu", cluster=True) == seconds("cpu")


def test_quick_runs_can_be_planned_on_every_problem():
    for problem in paper.PROBLEM_TITLES:
        run = planned(BUDGETS["quick"], problem, "cno")
        assert run.config.architecture.size == (24, 24)


def test_every_run_of_a_table_is_in_its_study():
    budget = BUDGETS["quick"]
    names = {run.name for run in STUDIES["filters"].plan(budget)}
    assert {run.name for run in tap_runs(budget).values()} <= names


def test_costs_come_from_what_was_measured(tiny_plan, tiny_run, tmp_path):
    other = replace(tiny_plan, tag="twice", config=replace(tiny_plan.config, seed=1))
    doubled = replace(
        other, tag="", config=replace(other.config, train=replace(other.config.train, epochs=4))
    )
    guessed = estimate([tiny_plan], tmp_path)[tiny_plan.name]
    assert guessed.basis == "guessed"
    (tmp_path / tiny_plan.name).symlink_to(tiny_run)
    costs = estimate([tiny_plan, other, doubled], tmp_path)
    assert costs[tiny_plan.name].basis == "finished"
    assert costs[tiny_plan.name].seconds == 0
    result = json.loads((tiny_run / "result.json").read_text())
    assert costs[other.name].basis == "measured"
    around = AROUND + PROCESS
    training = costs[other.name].seconds - around
    assert training == pytest.approx(2 * result["seconds_per_epoch"])
    assert costs[doubled.name].seconds == pytest.approx(around + 2 * training)
    here = estimate([other], tmp_path, processes=False)[other.name]
    assert here.seconds == pytest.approx(AROUND + training)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "result.json").write_text("{}")
    copytree(tiny_run, tmp_path / "bare")
    (tmp_path / "bare" / "config.yaml").unlink()
    assert estimate([other], tmp_path)[other.name] == costs[other.name]
    unmeasured = estimate([tiny_plan], tmp_path, Measurement("new.json", print, lambda _: None))
    assert unmeasured[tiny_plan.name].basis == "trained"
