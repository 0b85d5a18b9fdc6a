import csv

import pytest

from torchcno.runs import jobs

# After the words of `tiny`, which fix most fields of a small CNO.
SEARCH = ["--range", "model.width=2,4", "--range", "train.learning_rate=0.001,0.002", "--jobs", 1]


def test_a_search_goes_on_to_more_trials(cno, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        jobs, "run_in_process", lambda request, environment: jobs.run_request(request)
    )
    words = ["search", *tiny, *SEARCH, "--train.epochs", 1, "--out", tmp_path]
    first = cno(*words, "--trials", 1)
    assert first.code == 0, first.err
    rows = [(tmp_path / "trials.csv").read_text().splitlines()[1]]
    second = cno(*words, "--trials", 2)
    assert second.code == 0, second.err
    assert (tmp_path / "trials.csv").read_text().splitlines()[1:2] == rows
    table = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    best = min(table, key=lambda row: float(row["validation_error"]))
    assert f"Trial {best['number']} is the best" in second.out
    # Fields given as options are fixed, those with a range are searched.
    assert {name for name in table[0] if "." in name} == {
        "model.width",
        "train.learning_rate",
        "train.weight_decay",
    }


def test_failed_trials_are_told(cno, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch):
    def perform(request, environment):
        if request["folder"].endswith("0001"):
            return {"state": "failed", "error": "the disk is full."}
        return jobs.run_request(request)

    monkeypatch.setattr(jobs, "run_in_process", perform)
    words = ["search", *tiny, *SEARCH, "--train.epochs", 1, "--out", tmp_path, "--trials", 2]
    outcome = cno(*words)
    assert outcome.code == 1
    assert "1 of 2 trials failed, trial 1 because the disk is full" in outcome.err
    assert "the same command tries them again" in outcome.err
    assert (tmp_path / "result.json").exists()


def test_a_search_ends_with_its_configurations(
    cno, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        jobs, "run_in_process", lambda request, environment: jobs.run_request(request)
    )
    one = ["--range", "model.width=2", "--train.learning_rate", 1e-3, "--train.weight_decay", 0]
    words = ["search", *tiny, *one, "--jobs", 1, "--train.epochs", 1, "--out", tmp_path]
    outcome = cno(*words, "--trials", 5)
    assert outcome.code == 0, outcome.err
    assert "All 1 configurations of the ranges were tried." in outcome.out
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poisson"], "cno search PROBLEM MODEL --out FOLDER"),
        (["poisson", "cno", "fno"], "Unrecognized options: fno"),
        (["poisson", "cno"], "say where the trials shall lie"),
        (["poisson", "cno", "--sampler", "grid"], "unknown sampler 'grid'"),
        (["poisson", "cno", "--pruner", "halvin"], "did you mean 'halving'?"),
        (["poisson", "cno", "--trials", "0"], "0 trials"),
        (["poisson", "cno", "--max-parameters", "none"], "--max-parameters"),
        (["poisson", "cno", "--range", "model.width"], "--range model.width=16,32"),
        (["poisson", "cno", "--range", "model.width="], "the range of model.width is empty"),
        (["poisson", "cno", "--range", "model.widht=16"], "did you mean 'width'?"),
        (["poisson", "cno", "--range", "model.width=wide"], "model.width is 'wide'"),
        (["poisson", "cno", "--range", "model.width=[1"], "--range model.width=[1 is no list"),
        (["poisson", "cno", "--jobs", "0"], "0 jobs at a time; use at least 1"),
        (["poisson", "cno", "--range", "problem.K=3"], "problem.K cannot be searched"),
        (["poisson", "cno", "--range", "model.levels=7"], "not divisible by 2**levels"),
        (["poisson", "unet", "--max-parameters", "1e5"], "no configuration in the ranges is valid"),
        (["poisson", "unet", "--resolution", "12"], "at least 16 points per axis"),
        (["poisson", "cno", "--cluster", "tcp://127.0.0.1:1"], "no dask scheduler answers"),
        (["poisson", "cno", "--cluster", "nowhere"], "no dask scheduler answers at 'nowhere'"),
        (["poisson", "cno", "--storage", "postgresql+psycopg://localhost:1/x"], "no database"),
    ],
)
def test_bad_words_are_named_before_anything_starts(
    cno, tmp_path, monkeypatch: pytest.MonkeyPatch, words, message
):
    monkeypatch.setattr(jobs, "CONNECTING", 1.0)
    out = [] if "shall lie" in message else ["--out", tmp_path / "search"]
    outcome = cno("search", *words, *out)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "search").exists()
