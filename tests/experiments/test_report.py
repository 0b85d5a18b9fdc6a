"""The report on results made up here, whose every number is known."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcno.experiments import paper
from torchcno.experiments.audit import audit_report, audit_run, read_audits
from torchcno.experiments.evidence import Examples, read_errors, read_examples
from torchcno.experiments.figures import draw_failures, draw_spectra
from torchcno.experiments.markdown import table_1_block
from torchcno.experiments.measurements import Spectra, measure_spectra, read_spectra
from torchcno.experiments.pictures import data_uri, few_colours, png
from torchcno.experiments.report import escape_tex, latex, make_report, render, write_report
from torchcno.experiments.report_figures import Picture, compared
from torchcno.experiments.results import Results
from torchcno.experiments.run import evaluate_run
from torchcno.experiments.run_config import write_tree
from torchcno.experiments.studies import BUDGETS, PlannedRun, efficiency, planned, scaling_series
from torchcno.experiments.tables import Table, all_tables, rankings, table_1, table_4
from torchcno.experiments.trained import write_json
from torchcno.training import Hardware

PAPER = BUDGETS["paper"]


def no_picture(picture: Picture) -> str:
    """What a page without pictures embeds."""
    return ""


def finish(
    folder: Path, run: PlannedRun, test: float, ood: float = 9.0, mean: float = 50.0
) -> None:
    """Write what a finished run with these errors in percent would leave."""

    def summary(error: float) -> dict[str, dict[str, float]]:
        return {"relative_l1_median_percent": {"normalized": error, "physical": 7 * error}}

    result = {
        "parameters": 1000,
        "seconds_per_epoch": 0.5,
        "best_validation_error": test / 100,
        "inference": {"samples_per_second": 100.0},
        "device": "made up",
        "versions": {"torch": "2"},
        "errors": {"test": summary(test), "ood": summary(ood)},
        "mean_field_errors": {"test": summary(mean), "ood": summary(mean)},
    }
    path = folder / "runs" / run.name / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(result))


def row(table: Table, *labels: str) -> dict[str, str]:
    """The cells of a row, a star where they are marked as best."""
    (found,) = [one for one in table.rows if one.labels == labels]
    cells = (cell.text + "*" * cell.best for cell in found.cells)
    return dict(zip(table.columns, cells, strict=True))


def test_ours_stand_beside_the_published(tmp_path):
    for model, error in {"cno": 0.25, "fno": 5.0, "unet": 0.7}.items():
        finish(tmp_path, planned(PAPER, "poisson", model), error)
    table = table_1(Results(tmp_path), "normalized")
    ours = row(table, "Poisson equation", "In", "ours, paper")
    assert ours["CNO"] == "0.25*"
    assert (ours["FNO"], ours["FFNN"], ours["mean field"]) == ("5.00", "–", "50.00")
    published = row(table, "Poisson equation", "In", "published")
    assert published["CNO"] == "0.21*"
    assert published["mean field"] == ""
    physical = table_1(Results(tmp_path), "physical")
    assert row(physical, "Poisson equation", "In", "ours, paper")["CNO"] == "1.75*"
    assert not any(one.published for one in physical.rows)


def test_a_linear_map_stands_beside_the_networks(tmp_path):
    finish(tmp_path, planned(PAPER, "wave", "cno"), 0.6)
    errors = {"test": {"relative_l1_median_percent": {"normalized": 0.49, "physical": 3.1}}}
    linear = {"wave": {"errors": errors}}
    (tmp_path / "validation-linear.json").write_text(json.dumps(linear))
    results = Results(tmp_path)
    for space, error in (("normalized", "0.49"), ("physical", "3.10")):
        table = table_1(results, space)
        assert row(table, "Wave equation", "In", "ours, paper")["linear"] == error
        assert row(table, "Wave equation", "Out", "ours, paper")["linear"] == "–"
        assert row(table, "Darcy flow", "In", "ours, paper")["linear"] == "–"


def test_seeds_are_averaged_and_counted(tmp_path):
    for seed, error in enumerate((0.2, 0.3, 0.4)):
        finish(tmp_path, planned(PAPER, "darcy", "cno", seed=seed), error)
    table = table_4(Results(tmp_path))
    assert row(table, "Darcy flow", "ours, paper")["CNO"] == "0.30 ± 0.10 (3)"
    assert row(table, "Darcy flow", "ours, paper")["FNO"] == "–"
    assert row(table, "Darcy flow", "published")["CNO"] == "0.42 ± 0.02*"


def test_a_ranking_is_told_only_where_all_models_are_measured(tmp_path):
    for i, model in enumerate(paper.COMPARED):
        finish(tmp_path, planned(PAPER, "poisson", model), test=10.0 - i, ood=1.0 + i)
    finish(tmp_path, planned(PAPER, "wave", "cno"), 0.6)
    found = rankings(Results(tmp_path))
    assert [(one["problem"], one["split"], one["ours"], one["met"]) for one in found] == [
        ("poisson", "test", "cno", True),
        ("poisson", "ood", "ffnn", False),
    ]
    page = render(make_report(tmp_path), no_picture)
    assert "the best model is the paper's in\n1" in page
    assert (
        "Poisson equation, out of distribution (paper): the paper has\nCNO, we have\nFFNN" in page
    )


def test_every_table_of_the_paper_is_there_without_any_result(tmp_path):
    report = make_report(tmp_path)
    assert [table.number for table in report.tables] == [
        "Table 1", "Table 1, physical", "Table 2", "Table 3", "Table 4", "Table 5",
        "Tables 6 to 12", *(f"Table {n}" for n in range(6, 14)), "SM, vorticity",
    ]  # fmt: skip
    # The figures of filters, cuts and the mesh need no results.
    assert [picture.number for picture in report.drawn] == ["Figure 4", "Figure 13", "Figure 22"]
    page = render(report, embed=no_picture)
    for study in ("table1", "resolution", "spectra", "scaling", "efficiency"):
        assert f"cno study {study} --budget paper" in page
    assert len(report.numbers["missing"]["table1, paper"]) == 56


def test_the_fitted_law_is_the_one_in_the_numbers(tmp_path):
    law = paper.PowerLaw(0.4, 20_000)
    for samples, run in scaling_series(PAPER)["navier-stokes", "cno"].items():
        finish(tmp_path, run, law(samples))
    report = make_report(tmp_path)
    (picture,) = [p for p in report.pictures if p.name == "scaling-navier-stokes-paper"]
    assert picture.number == "Figure 3, right"
    assert picture.draw is not None
    assert picture.numbers["CNO"]["rate"] == pytest.approx(0.4)
    assert picture.numbers["CNO"]["samples_for_one_percent"] == pytest.approx(20_000)


def test_efficiency_is_drawn_from_validation_errors(tmp_path):
    for i, run in enumerate(efficiency(PAPER)):
        finish(tmp_path, run, test=3.0 + i)
    (picture,) = [p for p in make_report(tmp_path).pictures if p.name == "figure-3-left-paper"]
    assert picture.draw is not None
    errors = [size["error"] for size in picture.numbers["CNO"]]
    assert errors == pytest.approx([3.0 + i for i in range(8)])


def test_all_numbers_are_in_the_file(tmp_path):
    finish(tmp_path, planned(PAPER, "poisson", "cno"), 0.25)
    page, numbers, folder = write_report(make_report(tmp_path), tmp_path / "out" / "page.html")
    assert page.exists()
    tables = json.loads(numbers.read_text())["tables"]
    assert tables.keys() == {path.stem for path in folder.iterdir()}
    values = {one["by"]: one["values"]["CNO"] for one in tables["table-1"][:2]}
    assert values == {"published": 0.21, "ours, paper": 0.25}


def test_the_same_results_make_the_same_page(tiny_run, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / planned(PAPER, "poisson", "cno").name).symlink_to(tiny_run)
    measure_spectra(tiny_run)
    reports = [make_report(tmp_path) for _ in range(2)]
    first, second = (render(report, no_picture) for report in reports)
    assert first == second
    # Spectra, the distribution of errors, samples and data; filters, cuts and the mesh.
    assert first.count("<img ") == 7
    pictures = [report.drawn[0].draw() for report in reports]
    assert data_uri(pictures[0]) == data_uri(pictures[1])


def test_spectra_hold_the_whole_energy_of_the_fields(tiny_run):
    measure_spectra(tiny_run)
    spectra = read_spectra(tiny_run)
    (evaluation,) = evaluate_run(tiny_run, ["test"], device="cpu")
    truth = evaluation.fields.outputs.double()
    # Sines of an inclusive grid: the mean over its n − 1 intervals, where the ends are zero.
    intervals = (truth.shape[-1] - 1) ** 2
    energy = float(truth.square().sum((1, 2, 3)).mean()) / intervals
    assert spectra.energy["truth"].sum() == pytest.approx(energy, rel=1e-5)
    assert (spectra.band_errors > 0).all()


def test_latex_has_as_many_cells_in_every_row(tmp_path):
    finish(tmp_path, planned(PAPER, "poisson", "cno"), 0.25)
    for table in all_tables(Results(tmp_path)):
        lines = [line for line in latex(table).splitlines() if line.endswith(r"\\")]
        assert len(lines) == 1 + len(table.rows)
        width = len(table.labels) + len(table.columns)
        assert {line.replace(r"\&", "").count("&") for line in lines} == {width - 1}
        assert latex(table).isascii()
    assert escape_tex("N_σ ± 5 %") == r"N\_$\sigma$ $\pm$ 5 \%"


def test_a_run_keeps_the_error_of_every_sample(tiny_run):
    (evaluation,) = evaluate_run(tiny_run, ["ood"], device="cpu")
    for space, errors in evaluation.errors["relative_l1"].items():
        np.testing.assert_allclose(read_errors(tiny_run, "ood", space), errors.numpy(), rtol=1e-6)


def test_a_run_keeps_examples_to_half_precision(tiny_run):
    (evaluation,) = evaluate_run(tiny_run, ["test"], device="cpu")
    examples = read_examples(tiny_run, "test")
    truth, prediction = evaluation.fields.outputs[:2], evaluation.prediction[:2]
    half = 2.0**-11
    assert (examples.output - truth).abs().max() <= half * truth.abs().max()
    # The error is kept by itself, so that it is exact to its own size and not to the field's.
    error, kept = prediction - truth, examples.prediction - examples.output
    assert (kept - error).abs().max() <= 2 * half * error.abs().max()
    assert read_examples(tiny_run, "val") is None


def test_a_reader_finds_every_figure_of_the_paper_under_its_number(tmp_path):
    numbers = {p.number.removeprefix("Figure ") for p in make_report(tmp_path).pictures}
    found = {int(number.split(",")[0]) for number in numbers}
    assert found == set(range(2, 36))  # figure 1 is a drawing of the architecture
    assert {"2, left", "2, right", "3, left and centre", "3, right"} <= numbers


def test_a_band_without_truth_is_not_drawn():
    energy = {"truth": np.array([0.0, 1.0, 0.1, 0.0]), "prediction": np.array([0.0, 0.9, 0.1, 0.1])}
    amplitude = dict.fromkeys(energy, np.ones((3, 3)))
    edges, errors = np.array([(1, 2), (2, 4), (4, 8)]), np.array([1.5, 0.2, 3e5])
    drawn = draw_spectra({"FNO": Spectra(energy, amplitude, np.arange(1.0, 4.0), edges, errors)})
    bands = next(axes for axes in drawn.axes if "band" in axes.get_ylabel())
    assert bands.lines[0].get_ydata().tolist() == [1.5, 0.2]


def test_what_is_not_as_planned_is_told(tiny_run, tmp_path):
    short, bare = (planned(PAPER, "poisson", model) for model in ("cno", "fno"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / short.name).symlink_to(tiny_run)
    finish(tmp_path, bare, 5.0)
    exact = planned(PAPER, "poisson", "unet")
    finish(tmp_path, exact, 0.7)
    compiled = replace(exact.config.train, fast="compiled")
    elsewhere = replace(
        exact.config, data=tmp_path, hardware=Hardware(accelerator="cpu"), train=compiled
    )
    write_tree(elsewhere.to_tree(), tmp_path / "runs" / exact.name / "config.yaml")
    by_run = {
        name: words
        for words, names in make_report(tmp_path).numbers["deviations"].items()
        for name in names
    }
    assert by_run.keys() == {short.name, bare.name}
    assert by_run[bare.name] == "its configuration is not there"
    assert "train.epochs is 2, not 1000" in by_run[short.name]
    assert "model.width is 4, not 16" in by_run[short.name]
    note = f"Not as planned: its configuration is not there ({bare.name})."
    assert note in table_1_block(Results(tmp_path))


def test_the_best_preset_stands_beside_the_published_one(tmp_path):
    for budget, model in (("paper", "cno"), ("paper", "fno"), ("best", "cno"), ("best", "unet")):
        finish(tmp_path, planned(BUDGETS[budget], "poisson", model), 1.0)
    runs = compared(Results(tmp_path), "poisson")
    assert {title: run.name for title, run in runs.items()} == {
        "CNO": "poisson-cno-paper-0",
        "CNO, best": "poisson-cno-best-0",
        "FNO": "poisson-fno-paper-0",
        "UNet, best": "poisson-unet-best-0",
    }


def test_resolutions_may_lie_in_one_file_of_a_problem(tmp_path):
    run = planned(PAPER, "navier-stokes", "cno")
    finish(tmp_path, run, 2.8)
    errors = {str(n): {"relative_l1_median_percent": {"normalized": n / 10}} for n in (32, 64, 128)}
    one = {"training_resolution": 64, "errors": {"test": errors}, "refused": {"33": "odd"}}
    (tmp_path / "resolution-navier-stokes.json").write_text(json.dumps({run.name: one}))
    (picture,) = [p for p in make_report(tmp_path).drawn if p.name == "figure-2-right"]
    assert picture.numbers == {"CNO": {"32": 3.2, "64": 6.4, "128": 12.8}}


def test_searches_and_audits_are_shown(tiny_run, tmp_path):
    search = tmp_path / "search-poisson-cno"
    search.mkdir()
    (search / "result.json").write_text(json.dumps({"problem": "poisson", "model": "cno"}))
    (search / "trials.csv").write_text(
        "number,state,validation_error,parameters,seconds_per_epoch,width,error\n"
        "0,finished,0.01,1000,0.5,16,\n1,diverged,,,,32,no\n2,finished,0.02,2000,0.7,24,\n"
    )
    audit = audit_run(tiny_run, samples=1, resolutions=(12, 24), device="cpu")
    write_json(audit_report([audit], threshold=0.01), tmp_path / "audit-poisson.json")
    assert read_audits(tmp_path / "audit-poisson.json") == [audit]
    drawn = {picture.name: picture for picture in make_report(tmp_path).drawn}
    trials = drawn["search-poisson-cno"].numbers["CNO"]
    assert [trial["error"] for trial in trials] == [1.0, 2.0]
    assert drawn["audit-poisson"].numbers["tiny"]["worst"] == audit.worst
    assert drawn["audit-poisson"].draw() is not None


def test_hyper_parameters_are_those_of_the_models(tmp_path):
    tables = {table.number: table for table in all_tables(Results(tmp_path))}
    assert row(tables["Table 11"], "Navier-Stokes equations") == {
        "pad": "0", "modes": "16", "width": "128", "layers": "5",
        "rate": "0.001", "γ": "0.98", "decay": "1e-06", "batch": "32",
    }  # fmt: skip
    assert row(tables["Table 6"], "Wave equation")["layers"] == "4"


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
