"""One table of results: what a run folder holds is what its row and its arrays say."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree, ignore_patterns

import numpy as np
import pytest

from torchcno.disk import read_json, write_json
from torchcno.metrics import relative_l1
from torchcno.paper.records import TABLE, collect, drop, find_recorded, read_records
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.measurements import (
    SPECTRA,
    measure_resolutions,
    measure_spectra,
    read_spectra,
)

RESULTS = Path(__file__).parents[2] / "results"
NAMES = [planned(BUDGETS["paper"], "poisson", model).name for model in ("cno", "fno")]


@pytest.fixture
def results(tiny_run, tmp_path) -> Path:
    """Two runs of the same data, one of them measured."""
    for name in NAMES:
        copytree(tiny_run, tmp_path / "runs" / name, ignore=ignore_patterns("spectra.npz"))
    measure_resolutions(tmp_path / "runs" / NAMES[0], "cpu")
    measure_spectra(tmp_path / "runs" / NAMES[0], "cpu")
    return tmp_path


def remove_folders(results: Path) -> None:
    (results / "runs").rename(results.with_name(f"{results.name}-elsewhere"))


def test_the_table_says_what_the_folder_says(results):
    folder = results / "runs" / NAMES[0]
    run = RunFolder(folder)
    result, config, rows = run.result(), run.config(), run.rows()
    errors, examples = run.errors("ood", "physical"), run.examples("test")
    spectra = read_spectra(folder)
    collect(results)
    remove_folders(results)
    record = next(iter(read_records(results)))
    assert {key: record[key] for key in result} == result
    assert RunConfig.from_tree(record["config"]) == replace(config, data=None)
    np.testing.assert_array_equal(record.sample_errors("ood", "physical"), errors)
    losses = [row["train_loss"] for row in rows]
    np.testing.assert_allclose(record.curve()[:, 1], losses, rtol=1e-6)
    kept = record.examples("test")
    assert kept.output.equal(examples.output)
    assert kept.prediction.equal(examples.prediction[:1])
    np.testing.assert_array_equal(record.spectra().band_errors, spectra.band_errors)
    at_training = record.resolutions().errors[config.resolution]
    assert at_training == pytest.approx(record.error("test"), rel=1e-3)


def test_shared_samples_are_kept_once_and_go_with_the_last_row(results):
    collect(results)
    remove_folders(results)
    first, second = read_records(results)
    key = "examples/test/input"
    assert first["arrays"][key] == second["arrays"][key]
    drop(results, lambda record: record.name == NAMES[0])
    (left,) = read_records(results)
    assert left.examples("test") is not None
    drop(results, lambda record: record["problem"] == "poisson")
    assert not list(read_records(results))
    assert not list(results.glob("arrays/*"))


def test_a_folder_goes_before_the_row_of_its_name(results):
    collect(results)
    path = results / "runs" / NAMES[0] / "result.json"
    write_json(read_json(path) | {"parameters": 7}, path)
    assert next(iter(read_records(results)))["parameters"] == 7
    assert len(collect(results).rows) == len(NAMES)
    assert '"parameters":7' in (results / TABLE).read_text()


def test_a_study_leaves_alone_what_the_table_has(results, monkeypatch):
    """Of the same configuration and measured as it is wanted; a folder is asked itself."""
    config = RunFolder(results / "runs" / NAMES[0]).config()
    wanted = dict.fromkeys([*NAMES, "poisson-unet-paper-0"], config)
    collect(results)
    assert find_recorded(results, wanted) == set()
    remove_folders(results)
    assert find_recorded(results, wanted) == set(NAMES)
    assert find_recorded(results, wanted, SPECTRA) == {NAMES[0]}
    assert find_recorded(results, {NAMES[0]: replace(config, seed=1)}) == set()
    monkeypatch.setattr(type(config.problem), "version", 99)  # other data of the same constants
    assert find_recorded(results, wanted) == set()


@pytest.mark.parametrize("file", [TABLE, "arrays/poisson.npz"])
def test_a_damaged_table_is_named_and_not_written_over(results, file):
    collect(results)
    remove_folders(results)
    path = results / file
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    records = read_records(results)
    assert [damage.file for damage in records.damages.values()] == [path]
    assert any(record.error("test") for record in records)
    with pytest.raises(ValueError, match="git checkout"):
        collect(results)
    assert path.stat().st_size == len(content) - 100


@pytest.mark.parametrize("split", ["test", "ood"])
def test_pictures_show_the_errors_that_are_counted(split):
    """Of every committed run that has a picture; half precision holds its mean to 1e-4."""
    for record in read_records(RESULTS):
        examples = record.examples(split)
        if examples is not None:
            truth = examples.output[:1].double()
            error = relative_l1(examples.prediction.double(), truth).item()
            counted = record.sample_errors(split, "physical")[0]
            assert error == pytest.approx(counted, rel=1e-4), record.name


def test_results_are_no_burden():
    files = [path for path in RESULTS.rglob("*") if path.is_file() and path.name != ".lock"]
    own = [path for path in files if path.relative_to(RESULTS).parts[0] not in ("runs", "trials")]
    assert len(own) <= 80
    assert sum(path.stat().st_size for path in own) <= 12e6
