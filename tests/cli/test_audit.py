import json
import shutil
from dataclasses import replace

import pytest
from matplotlib.image import imread

from torchcno.disk import write_json
from torchcno.runs.audit import read_audits
from torchcno.runs.folder import RunFolder


@pytest.fixture(scope="session")
def words():
    return ("--samples", 2, "--device", "cpu", "--resolutions", "16,24,36", "--aliasing-only")


def test_verdict_and_exit_code_follow_the_threshold(cno, run_folder, words, tmp_path):
    path = tmp_path / "audit.json"
    outcome = cno("audit", run_folder, *words, "--threshold", 1e-3, "--json", path)
    assert outcome.code == 0
    assert "tiny: passes" in outcome.out
    content = json.loads(path.read_text())
    (audit,) = content["audits"]
    assert content["passed"]
    assert audit["passed"]
    # Through the change of representation a CNO is one operator, to float32's rounding.
    assert [rung["size"] for rung in audit["ladder"]] == [[16, 16], [24, 24]]
    assert audit["worst"] < 1e-5
    assert all(layer["name"].endswith("activation") for layer in audit["layers"])

    outcome = cno("audit", run_folder, *words, "--threshold", 1e-9)
    assert outcome.code == 1
    assert "tiny: FAILS" in outcome.out


def test_runs_side_by_side(cno, run_folder, words, tmp_path):
    path = tmp_path / "audit.png"
    twin = tmp_path / "twin"
    twin.symlink_to(run_folder)
    outcome = cno("audit", run_folder, twin, *words, "--plot", path, "--threshold", 1)
    assert outcome.code == 0
    assert imread(path).ndim == 3


def test_what_cannot_be_audited_is_named(cno, run_folder, tmp_path):
    missing = cno("audit", tmp_path / "nothing")
    assert missing.code == 2
    assert "does not exist" in missing.err
    assert cno("audit", run_folder, "--threshold", 0).code == 2
    assert cno("audit", run_folder, "--resolutions", "a").code == 2
    assert cno("audit", run_folder, "--split", "tset", "--samples", 1).code == 2
    assert cno("audit", run_folder, "--samples", 1, "--resolutions", "1,24").code == 2


@pytest.mark.parametrize("change", [{"errors": 3}, {"errors": {"test": 3}}, None])
def test_a_damaged_result_is_named_with_its_remedy(cno, run_folder, words, tmp_path, change):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    path = folder / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({} if change is None else result | change))
    outcome = cno("audit", folder, *words, "--threshold", 1)
    assert outcome.code == 2
    assert f"{path} cannot be read (" in outcome.err
    assert "bring it back, or move it away" in outcome.err
    path.unlink()  # the remedy
    assert cno("audit", folder, *words, "--threshold", 1).code == 0


def test_a_result_without_the_published_error_is_damaged(cno, run_folder, words, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    path = folder / "result.json"
    result = json.loads(path.read_text())
    del result["errors"]["test"]["relative_l1_median_percent"]["normalized"]
    write_json(result, path)
    outcome = cno("audit", folder, *words, "--threshold", 1)
    assert outcome.code == 2
    assert f"{path} cannot be read (it has no errors of test)" in outcome.err


def test_one_page_of_trust(cno, run_folder, tmp_path):
    page, numbers = tmp_path / "trust.html", tmp_path / "trust.json"
    words = ("--samples", 2, "--new-samples", 16, "--device", "cpu", "--threshold", 1)
    outcome = cno("audit", run_folder, *words, "--page", page, "--json", numbers)
    assert outcome.code == 0
    for title in (
        "Errors",
        "Spectrum",
        "Bands",
        "Inputs out of distribution",
        "Spread",
        "Break-even",
    ):
        assert f"\n{title}\n" in outcome.out
        assert f"<h2>{title}</h2>" in page.read_text()
    (told,) = json.loads(numbers.read_text())["audits"]
    assert told["trust"]["calibration"]["samples"] == 128
    assert len(read_audits(numbers)) == 1


def test_bands_that_do_not_hold_fail(cno, run_folder, tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(run_folder, folder.path)
    trust = folder.trust()
    narrow = replace(trust.bands, everywhere=0.1 * trust.bands.everywhere)
    folder.write_trust(replace(trust, bands=narrow))
    words = ("--samples", 2, "--new-samples", 16, "--device", "cpu", "--threshold", 1)
    outcome = cno("audit", folder.path, *words)
    assert outcome.code == 1
    assert "run: FAILS" in outcome.out


def test_options_that_contradict_each_other(cno, run_folder, tmp_path):
    both = cno("audit", run_folder, "--aliasing-only", "--page", tmp_path / "a.html")
    assert both.code == 2
    assert "leave --aliasing-only out" in both.err
    assert cno("audit", run_folder, "--new-samples", 0).code == 2
    assert cno("audit", run_folder, "--page", tmp_path / "a.txt").code == 2
