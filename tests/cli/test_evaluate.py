import json

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
