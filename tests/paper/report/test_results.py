"""What a folder of results holds, and what it lacks."""

import re
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from torchcno.disk import write_json
from torchcno.evaluation.layers import LayerAliasing
from torchcno.paper.report.page import make_report, render
from torchcno.paper.report.results import Results
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.audit import RunAudit, audit_report
from torchcno.runs.folder import RunFolder
from torchcno.runs.measurements import (
    RESOLUTIONS,
    SPECTRA,
    measure_spectra,
    read_spectra,
)

PAPER = BUDGETS["paper"]


def missing(results: Results, study: str) -> list[str]:
    return next(names for name, b, names, _ in results.missing() if (name, b) == (study, PAPER))


def test_a_run_that_is_not_measured_is_missing(tiny_run, tmp_path):
    name = planned(PAPER, "navier-stokes", "unet").name
    folder = tmp_path / "runs" / name
    copytree(tiny_run, folder)
    for measurement in (RESOLUTIONS, SPECTRA):
        (folder / measurement.file).unlink(missing_ok=True)
    assert f"{name} (spectra.npz)" in missing(Results(tmp_path), "spectra")
    assert f"{name} (resolution.json)" in missing(Results(tmp_path), "resolution")
    assert name not in missing(Results(tmp_path), "table1")
    SPECTRA.make(folder, "cpu")
    assert len(missing(Results(tmp_path), "spectra")) == 5  # the other runs of the study


def test_a_measurement_is_made_once(tiny_run, tmp_path):
    folder = tmp_path / "run"
    copytree(tiny_run, folder)
    SPECTRA.make(folder, "cpu")
    before = (folder / "spectra.npz").stat().st_ino  # a file that is written again is another
    SPECTRA.make(folder, "cpu")
    assert (folder / "spectra.npz").stat().st_ino == before


def test_what_other_weights_measured_is_missing_until_it_is_made_again(tiny_run, tmp_path):
    name = planned(PAPER, "navier-stokes", "fno").name
    folder = tmp_path / "runs" / name
    copytree(tiny_run, folder)
    measure_spectra(folder, "cpu")
    arrays = dict(np.load(folder / SPECTRA.file))
    np.savez(folder / SPECTRA.file, **arrays | {"weights": np.array("others")})
    assert SPECTRA.is_foreign(folder)
    assert f"{name} (spectra.npz)" in missing(Results(tmp_path), "spectra")
    SPECTRA.make(folder, "cpu")
    assert read_spectra(folder).error == pytest.approx(float(arrays["error"]))
    assert name not in " ".join(missing(Results(tmp_path), "spectra"))


@pytest.mark.parametrize(
    ("names", "budgets"),
    [
        ((), ["paper", "best"]),
        (("poisson-cno-quick-0",), ["quick"]),
        (("poisson-cno-quick-0", "poisson-cno-paper-0"), ["paper"]),
        (("poisson-cno-quick-look", "poisson-cno-paper-0"), ["paper"]),
        (("poisson-cno-best-case", "poisson-cno-paper-0"), ["paper"]),
    ],
)
def test_the_budgets_of_a_page_are_those_that_plan_its_runs(tiny_run, tmp_path, names, budgets):
    (tmp_path / "runs").mkdir()
    for name in names:
        (tmp_path / "runs" / name).symlink_to(tiny_run)
    results = Results(tmp_path)
    assert [budget.name for budget in results.budgets] == budgets
    page = render(make_report(tmp_path), embed=lambda picture: "")
    others = [n for n in names if n.split("-")[2] not in budgets or not n.endswith("-0")]
    assert results.unplanned == others
    said = f"Runs of no study of this page, not shown: {', '.join(others)}."
    assert (said in page) == bool(others)


@pytest.fixture
def damaged(tiny_run, tmp_path) -> dict[str, str]:
    """Runs in `tmp_path`, the first whole and the others each with a damaged file, by their names.

    One has a name that no study has.
    """
    files = {"cno": "", "fno": "result.json", "unet": "config.yaml", "ffnn": "errors.npz",
             "resnet": "examples.npz", "deeponet": "resolution.json"}  # fmt: skip
    runs = {planned(PAPER, "poisson", model).name: file for model, file in files.items()}
    for name, file in {**runs, "mine-paper-0": "result.json"}.items():
        folder = tmp_path / "runs" / name
        copytree(tiny_run, folder)
        if file:
            write_json({}, folder / "resolution.json")
            path = folder / file
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (tmp_path / "runs" / "mine-paper-0" / "result.json").write_text("{}")
    return runs


def test_a_damaged_run_is_on_the_page_with_its_remedy(damaged, tmp_path):
    report = make_report(tmp_path)
    (whole, *_) = damaged
    assert list(report.results.finished) == [whole]
    text = render(report, embed=lambda picture: "").split('id="missing"')[1]
    for name, file in damaged.items():
        if file:
            command = f"cno study table1 --budget paper --only &#39;{name}&#39;"
            assert f"<li>{name}, {file}: " in text
            assert f"<code>{command}</code>" in text
            assert name in missing(report.results, "table1")
    assert "<li>mine-paper-0, result.json: it lacks problem, model, " in text
    mine = tmp_path / "runs" / "mine-paper-0"
    assert f"<code>cno train --config {mine}/config.yaml --out {mine}-again</code>" in text
    assert report.numbers["unreadable"] == {
        "mine-paper-0": "result.json", **{name: file for name, file in damaged.items() if file}
    }  # fmt: skip


def test_damage_names_the_file_and_says_why(tiny_run, tmp_path):
    folder = tmp_path / "run"
    copytree(tiny_run, folder)
    assert RunFolder(folder).damage() is None
    assert RunFolder(tmp_path / "nowhere").damage() is None
    (folder / "config.yaml").write_text("train: 3\n")
    assert str(RunFolder(folder).damage()).startswith(f"{folder / 'config.yaml'} cannot be read (")
    bytes_ = bytearray((tiny_run / "errors.npz").read_bytes())
    bytes_[len(bytes_) // 3] ^= 1  # a bit, somewhere in an array
    (folder / "config.yaml").unlink()
    (folder / "errors.npz").write_bytes(bytes_)
    damage = RunFolder(folder).damage()
    assert damage is not None
    assert damage.file == Path(folder, "errors.npz")


SEARCH = "cno search PROBLEM MODEL [OPTION ...] --out {0}/search-wave-cno"
SOLVERS = "python benchmarks/solvers.py [--device cuda] --out {0}/bench-solvers-cpu.json"
REMEDIES = {  # of the files beside runs, in a folder of results
    "audit-poisson.json": "cno audit RUN [RUN ...] --json {0}/audit-poisson.json",
    "search-wave-cno/result.json": SEARCH,
    "search-wave-cno/trials.csv": SEARCH,
    "validation-linear.json": "python validation/linear.py --out {0}",
    "validation-disks.json": "python validation/disks.py --out {0}",
    "validation-output-space.json": "python validation/output_space.py --out {0}",
    "validation-darcy.json": "python validation/darcy_readings.py --out {0}",
    "validation-airfoil-masks.json": "python validation/airfoil_masks.py --out {0}",
    "validation-modes.json": "python validation/modes.py --out {0}",
    "bench-solvers-cpu.json": SOLVERS,
}


@pytest.mark.parametrize(
    "content",
    [
        '{"audits": [',
        "[]",
        "{}",
        '{"audits": 3, "test": 3, "wave": 3, "allen-cahn": 3, "readings": 3, "problems": 3}',
        '{"audits": [{"name": "mine"}], "test": {}, "wave": {}, "allen-cahn": {}, "readings": {}}',
    ],
)
def test_damaged_files_beside_runs_are_named_and_stop_no_page(tiny_run, tmp_path, content):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / planned(PAPER, "poisson", "cno").name).symlink_to(tiny_run)
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    audit = RunAudit("heat", "periodic", (8, 8), (), (), layers)
    write_json(audit_report([audit], threshold=0.01), tmp_path / "audit-whole.json")
    for name in REMEDIES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    report = make_report(tmp_path)
    text = render(report, embed=lambda picture: "").split('id="missing"')[1]
    named = dict(re.findall(r"<li>(\S+): .+\. <code>(.+)</code></li>", text))
    remedies = {name: remedy.format(tmp_path) for name, remedy in REMEDIES.items()}
    assert {name: named.get(name) for name in remedies} == remedies
    assert report.numbers["unreadable"] == {
        name.partition(".")[0]: Path(name).name for name in REMEDIES
    }
    drawn = {picture.name for picture in report.drawn}
    assert "audit-whole" in drawn
    assert not drawn & {"audit-poisson", "search-wave-cno", "figure-26"}
    assert not report.complete


def test_a_validation_that_ended_halfway_is_named_with_what_it_lacks(tmp_path):
    half = {"least_mean_error_percent": 0.1, "likely_mean_error_percent": 0.2}
    write_json({"test": half}, tmp_path / "validation-airfoil-masks.json")
    (found,) = make_report(tmp_path).unreadable
    assert found.damage.why == "it lacks 'ood'"
