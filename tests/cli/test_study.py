"""`cno study` and `cno report`, end to end on the trial budget, down to the page in a browser."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from torchcno.cli import main
from torchcno.experiments import paper
from torchcno.experiments.tables import percent

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


def test_a_plan_trains_nothing(cno, tmp_path):
    outcome = cno("study", "filters", "--out", tmp_path, "--dry-run", "--device", "cpu")
    assert outcome.code == 0
    said = " ".join(outcome.out.split())
    assert "28 runs, 0 of them finished" in said
    assert "guessed from the number of parameters" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study"], "say which study: table1"),
        (["study", "tabel1"], "did you mean 'table1'"),
        (["study", "table1", "--budget", "qick"], "did you mean 'quick'"),
        (["study", "table1", "--only", "nothing"], "no run of the study matches 'nothing'"),
        (["report", "nowhere"], "nowhere does not exist; name the --out folder of `cno study`"),
    ],
)
def test_mistakes_are_explained(cno, words, message):
    outcome = cno(*words)
    assert outcome.code == 2
    assert message in outcome.err


def test_the_page_is_whole(page):
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)  # nothing is fetched
    for heading in (
        "Table 1.",
        "Table 4.",
        "Tables 6 to 12.",
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
        if (row["problem"], row["split"], row["by"]) == ("Poisson equation", "Out", "ours, quick")
    )
    result = json.loads((results / "quick/runs/poisson-fno-quick-0/result.json").read_text())
    median = result["errors"]["ood"]["relative_l1_median_percent"]["normalized"]
    assert row["values"]["FNO"] == median
    assert [name for name, value in row["values"].items() if value is None] == ["linear"]
    mean_field = result["mean_field_errors"]["ood"]["relative_l1_median_percent"]["normalized"]
    assert row["values"]["mean field"] == mean_field
    assert percent(median).text in page.read_text()
    assert percent(median).text in (page.parent / "page-tables" / "table-1.tex").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_browser_shows_the_page(page, tmp_path):
    counting = """<script>addEventListener("load", () => {
        const loaded = [...document.images].filter((i) => i.complete && i.naturalWidth > 0);
        document.body.dataset.loaded = loaded.length; });</script></body>"""
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
    assert "CONSOLE" not in shown.stderr
