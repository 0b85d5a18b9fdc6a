import json
import shutil

import pytest
import xarray


def test_the_printed_error_is_that_of_the_result(cno, run_folder):
    outcome = cno("evaluate", run_folder, "--split", "test", "--device", "cpu")
    assert outcome.code == 0
    result = json.loads((run_folder / "result.json").read_text())
    error = result["errors"]["test"]["relative_l1_median_percent"]
    for space in ("normalized", "physical"):
        assert f"{error[space]:.3g}" in outcome.out


def test_other_resolutions_and_every_sample(cno, run_folder, tmp_path):
    path = tmp_path / "samples.nc"
    words = ("--split", "ood", "--resolutions", "24,48", "--samples", 2, "--save", path)
    outcome = cno("evaluate", run_folder, *words)
    assert outcome.code == 0
    assert "ood 24²" in outcome.out
    assert "ood 48²" in outcome.out
    with xarray.open_dataset(path, group="ood/48", engine="h5netcdf") as saved:
        assert saved["prediction"].shape == (2, 1, 48, 48)


def test_what_is_no_run_is_named(cno, tmp_path, run_folder):
    missing = cno("evaluate", tmp_path / "nothing")
    assert missing.code == 2
    assert f"{tmp_path / 'nothing'} does not exist" in missing.err
    assert cno("evaluate", run_folder, "--resolutions", "24;48").code == 2
    assert cno("evaluate", run_folder, "--split", "tset").code == 2
    assert cno("evaluate", run_folder, "--device", "cuda:x").code == 2


def test_what_a_folder_lacks_is_named_with_the_remedy(cno, tmp_path, run_folder):
    for name in ("config.yaml", "model.json", "result.json"):
        shutil.copy(run_folder / name, tmp_path)
    without_weights = cno("evaluate", tmp_path)
    assert without_weights.code == 2
    assert f"{tmp_path} has no model.safetensors; the run came without" in without_weights.err
    assert f"cno train --config {tmp_path / 'config.yaml'} --out" in without_weights.err
    assert "cno evaluate" not in cno("resume", tmp_path).out  # it is finished, and that is all
    (tmp_path / "result.json").unlink()
    assert f"Go on with it: cno resume {tmp_path}" in cno("evaluate", tmp_path).err
    (tmp_path / "config.yaml").unlink()
    shutil.copy(run_folder / "model.safetensors", tmp_path)
    of_train_on = cno("evaluate", tmp_path)
    assert of_train_on.code == 2
    assert "`cno predict` takes it" in of_train_on.err
    assert "is no folder" in cno("evaluate", tmp_path / "model.json").err


def test_runs_on_many_grids_as_table_json_and_figures(cno, run_folder, tmp_path):
    table, plot, spectra = (tmp_path / name for name in ("r.json", "r.png", "s.png"))
    twin = tmp_path / "twin"
    twin.symlink_to(run_folder)
    outcome = cno(
        *("evaluate", run_folder, twin, "--split", "test", "--resolutions", "16,24,32"),
        *("--samples", 2, "--device", "cpu"),
        *("--json", table, "--plot", plot, "--spectra", spectra),
    )
    assert outcome.code == 0
    content = json.loads(table.read_text())
    assert content.keys() == {str(run_folder), str(twin)}  # two folders of one name
    (run, *_) = content.values()
    assert run["training_resolution"] == 24
    assert run["over_training_resolution"]["test"]["24"] == 1
    medians = {
        n: summary["relative_l1_median_percent"]["normalized"]
        for n, summary in run["errors"]["test"].items()
    }
    assert medians.keys() == {"16", "24", "32"}
    assert medians["32"] / medians["24"] == run["over_training_resolution"]["test"]["32"]
    assert plot.stat().st_size > 0
    assert spectra.stat().st_size > 0
    assert cno("evaluate", run_folder, twin, "--save", tmp_path / "all.nc").code == 2


def test_what_could_not_be_kept_is_refused_before_the_work(cno, run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcno.runs.evaluate.evaluate_runs", lambda *_: pytest.fail("worked"))
    refused = {
        ("--plot", "x.foo"): ".png",
        ("--spectra", tmp_path / "no" / "s.png"): "make that folder",
        ("--json", tmp_path / "no" / "r.json"): "make that folder",
        ("--json", tmp_path): "is a folder",
        ("--save", tmp_path / "samples.txt"): ".nc",
        ("--resolutions", "16,32", "--spectra", "s.png"): "add 24",
        ("--resolutions", "16,32", "--plot", "p.png"): "add 24",
    }
    for words, remedy in refused.items():
        outcome = cno("evaluate", run_folder, *words)
        assert outcome.code == 2
        assert remedy in outcome.err
