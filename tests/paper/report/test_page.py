"""The report on results made up here, whose every number is known."""

import html
import io
import json
import re
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from torchcno.disk import write_json
from torchcno.evaluation.layers import LayerAliasing
from torchcno.paper import published as paper
from torchcno.paper.figures.curves import draw_failures
from torchcno.paper.report.cells import SPLIT_TITLES, Table
from torchcno.paper.report.figures import Picture, compared
from torchcno.paper.report.markdown import table_1_block
from torchcno.paper.report.page import escape_tex, latex, make_report, render, write_report
from torchcno.paper.report.protocol import (
    departures,
    hyper_parameters,
    our_value,
    tables_6_to_12,
)
from torchcno.paper.report.rankings import Ranking, findings, ranking_table, rankings, ranks
from torchcno.paper.report.results import Results
from torchcno.paper.report.statements import (
    ablation_times,
    inference_times,
    modes,
    resolution_changes,
    scaling_laws,
    vorticity,
)
from torchcno.paper.report.tables import all_tables, table_1, table_3, table_4, table_13
from torchcno.paper.studies import BUDGETS, PlannedRun, efficiency, planned, scaling_series
from torchcno.runs.audit import RunAudit, audit_report, audit_run, read_audits
from torchcno.runs.config import write_tree
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.evidence import Examples, read_errors, read_examples, save_examples
from torchcno.runs.measurements import (
    Spectra,
    measure_spectra,
    read_spectra,
)
from torchcno.runs.pictures.drawing import data_uri, few_colours, png
from torchcno.runs.pictures.efficiency import Size, draw_efficiency
from torchcno.runs.pictures.spectra import draw_spectra
from torchcno.runs.search import report as search_report
from torchcno.runs.search.report import TrialRow
from torchcno.runs.search.space import Space
from torchcno.runs.search.study import Search
from torchcno.training import Hardware

PAPER = BUDGETS["paper"]


def no_picture(picture: Picture) -> str:
    """What a page without pictures embeds."""
    return ""


def finish(
    folder: Path,
    run: PlannedRun,
    test: float,
    ood: float = 9.0,
    mean: float = 50.0,
    **others: Any,
) -> None:
    """Write what a finished run with these errors in percent would leave."""

    def summary(error: float) -> dict[str, dict[str, float]]:
        return {"relative_l1_median_percent": {"normalized": error, "physical": 7 * error}}

    result = {
        "problem": run.config.problem.name,
        "model": run.config.model,
        "parameters": 1000,
        "seconds_per_epoch": 0.5,
        "best_validation_error": test / 100,
        "inference": {"samples_per_second": 100.0, "batch_size": 32},
        "device": "made up",
        "versions": {"torch": "2"},
        "errors": {"test": summary(test), "ood": summary(ood)},
        "mean_field_errors": {"test": summary(mean), "ood": summary(mean)},
        **others,
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
    for model in paper.COMPARED:
        finish(tmp_path, planned(PAPER, "poisson", model), 0.25 if model == "cno" else 5.0)
    for model, error in {"cno": 0.6, "ffnn": 4.0}.items():
        finish(tmp_path, planned(PAPER, "wave", model), error)
    table = table_1(Results(tmp_path), "normalized")
    ours = row(table, "Poisson equation", "In", "ours, paper")
    assert (ours["CNO"], ours["FNO"], ours["no network"]) == ("0.25*", "5.00", "")
    few = row(table, "Wave equation", "In", "ours, paper")  # better than one other is not best
    assert (few["CNO"], few["FFNN"], few["FNO"]) == ("0.60", "4.00", "–")
    published = row(table, "Poisson equation", "In", "published")
    assert published["CNO"] == "0.21*"
    assert published["no network"] == ""
    assert row(table, "Poisson equation", "In", "mean field") == {
        **dict.fromkeys(table.columns, ""),
        "no network": "50.00",
    }
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
        assert row(table, "Wave equation", "In", "linear map")["no network"] == error
        assert row(table, "Wave equation", "Out", "linear map")["no network"] == "–"
        assert row(table, "Darcy flow", "In", "linear map")["no network"] == "–"


def test_what_stairs_are_worth_is_said_once_it_is_measured(tmp_path):
    assert "stairs" not in table_1(Results(tmp_path), "normalized").note
    errors = {"test": (0.5, 1.25), "ood": (0.75, 1.5)}
    rows = {s: {"percent": {"sampled": {"disk": a, "moved": b}}} for s, (a, b) in errors.items()}
    (tmp_path / "validation-disks.json").write_text(json.dumps(rows))
    note = table_1(Results(tmp_path), "normalized").note
    assert "the true disk has errors of 0.50 and 0.75 (in and out)" in note
    assert "translated exactly 1.25 and 1.50;" in note


def test_what_masks_leave_open_is_said_once_it_is_measured(tmp_path):
    assert "cells" not in table_1(Results(tmp_path), "normalized").note
    errors = {"test": (0.11, 0.16), "ood": (0.13, 0.18)}
    rows = {
        split: {"least_mean_error_percent": least, "likely_mean_error_percent": likely}
        for split, (least, likely) in errors.items()
    }
    (tmp_path / "validation-airfoil-masks.json").write_text(json.dumps(rows))
    note = table_1(Results(tmp_path), "normalized").note
    assert "below 0.11 and 0.13 (in and out), and the best one about 0.16 and 0.18" in note


def test_a_mean_far_above_its_median_is_said(tmp_path):
    finish(tmp_path, planned(PAPER, "wave", "cno"), 0.6, ood=2.0)
    path = tmp_path / "runs" / planned(PAPER, "wave", "cno").name / "result.json"
    result = json.loads(path.read_text())
    for split, mean in {"test": 1.7, "ood": 6.1}.items():  # not 3 times, and more
        result["errors"][split]["relative_l1_mean_percent"] = {"normalized": mean}
    path.write_text(json.dumps(result))
    note = table_1(Results(tmp_path), "normalized").note
    assert (
        "over 3 times as large: CNO (paper) on Wave equation, out: median 2.00, mean 6.10." in note
    )


def test_where_the_data_are_not_the_published_ones_is_said(tmp_path):
    plain_note = table_1(Results(tmp_path), "normalized").note
    assert "not ours" not in plain_note
    assert "harder" not in plain_note
    don = {
        "dimensions": 50,
        "test": {"floor_percent": 19.5, "published_percent": 13.6},
        "ood": {"floor_percent": 28.3, "published_percent": 19.9},
    }
    write_json({"allen-cahn": {"deeponet": don}}, tmp_path / "validation-output-space.json")
    regression = {"regression": {"test": 5.2, "ood": 4.6}}
    darcy = {
        "published": {"ffnn": {"test": 2.14, "ood": 2.23}},
        "readings": {"ours": {"[0, 1]": regression}},
    }
    write_json(darcy, tmp_path / "validation-darcy.json")
    note = table_1(Results(tmp_path), "normalized").note
    assert "below 19.50 and 28.30 (in and out) on ours, and 13.60 and 19.90 are published" in note
    assert "regression has 5.20 and 4.60 on it, where FFNN is published with 2.14 and 2.23" in note
    don["ood"]["floor_percent"] = regression["regression"]["test"] = 0.5
    write_json({"allen-cahn": {"deeponet": don}}, tmp_path / "validation-output-space.json")
    write_json(darcy, tmp_path / "validation-darcy.json")
    assert table_1(Results(tmp_path), "normalized").note == plain_note


@pytest.mark.parametrize(
    ("of_cno", "ablated", "marked"),
    [
        ((1.0, 1.5), (1.4, 2.0), ""),  # within the CNO's scatter
        ((1.0, 1.5), (1.6, 2.0), "CNO"),
        ((1.0, 1.5), (0.9, 2.0), "CNO w/o filters"),
    ],
)
def test_an_ablation_is_best_or_worse_only_beyond_chance(tmp_path, of_cno, ablated, marked):
    for seed, error in enumerate(of_cno):
        finish(tmp_path, planned(PAPER, "wave", "cno", seed=seed), error)
    for model, error in zip(paper.ABLATED[1:], ablated, strict=True):
        finish(tmp_path, planned(PAPER, "wave", model), error)
    cells = row(table_13(Results(tmp_path)), "Wave equation", "In", "ours, paper")
    assert "".join(title for title, text in cells.items() if text.endswith("*")) == marked


def test_seeds_are_averaged_and_counted(tmp_path):
    for seed, error in enumerate((0.2, 0.3, 0.4)):
        finish(tmp_path, planned(PAPER, "darcy", "cno", seed=seed), error)
    table = table_4(Results(tmp_path))
    assert row(table, "Darcy flow", "ours, paper")["CNO"] == "0.30 ± 0.10 (3 of 10)"
    assert row(table, "Darcy flow", "ours, paper")["FNO"] == "–"
    assert row(table, "Darcy flow", "published")["CNO"] == "0.42 ± 0.02*"


def test_the_best_is_marked_only_among_the_same_seeds(tmp_path):
    seeds = {
        "darcy": {"cno": (0, 1), "fno": (0, 1), "unet": (0, 1)},
        "poisson": {"cno": (0, 1, 2), "fno": (0, 1, 2), "unet": (1,)},
        "wave": dict.fromkeys(paper.SEEDED, (0, 1, 2)),
    }
    for problem, by_model in seeds.items():
        for model in paper.SEEDED:
            for seed in by_model[model]:
                error = 1.0 + len(model) + seed
                finish(tmp_path, planned(PAPER, problem, model, seed=seed), error)
    table = table_4(Results(tmp_path))
    # Two say nothing of how far others scatter.
    assert row(table, "Darcy flow", "ours, paper") == {
        "CNO": "4.50 (2 of 10)", "FNO": "4.50 (2 of 10)", "UNet": "5.50 (2 of 10)",
    }  # fmt: skip
    assert "*" not in "".join(row(table, "Poisson equation", "ours, paper").values())
    assert row(table, "Wave equation", "ours, paper") == {
        "CNO": "5.00 ± 1.00 (3 of 10)*", "FNO": "5.00 ± 1.00 (3 of 10)*",
        "UNet": "6.00 ± 1.00 (3 of 10)",
    }  # fmt: skip


def test_how_far_initialisations_scatter_is_told(tmp_path):
    errors = {"cno": (1.5, 0.25, 0.5), "fno": (0.5, 0.5, 0.75), "unet": (0.5, 1.5)}  # 1.5 times: no
    for model, by_seed in errors.items():
        for seed, error in enumerate(by_seed):
            finish(tmp_path, planned(PAPER, "darcy", model, seed=seed), error, ood=200 * error)
    finish(tmp_path, planned(PAPER, "wave", "cno"), 0.6)
    report = make_report(tmp_path)
    assert (
        "4 of these errors were measured from 3 initialisations or more: the largest is over 2 "
        "times the least for CNO on Darcy flow, in (0.25–1.50); CNO on Darcy flow, out "
        "(50.00–300.0)."
    ) in report.findings
    table = table_13(report.results)
    rows_of_seeds = [one.labels for one in table.rows if "seeds" in one.labels[-1]]
    of_seeds = [("Darcy flow", split, "ours, paper, seeds") for split in SPLIT_TITLES.values()]
    assert rows_of_seeds == of_seeds
    first = row(table_1(report.results, "normalized"), *of_seeds[0])
    assert {title: text for title, text in first.items() if text} == {
        "UNet": "0.50–1.50", "FNO": "0.50–0.75", "CNO": "0.25–1.50",
    }  # fmt: skip
    assert row(table, *of_seeds[1]) == {
        "CNO": "50.00–300.0", "CNO w/o filters": "", "CNO w/o ResNets": "",
    }  # fmt: skip


def test_a_trial_has_its_own_number_of_seeds(tmp_path):
    quick = BUDGETS["quick"]
    for seed in range(quick.seeds):
        finish(tmp_path, planned(quick, "poisson", "cno", seed=seed), 1.0 + seed)
    finish(tmp_path, planned(quick, "poisson", "cno", seed=quick.seeds), 99.0)  # in no plan
    table = table_4(Results(tmp_path))
    assert row(table, "Poisson equation", "ours, quick")["CNO"] == "1.50"


def test_a_ranking_is_told_only_where_all_models_are_measured(tmp_path):
    for i, model in enumerate(paper.COMPARED):
        finish(tmp_path, planned(PAPER, "poisson", model), test=10.0 - i, ood=1.0 + i)
    finish(tmp_path, planned(PAPER, "wave", "cno"), 0.6)
    cases = [(problem, split) for problem in ("poisson", "wave") for split in SPLIT_TITLES]
    results = Results(tmp_path)
    found = {(one.problem, one.split): one for one in rankings(results, cases)}
    assert {case: one.same_winner for case, one in found.items()} == {
        ("poisson", "test"): True,
        ("poisson", "ood"): False,
    }
    table = ranking_table(results, cases)
    titles = [paper.MODEL_TITLES[model] for model in paper.COMPARED]
    ours = row(table, "Poisson equation", "In", "ours, paper")
    assert [ours[title] for title in titles] == ["7", "6", "5", "4", "3", "2", "1*"]
    published = row(table, "Poisson equation", "In", "published")
    assert [published[title] for title in titles] == ["6", "4", "3", "2", "7", "5", "1*"]
    assert ours["τ"] == "0.33"  # 14 of 21 pairs of models are in the same order, 7 are not
    assert set(row(table, "Wave equation", "In", "ours, paper").values()) == {"–"}
    assert "the CNO is first in 1 by our errors and in 2 by the published ones" in table.note
    assert "one initialisation each." in table.note  # and no others that would scatter


def test_a_summary_of_ranks_is_of_the_first_budget(tmp_path):
    for budget in ("paper", "best"):
        for i, model in enumerate(paper.COMPARED):
            finish(tmp_path, planned(BUDGETS[budget], "poisson", model), test=10.0 - i)
    finish(tmp_path, planned(PAPER, "poisson", "cno", seed=1), 2.0)
    note = ranking_table(Results(tmp_path), [("poisson", "test")]).note
    assert note.startswith("In 1 rows all models are measured (paper), with one initialisation ")
    assert "how far others scatter Table 1 says" in note


def test_the_page_begins_with_what_its_first_table_comes_to(tmp_path):
    for i, model in enumerate(paper.COMPARED):  # the CNO is the last of them
        finish(tmp_path, planned(PAPER, "poisson", model), test=10.0 - i, ood=1.0 + i)
    finish(tmp_path, planned(BUDGETS["best"], "poisson", "cno"), test=3.0, ood=0.5)
    report = make_report(tmp_path)
    assert report.findings == [
        "14 of the 112 errors of Table 1 are measured (paper).",
        "In 2 of its 16 rows all models are measured: the CNO is first in 1 of them, by the "
        "published errors in 2.",
        "Trained by best, it has a smaller error than every model of paper in 2 of 2 rows.",
    ]
    assert report.unfilled[0] == "Table 1"
    assert "Figure 25" in report.unfilled
    assert "Table 5" not in report.unfilled  # of the paper alone
    text = render(report, no_picture)
    assert text.index(report.findings[-1]) < text.index('id="table-1"')
    assert f"Not measured, or less than half: {'; '.join(report.unfilled)}." in text
    assert findings(Results(tmp_path), [("poisson", "test"), ("poisson", "ood")])[:2] == [
        "All 14 errors of Table 1 are measured (paper).",
        "In 2 rows all models are measured: the CNO is first in 1 of them, by the published errors "
        "in 2.",
    ]


def test_equal_orders_have_the_correlation_1_and_opposite_ones_minus_1():
    published = paper.TABLE_1["wave", "test"]
    same = Ranking("wave", "test", PAPER, {m: 2 * error for m, error in published.items()})
    opposite = Ranking("wave", "test", PAPER, {m: -error for m, error in published.items()})
    assert (same.correlation, opposite.correlation) == (1, -1)
    assert ranks({"cno": 1.0, "resnet": 1.0, "fno": 1.5}) == {"cno": 1, "resnet": 1, "fno": 3}


def test_departures_from_the_text_are_found_in_recipes_and_networks(tmp_path):
    table = departures(Results(tmp_path))
    assert {one.labels[:2]: [cell.text for cell in one.cells[:2]] for one in table.rows} == {
        ("optimiser", "all"): ["adam", "adamw"],
        ("patience in epochs", "all but GT"): ["50", "200"],
        ("patience in epochs", "GT"): ["50", "none"],
        ("loss", "all but GT"): ["l1", "relative-l1"],
        ("epochs a step of γ", "all but GT"): ["1", "10"],
        ("activation", "FNO"): ["gelu", "leaky_relu"],
        ("layers of the lifting", "FNO"): ["1", "2"],
    }
    page = render(make_report(tmp_path), no_picture)
    assert page.index('id="table-1"') < page.index('id="departures"') < page.index('id="table-2"')
    assert 'the published protocol, with\n<a href="#departures">departures' in page


def test_a_damaged_trial_is_named_and_stops_no_page(tmp_path):
    trial = tmp_path / "trials" / "poisson-fno-every-epoch"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text('{"model": "fno", ')
    (found,) = [one for one in departures(Results(tmp_path)).rows if one.labels[-1]]
    assert found.labels[-1] == "poisson-fno-every-epoch: result.json cannot be read"
    assert [cell.text for cell in found.cells[2:]] == ["–"] * 4


def test_a_departure_shows_the_trial_that_follows_the_text(tmp_path):
    run = planned(PAPER, "poisson", "fno")
    finish(tmp_path, run, 5.24, 25.3, model="fno", epochs=150)
    trial = tmp_path / "trials" / "poisson-fno-every-epoch"
    shutil.copytree(tmp_path / "runs" / run.name, trial)
    result = json.loads((trial / "result.json").read_text())
    result["errors"]["ood"]["relative_l1_median_percent"]["normalized"] = 4.95
    (trial / "result.json").write_text(json.dumps(result))
    write_tree(run.config.to_tree(), trial / "config.yaml")
    (found,) = [one for one in departures(Results(tmp_path)).rows if one.labels[-1]]
    assert found.labels[-1] == "poisson-fno-every-epoch (150)"
    assert [cell.value for cell in found.cells[2:]] == [5.24, 4.95, 5.24, 25.3]


def test_every_trial_of_a_departure_is_shown(tmp_path):
    cases = [("darcy", "cno"), ("poisson", "unet"), ("wave", "fno")]
    for problem, model in cases:
        finish(tmp_path / "made", planned(PAPER, problem, model), 1.0, epochs=60)
        made = tmp_path / "made" / "runs" / planned(PAPER, problem, model).name
        shutil.copytree(made, tmp_path / "trials" / f"{problem}-{model}-patience-50")
    shutil.copytree(made, tmp_path / "trials" / "wave-fno-gelu-patience-50")  # differs in two
    trials = {one.labels[-1] for one in departures(Results(tmp_path)).rows if one.labels[-1]}
    assert trials == {f"{problem}-{model}-patience-50 (60)" for problem, model in cases}


def test_numbers_of_the_text_stand_beside_ours(tmp_path):
    results = Results(tmp_path)
    laws = scaling_laws(results)
    published = row(laws, "Navier-Stokes equations", "small CNO", "published")
    assert published == {"r": "0.3", "N_0": "–", "runs": "", "parameters": "0.82"}
    ours = row(laws, "Navier-Stokes equations", "CNO", "ours, paper")
    assert ours == {"r": "–", "N_0": "–", "runs": "–", "parameters": "3.24"}
    assert "7.8M" in laws.note
    assert row(table_3(results), "seconds an epoch", "published")["N_tap = 20"] == "5.26"
    for by, needed in (("published", "20"), ("ours", "–")):
        assert row(modes(results), "Vorticity", "largest error 1%", by) == {"modes": needed}
    times = inference_times(results)
    seconds = row(times, "Navier-Stokes equations", "published, solver")
    assert seconds == {"seconds": "1e-01"}
    for what in ("solver", "CNO", "FNO"):
        assert row(times, "Vorticity", f"ours, {what}") == {"seconds": "–"}


def write_bench(folder: Path, name: str, device: str, kind: str, **sections: Any) -> None:
    """What `cno bench` would write."""
    write_json({"device": device, "device_kind": kind, **sections}, folder / f"bench-{name}.json")


def test_speedups_are_those_of_steps_that_took_turns(tmp_path):
    # Seconds an epoch of runs that shared a device differ by more than what is compared.
    for model, seconds in {"cno": 2.0, "cno-no-filters": 1.0, "cno-no-skip-blocks": 0.5}.items():
        finish(tmp_path, planned(PAPER, "darcy", model), 1.0, seconds_per_epoch=seconds)
    step = {"rounds": 26, "ratios": {"no-filters": 1.095, "no-filters-eager": 0.2}}
    fewer = {"rounds": 2, "ratios": {"no-filters": 1.3, "no-skip-blocks": 1.2}}
    write_bench(tmp_path, "a", "GPU", "cuda", training={"fused": fewer})
    write_bench(tmp_path, "b", "GPU", "cuda", training={"fused": step})
    write_bench(tmp_path, "c", "CPU", "cpu", training={"fused": {"error": "no time was left"}})
    (tmp_path / "bench-other.json").write_text('[{"device": "GPU"}]')
    (tmp_path / "bench-short.json").write_text('{"device": "GPU", ')
    times = ablation_times(Results(tmp_path), ["darcy", "navier-stokes"])
    assert list(row(times, "Darcy flow", "published").values()) == ["1.35", "1.25"]
    assert list(row(times, "Navier-Stokes equations", "ours, GPU").values()) == ["1.095", "1.200"]
    assert len(times.rows) == 3  # none of ours for darcy, which cno bench does not train


def test_seconds_a_sample_say_how_they_were_measured(tmp_path):
    for problem in ("navier-stokes", "vorticity"):
        for model in ("cno", "fno"):
            finish(tmp_path, planned(PAPER, problem, model), 1.0)
    one, eager = ({"rounds": 1, "batch": 256, "milliseconds_a_sample": t} for t in (0.04, 0.05))
    name = "navier-stokes-64-throughput"
    write_bench(tmp_path, "gpu", "GPU", "cuda", inference={name: one, f"{name}-eager": eager})
    write_bench(tmp_path, "cpu", "CPU", "cpu", inference={name: one})
    by_a_run = "paper, made up, batches of 32 operation by operation, perhaps beside other runs"
    table = inference_times(Results(tmp_path))
    assert {one.labels: one.cells[0].text for one in table.rows if not one.published} == {
        ("Vorticity", "ours, solver"): "–",
        ("Vorticity", f"ours, CNO, {by_a_run}"): "1.00e-02",
        ("Vorticity", f"ours, FNO, {by_a_run}"): "1.00e-02",
        ("Navier-Stokes equations", "ours, solver"): "–",
        (
            "Navier-Stokes equations",
            "ours, CNO, CPU, batches of 256 operation by operation",
        ): "4.00e-05",
        ("Navier-Stokes equations", "ours, CNO, GPU, batches of 256 in one CUDA graph"): "4.00e-05",
        (
            "Navier-Stokes equations",
            "ours, CNO, GPU, batches of 256 operation by operation",
        ): "5.00e-05",
    }


def test_the_fitted_law_stands_beside_the_published(tmp_path):
    law = paper.PowerLaw.through(0.4, 20_000)
    for samples, run in scaling_series(PAPER)["navier-stokes", "cno"].items():
        finish(tmp_path, run, law(samples))
    table = scaling_laws(Results(tmp_path))
    ours = row(table, "Navier-Stokes equations", "CNO", "ours, paper")
    assert ours == {"r": "0.40", "N_0": "20000", "runs": "5", "parameters": "3.24"}
    published = row(table, "Navier-Stokes equations", "CNO", "published")
    assert published == {"r": "0.37", "N_0": "14300", "runs": "", "parameters": "7.8"}


def test_a_trial_has_no_row_that_no_plan_fills(tmp_path):
    finish(tmp_path, planned(BUDGETS["quick"], "poisson", "cno"), 1.0)
    assert [one.labels for one in vorticity(Results(tmp_path)).rows] == [("published",)]


def test_every_table_of_the_paper_is_there_without_any_result(tmp_path):
    report = make_report(tmp_path)
    assert [table.number for table in report.tables] == [
        "Table 1", "Table 1, protocol", "Table 1, ranking", "Table 1, physical", "Table 2",
        "Table 3", "Table 4", "Table 5", "Tables 6 to 12", *(f"Table {n}" for n in range(6, 14)),
        "Table 13, training time", "Figure 2, right, in numbers",
        "Figures 3, right, and 27, in numbers", "Figure 26, in numbers", "SM, times",
        "SM, vorticity",
    ]  # fmt: skip
    # The figures of filters, cuts and the mesh need no results.
    assert [picture.number for picture in report.drawn] == ["Figure 4", "Figure 13", "Figure 22"]
    page = render(report, embed=no_picture)
    for study in ("table1", "resolution", "spectra", "scaling", "efficiency"):
        assert f"cno study {study} --budget paper" in page
    assert len(report.numbers["missing"]["table1, paper"]) == 56
    (data,) = [picture for picture in report.undrawn if picture.number == "Figure 28"]
    assert data.remedy == "cno study table1 --budget paper --only 'poisson-*'"


def test_a_page_with_a_dash_does_not_say_that_all_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(Results, "missing", lambda self: iter(()))
    report = replace(make_report(tmp_path), pictures=[])
    assert not report.complete
    assert "All else is here." not in render(report, no_picture)
    whole = replace(report, tables=[table for table in report.tables if not table.missing])
    assert "All else is here." in render(whole, no_picture)


def test_the_fitted_law_is_the_one_in_the_numbers(tmp_path):
    law = paper.PowerLaw.through(0.4, 20_000)
    for samples, run in scaling_series(PAPER)["navier-stokes", "cno"].items():
        finish(tmp_path, run, law(samples))
    report = make_report(tmp_path)
    (picture,) = [p for p in report.pictures if p.name == "scaling-navier-stokes-paper"]
    assert picture.number == "Figure 3, right"
    assert picture.draw is not None
    assert picture.numbers["CNO"]["rate"] == pytest.approx(0.4)
    assert picture.numbers["CNO"]["samples_for_one_percent"] == pytest.approx(20_000)


def test_a_law_of_few_runs_says_so(tmp_path):
    series = scaling_series(PAPER)["poisson", "cno"]
    for samples in (64, 1024):
        finish(tmp_path, series[samples], 2.0)
    picture = picture_of(tmp_path, "scaling-poisson-paper")
    assert picture.note == "Not measured: FNO; CNO of 128, 256, 512 samples."
    table = scaling_laws(Results(tmp_path))
    ours = row(table, "Poisson equation", "CNO", "ours, paper")
    assert ours == {"r": "0.00", "N_0": "–", "runs": "2", "parameters": "0.75"}  # it is flat


def test_numbers_that_need_no_run_are_not_counted_as_measured(tmp_path):
    for samples, run in scaling_series(PAPER)["navier-stokes", "cno"].items():
        finish(tmp_path, run, paper.PowerLaw.through(0.4, 20_000)(samples))
    laws = len(scaling_series(PAPER))
    assert scaling_laws(Results(tmp_path)).missing == pytest.approx(1 - 1 / laws)


def test_a_figure_that_one_budget_has_is_not_called_unmeasured(tmp_path):
    for budget, count in (("paper", 2), ("best", 1)):
        runs = scaling_series(BUDGETS[budget])["poisson", "cno"]
        for samples in list(runs)[:count]:
            finish(tmp_path, runs[samples], 100 / samples)
    report = make_report(tmp_path)
    assert "Figure 27, left" in {picture.number for picture in report.undrawn}
    assert "Figure 27, left" not in report.unfilled
    assert "Figure 27, right" in report.unfilled
    # Published laws are drawn of the flow alone.
    assert "published" not in picture_of(tmp_path, "scaling-poisson-paper").caption
    assert "published" in picture_of(tmp_path, "scaling-navier-stokes-paper").caption


def test_efficiency_is_drawn_from_validation_errors(tmp_path):
    *runs, diverged = efficiency(PAPER)
    for i, run in enumerate(runs):
        finish(tmp_path, run, test=3.0 + i)
    finish(tmp_path, diverged, test=np.nan)
    picture = picture_of(tmp_path, "figure-3-left-paper")
    assert picture.draw is not None
    assert len(picture.numbers["FNO"]) == 7
    errors = [size["error"] for size in picture.numbers["CNO"]]
    assert errors == pytest.approx([3.0 + i for i in range(8)])
    small = [run.name.endswith("-width16") for run in efficiency(PAPER)[:8]]
    assert [size["small"] for size in picture.numbers["CNO"]] == small


def test_figure_3_shows_the_best_the_small_one_and_the_times_of_one_device():
    sizes = [Size(10**6 * (i + 1), 0.1 * (i + 1), 5.0 - i, "GPU") for i in range(3)]
    small, elsewhere = Size(800_000, 0.2, 4.5, "GPU", small=True), Size(10**7, 9.0, 1.0, "CPU")
    by_size, by_time = draw_efficiency({"CNO": [*sizes, small, elsewhere], "FNO": sizes}).axes
    points = {line.get_label(): line.get_xydata().tolist() for line in by_size.lines}
    assert points["CNO, the best"] == [[10**7, 1.0]]
    assert points["CNO, the small one"] == [[800_000, 4.5]]
    assert points["FNO, the best"] == [[3 * 10**6, 3.0]]
    assert by_time.get_xlabel() == "seconds an epoch, GPU"
    assert max(line.get_xdata().max() for line in by_time.lines) < 1.0


def test_a_search_is_no_figure_of_the_paper(tmp_path):
    write_search(tmp_path)
    report = make_report(tmp_path)
    (search,) = [picture for picture in report.drawn if picture.name == "search-poisson-cno"]
    assert search.number == "Search"
    undrawn = {picture.name for picture in report.undrawn}
    assert {"figure-3-left-paper", "figure-3-left-best"} <= undrawn
    assert "cno study efficiency --budget paper" in render(report, no_picture)


def write_search(folder: Path) -> None:
    """What a search of two finished trials and a diverged one would leave."""
    search = folder / "search-poisson-cno"
    search.mkdir()
    (search / "result.json").write_text(json.dumps({"problem": "poisson", "model": "cno"}))
    (search / "trials.csv").write_text(
        "number,state,validation_error,parameters,seconds_per_epoch,device,width,error\n"
        "0,finished,0.01,1000,0.5,GPU,16,\n1,diverged,,,,,32,no\n2,finished,0.02,2000,0.7,,24,\n"
    )


def test_all_numbers_are_in_the_file(tmp_path):
    finish(tmp_path, planned(PAPER, "poisson", "cno"), 0.25)
    page, numbers, folder = write_report(make_report(tmp_path), tmp_path / "out" / "page.html")
    assert page.exists()
    tables = json.loads(numbers.read_text())["tables"]
    assert tables.keys() == {path.stem for path in folder.iterdir()}
    values = {one["by"]: one["values"]["CNO"] for one in tables["table-1"][:2]}
    assert values == {"published": 0.21, "ours, paper": 0.25}


def test_a_cell_shows_no_number_that_is_not_in_the_file(tmp_path):
    for seed in range(3):
        finish(tmp_path, planned(PAPER, "poisson", "cno", seed=seed), 0.25 + 0.125 * seed)
    for table in all_tables(Results(tmp_path)):
        for one, numbers in zip(table.rows, table.numbers, strict=True):
            for cell, value in zip(one.cells, numbers["values"].values(), strict=True):
                shown = re.sub(r" of \d+", "", cell.text)  # of so many that are planned
                for text in [] if isinstance(value, str) else re.findall(r"[\de.-]+", shown):
                    known = value.values() if isinstance(value, dict) else [value]
                    digit = 10.0 ** Decimal(text).as_tuple().exponent
                    rounding = min(abs(float(text) - number) for number in known)
                    assert rounding <= 0.501 * digit, (table.name, one.labels, text, value)
    ours = table_4(Results(tmp_path)).numbers[1]
    assert ours["values"]["CNO"] == {"mean": 0.375, "std": 0.125, "seeds": 3}


def test_the_same_results_make_the_same_page(tiny_run, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / planned(PAPER, "poisson", "cno").name).symlink_to(tiny_run)
    measure_spectra(tiny_run, "cpu")
    reports = [make_report(tmp_path) for _ in range(2)]
    first, second = (render(report, no_picture) for report in reports)
    assert first == second
    # Spectra, the distribution of errors, samples and data; filters, cuts and the mesh.
    assert first.count("<img ") == 7
    pictures = [report.drawn[0].draw() for report in reports]
    assert data_uri(pictures[0]) == data_uri(pictures[1])


def test_spectra_hold_the_whole_energy_of_the_fields(tiny_run):
    measure_spectra(tiny_run, "cpu")
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
    assert escape_tex("N_σ ± 5 %") == r"$N_{\sigma}$ $\pm$ 5 \%"
    assert escape_tex("σ of c_h, N_tap in weight_decay") == (
        r"$\sigma$ of $c_{\mathrm{h}}$, $N_{\mathrm{tap}}$ in weight\_decay"
    )


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


def resolution_errors(*, at_training: float) -> dict[str, Any]:
    """What `measure_resolutions` would write."""
    errors = {32: 2 * at_training, 64: at_training}
    summaries = {
        str(n): {"relative_l1_median_percent": {"normalized": error}} for n, error in errors.items()
    }
    return {"training_resolution": 64, "errors": {"test": summaries}, "refused": {"33": "odd"}}


def picture_of(folder: Path, name: str) -> Picture:
    (picture,) = [picture for picture in make_report(folder).pictures if picture.name == name]
    return picture


def test_resolutions_are_drawn_and_their_largest_changes_told(tmp_path):
    run = planned(PAPER, "navier-stokes", "cno")
    finish(tmp_path, run, 2.8)
    folder = tmp_path / "runs" / run.name
    write_json(resolution_errors(at_training=2.8), folder / "resolution.json")
    picture = picture_of(tmp_path, "figure-2-right")
    assert picture.numbers == {"CNO": {"32": 5.6, "64": 2.8}}
    assert picture.note == "Not measured: FNO; UNet."
    factors = row(resolution_changes(Results(tmp_path)), "CNO", "ours, paper")
    assert factors == {"coarser grids": "2.00", "finer grids": "–", "any grids": "2.00"}


def test_what_other_weights_measured_is_left_out_and_told(tmp_path):
    """TF32 changes an error by a percent or two, another training by more."""
    runs = {model: planned(PAPER, "navier-stokes", model) for model in ("cno", "fno", "unet")}
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    audits = []
    for run, change in zip(runs.values(), (1.01, 1.0, 1.04), strict=True):
        finish(tmp_path, run, 5.0)
        folder = tmp_path / "runs" / run.name
        write_json(resolution_errors(at_training=5.0 * change), folder / "resolution.json")
        audits.append(RunAudit(run.name, "periodic", (8, 8), (), (), layers, error=5.0 * change))
    write_json(audit_report(audits, threshold=0.01), tmp_path / "audit-navier-stokes.json")
    for name in ("figure-2-right", "audit-navier-stokes"):
        picture = picture_of(tmp_path, name)
        assert picture.numbers.keys() == {"CNO", "FNO"}
        assert picture.note == "UNet: measured with other weights than Table 1's; left out."
        assert picture.note in html.unescape(render(make_report(tmp_path), no_picture))


def test_spectra_keep_the_error_of_their_weights(tiny_run, tmp_path):
    measure_spectra(tiny_run, "cpu")
    result = json.loads((tiny_run / "result.json").read_text())
    error = result["errors"]["test"]["relative_l1_median_percent"]["normalized"]
    assert read_spectra(tiny_run).error == pytest.approx(error, rel=1e-3)
    for model, change in (("cno", 1.0), ("fno", 1.1)):
        run = planned(PAPER, "poisson", model)
        finish(tmp_path, run, error * change)
        shutil.copy(tiny_run / "spectra.npz", tmp_path / "runs" / run.name)
    picture = picture_of(tmp_path, "spectra-poisson")
    assert picture.numbers.keys() == {"CNO"}
    assert "FNO: measured with other weights" in picture.note


def test_one_model_with_spectra_is_enough_for_figure_25(tiny_run, tmp_path):
    measure_spectra(tiny_run, "cpu")
    for problem in ("vorticity", "navier-stokes"):
        for model in ("cno", "fno"):
            finish(tmp_path, planned(PAPER, problem, model), read_spectra(tiny_run).error)
        folder = tmp_path / "runs" / planned(PAPER, problem, "cno").name
        shutil.copy(tiny_run / "spectra.npz", folder)
    assert picture_of(tmp_path, "figure-25").draw is not None


def test_a_figure_names_the_models_that_it_lacks(tiny_run, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / planned(PAPER, "poisson", "cno").name).symlink_to(tiny_run)
    finish(tmp_path, planned(BUDGETS["best"], "poisson", "fno"), 4.0)  # no errors of its samples
    assert picture_of(tmp_path, "figure-5").note == "Not measured: FNO, best; UNet."
    assert picture_of(tmp_path, "figure-6").note == "Not measured: FNO, best; UNet."


def keep_errors(folder: Path, run: PlannedRun, **splits: list[float]) -> None:
    """Errors of samples, and samples, as a finished run of these splits keeps them."""
    where = folder / "runs" / run.name
    arrays = {f"{split}/normalized": np.array(values) for split, values in splits.items()}
    np.savez(where / "errors.npz", **arrays)
    save_examples({split: Examples(*torch.rand(3, 2, 1, 8, 8)) for split in splits}, where)


def test_a_figure_of_samples_compares_models_that_have_every_split(tmp_path):
    cno, fno = (planned(PAPER, "poisson", model) for model in ("cno", "fno"))
    for run in (cno, fno):
        finish(tmp_path, run, 1.0)
    keep_errors(tmp_path, cno, test=[0.01, 0.02], ood=[0.03, 0.02])
    keep_errors(tmp_path, fno, test=[0.01, 0.02])
    for name in ("figure-5", "figure-6"):
        picture = picture_of(tmp_path, name)
        assert picture.draw() is not None
        assert picture.note == "Not measured: FNO; UNet."
    assert picture.numbers == {"in": {"CNO": 1.0}, "out": {"CNO": 3.0}}


def test_errors_that_no_logarithm_has_are_left_out_of_their_figure_and_counted(tmp_path):
    run = planned(PAPER, "poisson", "cno")
    finish(tmp_path, run, 1.0)
    keep_errors(tmp_path, run, test=[0.01, np.nan, 0.01, 0.0], ood=[np.inf, 0.02])
    picture = picture_of(tmp_path, "figure-5")
    assert picture.draw() is not None
    medians = {title: models["CNO"]["q50"] for title, models in picture.numbers.items()}
    assert list(medians.values()) == [1.0, 2.0]
    assert picture.note.endswith("Errors that are zero or not finite, left out: 3 of CNO.")


def test_an_error_that_is_no_number_is_not_measured_and_told(tmp_path):
    for model in paper.COMPARED:
        finish(tmp_path, planned(PAPER, "poisson", model), np.nan if model == "ffnn" else 1.0)
    results = Results(tmp_path)
    ours = row(table_1(results, "normalized"), "Poisson equation", "In", "ours, paper")
    assert ours["FFNN"] == "–"
    assert not any(text.endswith("*") for text in ours.values())
    assert not rankings(results, [("poisson", "test")])
    (words,) = [words for words in results.deviations if "nan" in words]
    assert words == "its error of test is nan, and left out; its configuration is not there"
    assert results.deviations[words] == ["poisson-ffnn-paper-0"]
    _, numbers, _ = write_report(make_report(tmp_path), tmp_path / "page.html")
    assert "NaN" not in numbers.read_text()


@pytest.mark.parametrize("file", ["audit-ns", "audit-navier-stokes-cpu", "audit-mine"])
def test_the_name_of_an_audit_is_free(tmp_path, file):
    run = planned(PAPER, "navier-stokes", "cno")
    finish(tmp_path, run, 5.0)
    layers = (LayerAliasing("sigma", "ReLU", (8, 8), (8, 8), 1e-2),)
    name = "heat" if file == "audit-mine" else run.name
    audit = RunAudit(name, "periodic", (8, 8), (), (), layers, error=5.0)
    write_json(audit_report([audit], threshold=0.01), tmp_path / f"{file}.json")
    picture = picture_of(tmp_path, file)
    title, shown = {"heat": ("mine", "heat")}.get(name, ("Navier-Stokes equations", "CNO"))
    assert picture.title.startswith(f"{title}: ")
    assert picture.numbers.keys() == {shown}
    assert picture.remedy.endswith(str(tmp_path / f"{file}.json"))


def test_a_search_of_another_model_has_its_name(tmp_path):
    write_search(tmp_path)
    result = tmp_path / "search-poisson-cno" / "result.json"
    result.write_text(json.dumps({"problem": "poisson", "model": "mine"}))
    assert picture_of(tmp_path, "search-poisson-cno").numbers.keys() == {"mine"}


def test_a_search_of_a_model_without_a_title_is_reported(
    tiny_config, tiny_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(search_report, "TITLES", {})
    search = Search(Space.of(tiny_config, {"model.width": (4, 8)}))
    choice = search.space.draw(0, 0)
    trial = TrialRow(0, "finished", 0.01, 1000, 0.5, "CPU", choice, str(tiny_run), "")
    assert search_report.write_report(search, [trial], tmp_path, "cpu")["model"] == "cno"
    assert (tmp_path / "figure.png").exists()


def test_searches_and_audits_are_shown(tiny_run, tmp_path):
    write_search(tmp_path)
    audit = audit_run(tiny_run, samples=1, resolutions=(12, 24), device="cpu")
    write_json(audit_report([audit], threshold=0.01), tmp_path / "audit-poisson.json")
    assert read_audits(tmp_path / "audit-poisson.json") == [audit]
    drawn = {picture.name: picture for picture in make_report(tmp_path).drawn}
    trials = drawn["search-poisson-cno"].numbers["CNO"]
    assert [trial["error"] for trial in trials] == [1.0, 2.0]
    assert [trial["device"] for trial in trials] == ["GPU", ""]
    note = "Times are those of GPU alone, not of 1 trained elsewhere."
    assert drawn["search-poisson-cno"].note.endswith(f" {note}")
    assert drawn["audit-poisson"].numbers["tiny"]["worst"] == audit.worst
    assert drawn["audit-poisson"].draw() is not None


def test_hyper_parameters_are_those_of_the_models():
    assert row(hyper_parameters(11, "fno"), "Navier-Stokes equations", "both") == {
        "pad": "0", "modes": "16", "width": "128", "layers": "5",
        "rate": "0.001", "γ": "0.98", "decay": "1e-06", "batch": "32",
    }  # fmt: skip
    assert row(hyper_parameters(6, "ffnn"), "Wave equation", "both")["layers"] == "4"


def test_a_printed_row_that_contradicts_its_count_stands_beside_ours():
    table = hyper_parameters(12, "cno")
    assert row(table, "Compressible Euler", "published")["width"] == "48"
    ours = row(table, "Compressible Euler", "ours")["width"]
    assert ours == str(our_value("cno", "airfoil", "width"))
    said = "with width = 48 as printed the network would have 29.0M parameters; 7.3M are printed"
    assert said in table.note
    assert "but for 4 rows (2 in Table 10, 2 in Table 12)" in tables_6_to_12().note
    assert "The paper does not give: batch." in hyper_parameters(8, "resnet").note


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
