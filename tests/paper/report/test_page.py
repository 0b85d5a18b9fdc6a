"""The page on results made up here: what it shows, what it lacks, and what is damaged."""

import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch
from PIL import Image

from torchcno.disk import write_arrays, write_json
from torchcno.evaluation.layers import LayerAliasing
from torchcno.paper import published as paper
from torchcno.paper.figures import FIGURES
from torchcno.paper.figures.depictions import DEPICTIONS
from torchcno.paper.figures.picture import Picture, compared
from torchcno.paper.figures.samples import draw_failures
from torchcno.paper.report.page import escape_tex, fill, latex, make_report, render, write_report
from torchcno.paper.results import Results
from torchcno.paper.studies import BUDGETS, efficiency, planned, scaling_series
from torchcno.paper.tables import all_tables
from torchcno.runs.audit import RunAudit, audit_report
from torchcno.runs.config import write_tree
from torchcno.runs.evidence import Examples
from torchcno.runs.folder import RunFolder
from torchcno.runs.measurements import RESOLUTIONS, SPECTRA, measure_spectra
from torchcno.runs.pictures.drawing import data_uri, few_colours, png
from torchcno.training import Hardware

PAPER = BUDGETS["paper"]


def page_of(folder: Path) -> str:
    """The page on a folder of results, without its pictures."""
    return render(make_report(folder), lambda picture: "")


def picture_of(folder: Path, name: str) -> Picture:
    (picture,) = [picture for picture in make_report(folder).pictures if picture.name == name]
    return picture


def missing(results: Results, study: str) -> list[str]:
    return next(names for name, b, names, _ in results.missing() if (name, b) == (study, PAPER))


def test_a_page_without_any_run_leads_to_every_figure_and_its_remedy(tmp_path):
    report, page = make_report(tmp_path), page_of(tmp_path)
    assert [p.number for p in report.drawn] == [f"Figure {n}" for n, *_ in DEPICTIONS.values()]
    numbers = {p.number.removeprefix("Figure ") for p in report.pictures if "Figure" in p.number}
    assert {int(number.split(",")[0]) for number in numbers} >= set(range(2, 36))  # the paper's
    targets = re.findall(r'id="([^"]+)"', page)
    assert len(targets) == len(set(targets))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(targets)
    for study in ("table1", "resolution", "spectra", "scaling", "efficiency"):
        assert f"cno study {study} --budget paper" in page
    assert len(report.numbers["missing"]["table1, paper"]) == 56


def test_all_numbers_are_in_the_file(finish, tmp_path):
    finish(planned(PAPER, "poisson", "cno"), 0.25, ood=np.nan)
    page, numbers, tables = write_report(make_report(tmp_path), tmp_path / "out" / "page.html")
    assert page.exists()
    assert tables.exists()
    assert "NaN" not in numbers.read_text()
    first = json.loads(numbers.read_text())["tables"]["table-1"][0]
    assert (first["values"]["CNO"], first["published"]["CNO"]) == (0.25, 0.21)


def test_every_cell_of_table_1_names_its_run(finish, tmp_path):
    finish(planned(PAPER, "poisson", "cno"), 0.25)
    page = html.unescape(page_of(tmp_path))
    for problem in paper.PROBLEM_TITLES:
        for model in paper.COMPARED:
            assert f'title="{planned(PAPER, problem, model).name}' in page


def test_the_same_results_make_the_same_page(tiny_run, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / planned(PAPER, "poisson", "cno").name).symlink_to(tiny_run)
    measure_spectra(tiny_run, "cpu")
    reports = [make_report(tmp_path) for _ in range(2)]
    first, second = (render(report, lambda picture: "") for report in reports)
    assert first == second
    # Spectra, the distribution of errors, samples and data; and what is there without any run.
    assert first.count("<img ") == 4 + len(DEPICTIONS)
    pictures = [report.drawn[0].draw() for report in reports]
    assert data_uri(pictures[0]) == data_uri(pictures[1])


def test_latex_has_as_many_cells_in_every_row(finish, tmp_path):
    finish(planned(PAPER, "poisson", "cno"), 0.25)
    for table in all_tables(Results(tmp_path)):
        lines = [line for line in latex([table]).splitlines() if line.endswith(r"\\")]
        assert len(lines) == 1 + len(table.rows)
        width = len(table.labels) + len(table.columns)
        assert {line.replace(r"\&", "").count("&") for line in lines} == {width - 1}
        assert latex([table]).isascii()
    assert escape_tex("N_σ ± 5 % of c_h in weight_decay") == (
        r"$N_{\sigma}$ $\pm$ 5 \% of $c_{\mathrm{h}}$ in weight\_decay"
    )


def test_blocks_of_a_document_are_filled_and_the_rest_is_left(finish, tmp_path):
    finish(planned(PAPER, "darcy", "cno"), 0.377)
    report = make_report(tmp_path)
    first, second = (
        f"<!-- results: {name} -->\nold\n<!-- end -->" for name in ("errors", "findings")
    )
    text = f"before\n{first}\nafter\n{second}\n"
    filled = fill(text, report)
    assert filled.startswith("before\n<!-- results: errors -->\n| problem |")
    assert "old" not in filled
    (line,) = [line for line in filled.splitlines() if line.startswith("| Darcy flow | in |")]
    assert line.startswith("| Darcy flow | in | 0.38 (0.38) | – (0.80) |")
    assert "1 of 112 errors" not in filled.partition("after")[0]
    assert fill(filled, report) == filled
    with pytest.raises(
        ValueError, match="no table or block is called 'tabel-1'; there are table-1"
    ):
        fill("<!-- results: tabel-1 -->\n<!-- end -->", report)


def test_what_is_not_as_planned_is_told(finish, tiny_run, tmp_path):
    short, bare, exact = (planned(PAPER, "poisson", model) for model in ("cno", "fno", "unet"))
    finish(bare, 5.0)
    (tmp_path / "runs" / short.name).symlink_to(tiny_run)
    folder = finish(exact, 0.7)
    compiled = replace(exact.config.train, fast="compiled")
    elsewhere = replace(
        exact.config, data=tmp_path, hardware=Hardware(accelerator="cpu"), train=compiled
    )
    write_tree(elsewhere.to_tree(), folder / "config.yaml")
    by_run = {
        name: words
        for words, names in make_report(tmp_path).numbers["deviations"].items()
        for name in names
    }
    assert by_run.keys() == {short.name, bare.name}
    assert by_run[bare.name] == "its configuration is not there"
    assert "train.epochs is 2, not 1000" in by_run[short.name]
    assert "model.width is 4, not 16" in by_run[short.name]


@pytest.mark.parametrize(
    ("names", "budgets"),
    [
        ((), ["paper", "best"]),
        (("poisson-cno-quick-0",), ["quick"]),
        (("poisson-cno-quick-0", "poisson-cno-paper-0"), ["paper"]),
        (("poisson-cno-best-case", "poisson-cno-paper-0"), ["paper"]),
    ],
)
def test_the_budgets_of_a_page_are_those_that_plan_its_runs(tiny_run, tmp_path, names, budgets):
    (tmp_path / "runs").mkdir()
    for name in names:
        (tmp_path / "runs" / name).symlink_to(tiny_run)
    results = Results(tmp_path)
    assert [budget.name for budget in results.budgets] == budgets
    others = [n for n in names if n.split("-")[2] not in budgets or not n.endswith("-0")]
    assert results.unplanned == others


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
    arrays = dict(np.load(folder / SPECTRA.file))
    write_arrays(arrays | {"weights": np.array("others")}, folder / SPECTRA.file)
    assert f"{name} (spectra.npz)" in missing(Results(tmp_path), "spectra")  # of other weights
    assert picture_of(tmp_path, "spectra-navier-stokes").foreign == ("UNet",)


def test_the_best_preset_stands_beside_the_published_one(finish, tmp_path):
    for budget, model in (("paper", "cno"), ("paper", "fno"), ("best", "cno"), ("best", "unet")):
        finish(planned(BUDGETS[budget], "poisson", model), 1.0)
    runs = compared(Results(tmp_path), "poisson")
    assert {title: run.name for title, run in runs.items()} == {
        "CNO": "poisson-cno-paper-0",
        "CNO, best": "poisson-cno-best-0",
        "FNO": "poisson-fno-paper-0",
        "UNet, best": "poisson-unet-best-0",
    }


def test_an_entry_makes_a_figure(tmp_path, monkeypatch):
    made = Picture("waves", "Waves", "Waves in a pond", draw=lambda: None)
    monkeypatch.setitem(FIGURES, "waves", lambda results: iter([made]))
    assert "Waves in a pond" in page_of(tmp_path)


def keep_errors(folder: Path, **splits: list[float]) -> None:
    """Write the errors of samples that a run would keep, and two samples of each split."""
    arrays = {f"{split}/normalized": np.array(values) for split, values in splits.items()}
    np.savez(folder / "errors.npz", **arrays)
    examples = {split: Examples(*torch.rand(3, 2, 1, 8, 8)) for split in splits}
    RunFolder(folder).write_examples(examples)


def test_a_figure_of_samples_compares_models_that_have_every_split(finish, tmp_path):
    cno, fno = (finish(planned(PAPER, "poisson", model), 1.0) for model in ("cno", "fno"))
    keep_errors(cno, test=[0.01, np.nan, 0.01, 0.0], ood=[np.inf, 0.02])
    keep_errors(fno, test=[0.01, 0.02])
    for name in ("figure-5", "figure-6"):
        picture = picture_of(tmp_path, name)
        assert picture.draw() is not None
        assert picture.absent == ("FNO", "UNet")
    errors = picture_of(tmp_path, "figure-5")
    assert [models["CNO"]["q50"] for models in errors.numbers.values()] == [1.0, 2.0]
    assert errors.unshown == 3  # zero, or not finite


def test_the_law_of_a_figure_is_fitted_to_its_points(finish, tmp_path):
    law = paper.PowerLaw.through(0.4, 20_000)
    series = scaling_series(PAPER)["poisson", "cno"]
    for samples in (64, 1024):
        finish(series[samples], law(samples))
    picture = picture_of(tmp_path, "scaling-poisson-paper")
    assert picture.draw() is not None
    assert picture.numbers["CNO"]["rate"] == pytest.approx(0.4)
    assert picture.numbers["CNO"]["samples_for_one_percent"] == pytest.approx(20_000)
    assert picture.absent == ("FNO", "CNO of 128, 256, 512 samples")


def test_efficiency_is_drawn_from_validation_errors(finish, tmp_path):
    *runs, diverged = efficiency(PAPER)
    for i, run in enumerate(runs):
        finish(run, test=3.0 + i)
    finish(diverged, test=np.nan)
    picture = picture_of(tmp_path, "figure-3-left-paper")
    assert picture.draw() is not None
    assert len(picture.numbers["FNO"]) == 7
    errors = [size["error"] for size in picture.numbers["CNO"]]
    assert errors == pytest.approx([3.0 + i for i in range(8)])


def test_ranks_are_drawn_of_complete_rows(finish, tmp_path):
    for i, model in enumerate(paper.COMPARED):
        finish(planned(PAPER, "wave", model), 1.0 + i, 8.0 - i)
    finish(planned(PAPER, "darcy", "cno"), 1.0)
    picture = picture_of(tmp_path, "ranks")
    assert picture.numbers["ours"]["CNO"] == [7, 1]
    assert picture.numbers["published"]["CNO"] == [1, 1]
    assert picture.draw() is not None


def test_few_colours_change_no_field():
    figure = draw_failures({"FNO": Examples(*(torch.rand(1, 1, 16, 16) for _ in range(3)))})
    content = png(figure)
    pictures = [
        Image.open(io.BytesIO(one)).convert("RGBA") for one in (content, few_colours(content))
    ]
    white = Image.new("RGBA", pictures[0].size, "white")
    whole, few = (np.asarray(Image.alpha_composite(white, one), dtype=int) for one in pictures)
    changed = np.abs(few - whole).max(-1)
    assert (changed > 0).mean() < 0.02  # the rims of letters
    assert changed.max() < 32
    assert len(pictures[1].getcolors(300)) <= 256


def test_damaged_runs_are_on_the_page_with_their_remedies(tiny_run, tmp_path):
    files = {"cno": "", "fno": "result.json", "unet": "config.yaml", "ffnn": "errors.npz",
             "resnet": "examples.npz", "deeponet": "resolution.json"}  # fmt: skip
    runs = {planned(PAPER, "poisson", model).name: file for model, file in files.items()}
    for name, file in runs.items():
        folder = tmp_path / "runs" / name
        copytree(tiny_run, folder)
        if file:
            write_json({}, folder / "resolution.json")
            path = folder / file
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    mine = tmp_path / "runs" / "mine-paper-0"
    mine.mkdir()
    (mine / "result.json").write_text("{}")
    report = make_report(tmp_path)
    assert list(report.results.finished) == [next(iter(runs))]
    damaged = {name: file for name, file in runs.items() if file}
    assert report.numbers["unreadable"] == {"mine-paper-0": "result.json", **damaged}
    page = html.unescape(render(report, lambda picture: "")).split('id="missing"')[1]
    for name in damaged:
        assert f"<code>cno study table1 --budget paper --only '{name}'</code>" in page
        assert name in missing(report.results, "table1")
    assert f"<code>cno train --config {mine}/config.yaml --out {mine}-again</code>" in page


OTHERS = {  # files beside runs, and how the command begins that makes each
    "audit-poisson.json": "cno audit",
    "search-wave-cno/result.json": "cno search",
    "validation-linear.json": "python validation/linear.py",
    "validation-modes.json": "python validation/modes.py",
    "bench-solvers-cpu.json": "python benchmarks/solvers.py",
}


@pytest.mark.parametrize(
    "content",
    ['{"audits": [', "[]", "{}", '{"audits": 3, "wave": 3, "problems": 3}',
     '{"audits": [{"name": "mine"}], "wave": {}}'],
)  # fmt: skip
def test_damaged_files_beside_runs_are_named_and_stop_no_page(tmp_path, content):
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    audit = RunAudit("heat", "periodic", (8, 8), (), (), layers)
    write_json(audit_report([audit], threshold=0.01), tmp_path / "audit-whole.json")
    for name in OTHERS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    report = make_report(tmp_path)
    remedies = {one.name: one.remedy for one in report.results.unreadable}
    assert remedies.keys() == OTHERS.keys()
    assert all(remedies[name].startswith(command) for name, command in OTHERS.items())
    drawn = {picture.name for picture in report.drawn}
    assert "audit-whole" in drawn
    assert not drawn & {"audit-poisson", "search-wave-cno", "figure-26"}


def test_searches_and_audits_are_shown(finish, tmp_path):
    search = tmp_path / "search-poisson-cno"
    search.mkdir()
    (search / "result.json").write_text(json.dumps({"problem": "poisson", "model": "mine"}))
    (search / "trials.csv").write_text(
        "number,state,validation_error,parameters,seconds_per_epoch,device,width,error\n"
        "0,finished,0.01,1000,0.5,GPU,16,\n1,diverged,,,,,32,no\n2,finished,0.02,2000,0.7,,24,\n"
    )
    run = planned(PAPER, "navier-stokes", "cno")
    finish(run, 5.0)
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    for name, error in ((run.name, 5.0), ("heat", None), (run.name, 9.0)):
        audit = RunAudit(name, "periodic", (8, 8), (), (), layers, error=error)
        write_json(audit_report([audit], 0.01), tmp_path / f"audit-{name[:4]}-{error}.json")
    pictures = {picture.name: picture for picture in make_report(tmp_path).pictures}
    trials = pictures["search-poisson-cno"].numbers["mine"]
    assert [trial["error"] for trial in trials] == [1.0, 2.0]
    assert pictures["audit-navi-5.0"].numbers.keys() == {"CNO"}
    assert pictures["audit-heat-None"].numbers.keys() == {"heat"}
    assert pictures["audit-navi-9.0"].foreign == ("CNO",)  # of other weights
    assert pictures["audit-navi-9.0"].draw is None
