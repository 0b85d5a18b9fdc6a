"""`cno study` and `cno report`, end to end on the trial budget, down to the page in a browser."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from torchcno.cli import main
from torchcno.cli.study import duration, watch_runs
from torchcno.paper import published as paper
from torchcno.paper.costs import AROUND
from torchcno.paper.pivots import percent
from torchcno.paper.results import Results
from torchcno.paper.studies import BUDGETS, planned
from torchcno.paper.tables import all_tables
from torchcno.runs.folder import RunFolder, read_config
from torchcno.runs.jobs import Job, Outcome

CHROMIUM = shutil.which("chromium")
PICTURES = 10
WORDS = ["study", "table1", "--budget", "quick", "--device", "cpu"]  # 7 models on 2 problems


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished trial."""
    folder = tmp_path_factory.mktemp("study")
    words = [*WORDS, "--out", folder / "results", "--data", folder / "data"]
    assert main([str(word) for word in words]) == 0
    return folder / "results"


@pytest.fixture(scope="module")
def page(results: Path) -> Path:
    """Its report."""
    path = results.parent / "page.html"
    assert main(["report", str(results / "quick"), "--out", str(path)]) == 0
    return path


def test_runs_lie_under_their_names(results):
    runs = {path.parent.name for path in results.glob("quick/runs/*/result.json")}
    assert runs == {
        f"{problem}-{model}-quick-0"
        for problem in ("poisson", "smooth-transport")
        for model in paper.COMPARED
    }


def test_the_same_command_again_has_nothing_to_do(cno, results):
    outcome = cno(*WORDS, "--out", results, "--data", results.parent / "data")
    assert outcome.code == 0
    assert "14 runs, 14 of them finished" in " ".join(outcome.out.split())
    assert "0 runs in" in outcome.out


@pytest.mark.parametrize(
    ("words", "fast"),
    [([], "auto"), (["--fast", "compiled"], "compiled"), (["--fast", "off"], "off")],
)
def test_steps_are_run_as_told_and_no_run_is_another_for_it(cno, results, tmp_path, words, fast):
    """Finished ones are left alone, however their steps were run."""
    ffnn = "quick/runs/poisson-ffnn-quick-0"
    shutil.copytree(results / "quick", tmp_path / "quick")
    shutil.rmtree(tmp_path / ffnn)
    outcome = cno(*WORDS, "--out", tmp_path, "--data", results.parent / "data", *words)
    assert outcome.code == 0, outcome.err
    assert "1 runs in" in outcome.out
    assert read_config(tmp_path / ffnn).train.fast == fast


def test_a_plan_trains_nothing(cno, tmp_path):
    outcome = cno("study", "filters", "--out", tmp_path, "--dry-run", "--device", "cpu")
    assert outcome.code == 0
    said = " ".join(outcome.out.split())
    assert "28 runs, 0 of them finished" in said
    assert "guessed from the number of parameters" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_cluster_may_have_gpus_where_there_is_none_here(cno, tmp_path):
    words = ["study", "resolution", "--out", tmp_path, "--dry-run", "--device", "cuda"]
    assert "torch sees no CUDA device here" in cno(*words).err
    assert "3 runs, 0 of them finished" in cno(*words, "--cluster", "tcp://a:8786").out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.063, "0.1 s"), (7, "7.0 s"), (99.6, "100 s"), (600, "10 min"), (7200, "2.0 h"),
     (1.7e3 * 3600, "71 days")],
)  # fmt: skip
def test_a_duration_is_told_in_the_unit_that_fits(seconds, words):
    assert duration(seconds) == words


def test_a_plan_says_about_what_it_takes(cno, tmp_path):
    words = ["study", "table1", "--out", tmp_path, "--dry-run", "--device", "cpu"]
    quick = " ".join(cno(*words, "--budget", "quick", "--only", "poisson-*").out.split())
    seconds = re.search(r"the others take about (\S+) s one after the other", quick)
    assert seconds is not None
    assert 7 * AROUND <= float(seconds[1]) < 20  # measured: 8 s, on two cores
    whole = " ".join(cno(*words).out.split())
    assert re.search(r"the others take about \d+ days one after the other", whole)


def test_words_in_brackets_are_told_as_they_are(capsys, tmp_path):
    """Errors may hold paths and the like, which are no markup."""
    words = "cannot open [/data/poisson.nc]; see torchcno[cluster]"
    run = planned(BUDGETS["quick"], "poisson", "ffnn")
    outcome = Outcome(Job(tmp_path / run.name, run.config), "failed", words)
    with watch_runs([run], tmp_path) as update:
        update(outcome)
    assert words in " ".join(capsys.readouterr().err.split())


def test_an_interrupt_in_the_last_moments_of_a_run_ends_the_study(results, tmp_path):
    """Be it that the last epoch is closing or the evaluation is on: no other run begins."""
    words = [*WORDS, "--out", tmp_path, "--data", results.parent / "data", "--only", "poisson-*"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchcno.cli", *(str(word) for word in words)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    first = tmp_path / "quick" / "runs" / "poisson-cno-quick-0"
    while process.poll() is None and len(RunFolder(first).rows()) < 4:
        time.sleep(0.005)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "cno study: interrupted; the same command goes on from what is saved." in said
    assert "Traceback" not in said
    assert len(list(first.parent.iterdir())) < 3


def test_a_study_that_cannot_measure_says_so(cno, results, tmp_path):
    name = "poisson-fno-quick-0"
    shutil.copytree(results / "quick/runs" / name, tmp_path / "quick/runs" / name)
    words = ["study", "spectra", *WORDS[2:], "--only", name, "--out", tmp_path]
    (tmp_path / "quick/runs" / name / "model.safetensors").unlink()
    outcome = cno(*words, "--data", results.parent / "data")
    assert outcome.code == 1
    assert "0 of them finished, 1 refused" in " ".join(outcome.out.split())
    assert "cannot measure spectra.npz: the run is trained, but its weights" in outcome.err
    assert "All of it is in" not in outcome.out


def test_a_damaged_run_stops_no_study(cno, results, tmp_path):
    shutil.copytree(results / "quick", tmp_path / "quick")
    path = tmp_path / "quick/runs/poisson-fno-quick-0/result.json"
    path.write_bytes(path.read_bytes()[:100])
    shutil.rmtree(tmp_path / "quick/runs/poisson-ffnn-quick-0")
    outcome = cno(*WORDS, "--out", tmp_path, "--data", results.parent / "data")
    assert "14 runs, 12 of them finished, 1 refused" in " ".join(outcome.out.split())
    assert outcome.code == 1
    assert "1 of 14 runs are not done" in outcome.err
    assert f"{path} cannot be read" in outcome.err
    assert (tmp_path / "quick/runs/poisson-ffnn-quick-0/result.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--documents", "nowhere.md"], "nowhere.md does not exist"),
        (["--out", "folder"], "use --out folder.html"),
        (["--out", "page.json"], "use --out page.html"),
        (["--out", "bare.md/page.html"], "bare.md is no folder that you may write to"),
    ],
)
def test_where_the_page_goes_is_checked_before_it_is_drawn(
    cno, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.md").write_text("# A page\n")
    (tmp_path / "folder").mkdir()
    outcome = cno("report", ".", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert {path.name for path in tmp_path.iterdir()} == {"bare.md", "folder"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study"], "say which study:\n  table1"),
        (["study", "tabel1"], "did you mean 'table1'"),
        (["study", "table1", "--budget", "qick"], "did you mean 'quick'"),
        (["study", "table1", "--jobs", "0", "--cluster", "tcp://a:1"], "leave out one of them"),
        (
            ["study", "table1", "--fast", "compild"],
            "unknown fast 'compild'; did you mean 'compiled'",
        ),
        (["study", "table1", "--only", "nothing"], "no run of the study matches 'nothing'"),
        (["report", "nowhere"], "nowhere does not exist; name the --out folder of `cno study`"),
        (["report", "."], ". holds no runs; make them: cno study table1 --out ."),
    ],
)
def test_mistakes_are_explained(cno, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    outcome = cno(*words)
    assert outcome.code == 2
    assert message in outcome.err


def test_the_page_is_whole(page):
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)  # nothing is fetched
    for heading in (
        "Table 1.",
        "Table 4.",
        "Table 12.",
        "Table 13.",
        "Figure 5.",
        "Figure 6.",
    ):
        assert heading in text
    # Errors, samples and data of two problems, failures, and three that need no results.
    assert text.count("<img ") == PICTURES
    assert "A trial, not a result." in text
    assert "poisson-cno-no-filters-quick-0" in text.split('id="missing"')[1]
    assert text.count("prefers-color-scheme: dark") == 1
    assert "@media print" in text


def test_numbers_on_the_page_are_those_of_the_runs(page, results):
    numbers = json.loads(page.with_suffix(".json").read_text())
    row = next(
        row
        for row in numbers["tables"]["table-1"]
        if (row["problem"], row["what"], row["recipe"]) == ("Poisson equation", "out", "quick")
    )
    result = json.loads((results / "quick/runs/poisson-fno-quick-0/result.json").read_text())
    median = result["errors"]["ood"]["relative_l1_median_percent"]["normalized"]
    assert row["values"]["FNO"] == median
    assert [name for name, value in row["values"].items() if value is None] == ["linear map"]
    mean_field = result["mean_field_errors"]["ood"]["relative_l1_median_percent"]["normalized"]
    assert row["values"]["mean field"] == mean_field
    assert percent(median).text in page.read_text()
    assert percent(median).text in page.with_suffix(".tex").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_browser_shows_the_page(page, results, tmp_path):
    counting = """<script>addEventListener("load", () => {
        const loaded = [...document.images].filter((i) => i.complete && i.naturalWidth > 0);
        document.body.dataset.loaded = loaded.length;
        const ours = (node) => node.tagName == "SMALL" ? "" : node.textContent;
        const text = (cell) => [...cell.childNodes].map(ours).join("");
        const cells = (row) => [...row.querySelectorAll("td:not(.word)")].map(text);
        const tables = [...document.querySelectorAll("h2 + .scroll > table")].map((table) => [
            table.parentElement.previousElementSibling.id,
            [...table.tBodies[0].querySelectorAll("tr:not(.group)")].map(cells)]);
        document.body.dataset.tables = encodeURIComponent(JSON.stringify(tables));
        });</script></body>"""
    (tmp_path / "page.html").write_text(page.read_text().replace("</body>", counting))
    shown = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr", "--dump-dom", f"file://{tmp_path / 'page.html'}",
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert f'data-loaded="{PICTURES}"' in shown.stdout
    (found,) = re.findall(r'data-tables="([^"]*)"', shown.stdout)
    assert dict(json.loads(unquote(found))) == {
        table.name: [[cell.text for cell in row.cells] for row in table.rows]
        for table in all_tables(Results(results / "quick"))
    }
    assert "CONSOLE" not in shown.stderr
