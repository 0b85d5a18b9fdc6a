"""Tables as pivots of results made up here: every cell is the number of its runs."""

import json
import re
from decimal import Decimal

import numpy as np
import pytest

from torchcno.disk import write_json
from torchcno.paper import published as paper
from torchcno.paper.findings import correlation, find
from torchcno.paper.pivots import Table
from torchcno.paper.protocol import departures, our_value
from torchcno.paper.results import Results
from torchcno.paper.studies import BUDGETS, planned, scaling_series
from torchcno.paper.tables import TABLES, all_tables, complete_rows, ranks
from torchcno.runs.config import RunConfig

PAPER = BUDGETS["paper"]


def table(name: str, folder) -> Table:
    return TABLES[name].make(name, Results(folder))


def row(table: Table, *labels: str) -> dict[str, str]:
    """The cells of a row, a star where they are marked as best, the published in brackets."""
    (found,) = [one for one in table.rows if one.labels == labels]
    texts = [cell.text + "*" * cell.best for cell in found.cells]
    for i, cell in enumerate(found.published):
        texts[i] += f" ({cell.text})" if cell.text else ""
    return dict(zip(table.columns, texts, strict=True))


def test_ours_stand_beside_the_published(finish, tmp_path):
    for model in paper.COMPARED:
        finish(planned(PAPER, "poisson", model), 0.25 if model == "cno" else 5.0)
    for model, error in {"cno": 0.6, "ffnn": 4.0}.items():
        finish(planned(PAPER, "wave", model), error)
    errors = {"test": {"relative_l1_median_percent": {"normalized": 0.49, "physical": 3.1}}}
    write_json({"wave": {"errors": errors}}, tmp_path / "validation-linear.json")
    one = table("table-1", tmp_path)
    ours = row(one, "Poisson equation", "in", "paper")
    assert (ours["CNO"], ours["FNO"]) == ("0.25* (0.21)", "5.00 (4.98)")
    assert (ours["mean field"], ours["linear map"]) == ("50.00", "–")
    few = row(one, "Wave equation", "in", "paper")  # better than one other is not best
    assert (few["CNO"], few["FFNN"], few["FNO"]) == ("0.60 (0.63)", "4.00 (2.51)", "– (1.02)")
    assert few["linear map"] == "0.49"
    cost = row(one, "Poisson equation", "size, epoch", "paper")
    assert (cost["CNO"], cost["mean field"]) == ("1.0M 0.5s (0.7M)", "")
    physical = table("table-1-physical", tmp_path)
    assert row(physical, "Poisson equation", "in", "paper")["CNO"] == "1.75*"
    assert row(physical, "Wave equation", "in", "paper")["linear map"] == "3.10"


def test_a_cell_names_its_run_and_says_what_its_number_hides(finish, tmp_path):
    for seed, error in enumerate((0.6, 0.5, 1.5)):
        finish(planned(PAPER, "wave", "cno", seed=seed), error, ood=2 * error)
    rows = {one.labels: one.cells[0] for one in table("table-1", tmp_path).rows}
    assert rows["Wave equation", "in", "paper"].title == "wave-cno-paper-0; 3 seeds 0.50–1.50"
    assert rows["Wave equation", "out", "paper"].title == (
        "wave-cno-paper-0; mean 2.40; 3 seeds 1.00–3.00"
    )
    assert rows["Darcy flow", "in", "paper"].title == "darcy-cno-paper-0: not run"


def test_colours_are_how_many_times_the_least_error_of_the_row(finish, tmp_path):
    for model, error in {"cno": 0.5, "fno": 5.0, "unet": 500.0, "resnet": 0.5 * 10**0.5}.items():
        finish(planned(PAPER, "wave", model), error)
    (found,) = [
        one for one in table("table-1", tmp_path).rows if one.labels[:2] == ("Wave equation", "in")
    ]
    heats = {c: cell.heat for c, cell in zip(TABLES["table-1"].columns, found.cells, strict=True)}
    assert (heats["CNO"], heats["FNO"], heats["UNet"]) == pytest.approx((0, 1, 1))
    assert heats["ResNet"] == pytest.approx(0.5)
    assert heats["GT"] is heats["mean field"] is None


def test_a_recipe_has_a_row_where_it_has_a_number(finish, tmp_path):
    for budget in ("paper", "best"):
        finish(planned(BUDGETS[budget], "poisson", "cno"), 1.0)
    finish(planned(PAPER, "wave", "cno"), 1.0)
    recipes = [one.labels for one in table("table-4", tmp_path).rows if one.labels[0] != ""]
    assert ("Poisson equation", "best") in recipes
    assert ("Wave equation", "best") not in recipes


@pytest.mark.parametrize(
    ("of_cno", "ablated", "marked"),
    [
        ((1.0, 1.5), (1.4, 2.0), ""),  # within the CNO's scatter
        ((1.0, 1.5), (1.6, 2.0), "CNO"),
        ((1.0, 1.5), (0.9, 2.0), "CNO w/o filters"),
    ],
)
def test_an_ablation_is_best_or_worse_only_beyond_chance(finish, tmp_path, of_cno, ablated, marked):
    for seed, error in enumerate(of_cno):
        finish(planned(PAPER, "wave", "cno", seed=seed), error)
    for model, error in zip(paper.ABLATED[1:], ablated, strict=True):
        finish(planned(PAPER, "wave", model), error)
    cells = row(table("table-13", tmp_path), "Wave equation", "in", "paper")
    assert "".join(title for title, text in cells.items() if "*" in text) == marked


def test_the_best_is_marked_only_among_the_same_seeds(finish, tmp_path):
    seeds = {
        "darcy": {"cno": (0, 1), "fno": (0, 1), "unet": (0, 1)},
        "poisson": {"cno": (0, 1, 2), "fno": (0, 1, 2), "unet": (1,)},
        "wave": dict.fromkeys(paper.SEEDED, (0, 1, 2)),
    }
    for problem, by_model in seeds.items():
        for model in paper.SEEDED:
            for seed in by_model[model]:
                finish(planned(PAPER, problem, model, seed=seed), 1.0 + len(model) + seed)
    found = table("table-4", tmp_path)
    # Two say nothing of how far others scatter.
    assert row(found, "Darcy flow", "paper") == {
        "CNO": "4.50 (2 of 10) (0.42 ± 0.02)", "FNO": "4.50 (2 of 10) (0.90 ± 0.08)",
        "UNet": "5.50 (2 of 10) (0.65 ± 0.10)",
    }  # fmt: skip
    assert "*" not in "".join(row(found, "Poisson equation", "paper").values())
    wave = row(found, "Wave equation", "paper")
    assert wave["CNO"].startswith("5.00 ± 1.00 (3 of 10)*")
    assert "*" not in wave["UNet"]


def test_findings_count_what_is_measured_and_who_is_first(finish, tmp_path):
    assert find(Results(tmp_path))["complete_rows"] == 0
    for model in paper.COMPARED:  # first in distribution, and not out of it
        first = model == "cno"
        finish(planned(PAPER, "wave", model), 0.5 if first else 1.0, 3.0 if first else 2.0)
    finish(planned(BUDGETS["best"], "wave", "cno"), 0.4, 2.5)
    found = find(Results(tmp_path))
    assert (found["measured"], found["errors"]) == (14, 112)
    assert (found["complete_rows"], found["cno_first"], found["cno_first_published"]) == (2, 1, 2)
    assert found["others"] == [{"budget": "best", "ahead": 1, "of": 2}]


def test_initialisations_that_lie_far_apart_are_named(finish, tmp_path):
    errors = {"cno": (1.5, 0.25, 0.5), "fno": (0.5, 0.5, 0.75), "unet": (0.5, 1.5)}
    for model, by_seed in errors.items():
        for seed, error in enumerate(by_seed):
            finish(planned(PAPER, "darcy", model, seed=seed), error, ood=200 * error)
    seeds = find(Results(tmp_path))["seeds"]
    assert seeds["errors"] == 4
    assert seeds["wide"] == [
        "CNO on Darcy flow, in (0.25–1.50)",
        "CNO on Darcy flow, out (50.00–300.0)",
    ]


def test_equal_orders_have_the_correlation_1_and_opposite_ones_minus_1():
    published = paper.TABLE_1["wave", "test"]
    assert correlation({m: 2 * error for m, error in published.items()}, published) == 1
    assert correlation({m: -error for m, error in published.items()}, published) == -1
    assert ranks({"cno": 1.0, "resnet": 1.0, "fno": 1.5}) == {"cno": 1, "resnet": 1, "fno": 3}


def test_an_error_that_is_no_number_is_not_measured(finish, tmp_path):
    for model in paper.COMPARED:
        finish(planned(PAPER, "poisson", model), np.nan if model == "ffnn" else 1.0, 1.0)
    results = Results(tmp_path)
    ours = row(table("table-1", tmp_path), "Poisson equation", "in", "paper")
    assert ours["FFNN"] == "– (5.74)"
    assert not any("*" in text for text in ours.values())
    assert list(complete_rows(results, PAPER)) == [("poisson", "ood")]
    (words,) = [words for words in results.deviations if "nan" in words]
    assert results.deviations[words] == ["poisson-ffnn-paper-0"]


def test_the_fitted_law_stands_beside_the_published(finish, tmp_path):
    law = paper.PowerLaw.through(0.4, 20_000)
    for samples, run in scaling_series(PAPER)["navier-stokes", "cno"].items():
        finish(run, law(samples))
    for run in list(scaling_series(PAPER)["poisson", "cno"].values())[::4]:
        finish(run, 2.0)
    laws = table("scaling", tmp_path)
    assert row(laws, "Navier-Stokes equations", "CNO", "paper") == {
        "r": "0.40 (0.37)", "N_0": "20000 (14300)", "runs": "5", "parameters (M)": "3.24 (7.8)",
    }  # fmt: skip
    flat = row(laws, "Poisson equation", "CNO", "paper")  # which reaches no error of one percent
    assert (flat["r"], flat["N_0"], flat["runs"]) == ("0.00 (0.5)", "–", "2")


def test_speedups_are_those_of_steps_that_took_turns(finish, tmp_path):
    step = {"rounds": 26, "ratios": {"no-filters": 1.095, "no-filters-eager": 0.2}}
    fewer = {"rounds": 2, "ratios": {"no-filters": 1.3, "no-skip-blocks": 1.2}}
    for name, training in (("a", fewer), ("b", step), ("c", {"error": "no time was left"})):
        bench = {"device": "GPU", "device_kind": "cuda", "training": {"fused": training}}
        write_json(bench, tmp_path / f"bench-{name}.json")
    (tmp_path / "bench-other.json").write_text('[{"device": "GPU"}]')
    (tmp_path / "bench-short.json").write_text('{"device": "GPU", ')
    times = table("ablation-times", tmp_path)
    ours = row(times, "Navier-Stokes equations")
    assert list(ours.values()) == ["1.095 (1.25)", "1.200 (1.25)"]
    assert list(row(times, "Darcy flow").values()) == [" (1.35)", " (1.25)"]


def test_seconds_per_sample_are_those_of_the_fastest_solver_and_of_runs(finish, tmp_path):
    finish(planned(PAPER, "vorticity", "fno"), 1.0)
    for device, seconds in (("CPU", 30.0), ("GPU", 10.0)):
        problems = {"vorticity": {"seconds": seconds, "samples": 10}}
        bench = {"device": device, "cores": 0, "problems": problems}
        write_json(bench, tmp_path / f"bench-solvers-{device}.json")
    found = row(table("seconds", tmp_path), "Vorticity")
    assert found == {"solver": "1.0e+00 (1e-03)", "CNO": "– (1e-04)", "FNO": "1.0e-02 (1e-04)"}


def test_resolutions_are_compared_with_that_of_training(finish, tmp_path):
    folder = finish(planned(PAPER, "navier-stokes", "cno"), 2.8)
    errors = {"32": 5.6, "64": 2.8, "128": 2.94}
    summaries = {n: {"relative_l1_median_percent": {"normalized": e}} for n, e in errors.items()}
    found = {"training_resolution": 64, "errors": {"test": summaries}, "refused": {"33": "odd"}}
    write_json(found, folder / "resolution.json")
    assert row(table("resolution", tmp_path), "CNO", "paper") == {
        "coarser grids": "2.00", "finer grids": "1.05", "any grids": "2.00 (1.00)",
    }  # fmt: skip


def test_departures_from_the_text_are_found_in_recipes_and_networks():
    assert {(d.title, d.models): (d.text, d.ours) for d in departures()} == {
        ("optimiser", "all"): ("adam", "adamw"),
        ("patience in epochs", "all but GT"): (50, 200),
        ("patience in epochs", "GT"): (50, "none"),
        ("loss", "all but GT"): ("l1", "relative-l1"),
        ("epochs per step of γ", "all but GT"): (1, 10),
        ("activation", "FNO"): ("gelu", "leaky_relu"),
        ("layers of the lifting", "FNO"): (1, 2),
    }


def test_a_printed_row_that_contradicts_its_count_stands_beside_ours(tmp_path):
    width = row(table("table-12", tmp_path), "Compressible Euler")["width"]
    assert width == f"{our_value('cno', 'airfoil', 'width')} (48)"
    assert row(table("table-11", tmp_path), "Navier-Stokes equations")["modes"] == "16"


def test_a_cell_shows_no_number_that_is_not_in_the_file(finish, tmp_path):
    for seed in range(3):
        finish(planned(PAPER, "poisson", "cno", seed=seed), 0.25 + 0.125 * seed)
    for one in all_tables(Results(tmp_path)):
        assert json.loads(json.dumps(one.numbers)) is not None
        for line in one.rows:
            for cell in (*line.cells, *line.published):
                shown = re.sub(r" of \d+", "", cell.text)  # of so many that are planned
                value = cell.value
                for text in [] if isinstance(value, str) else re.findall(r"[\de.-]+", shown):
                    known = value.values() if isinstance(value, dict) else [value]
                    digit = 10.0 ** Decimal(text).as_tuple().exponent
                    assert min(abs(float(text) - number) for number in known) <= 0.501 * digit


def test_the_tables_of_the_paper_are_there_without_any_result(tmp_path):
    numbers = [one.number for one in all_tables(Results(tmp_path))]
    assert {f"Table {n}" for n in range(1, 14)} <= set(numbers)
    assert len(numbers) == len(set(numbers))


def test_a_plan_of_a_thousand_runs_resolves_its_networks_alone(finish, tmp_path, monkeypatch):
    """Seeds, sizes and numbers of samples are made from the network's one configuration."""
    count, resolve = [], RunConfig.resolve.__func__
    counting = classmethod(lambda cls, *a, **k: (count.append(a), resolve(cls, *a, **k))[1])
    monkeypatch.setattr(RunConfig, "resolve", counting)
    for model in ("cno", "fno", "unet", "ffnn"):
        finish(planned(PAPER, "wave", model), 1.0)
    results = Results(tmp_path)
    all_tables(results)
    assert results.deviations
    assert len(count) < 200
