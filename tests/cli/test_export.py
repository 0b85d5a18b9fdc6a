import numpy as np
import pytest
import torch

from torchcno import load


def test_an_exported_run_predicts_and_is_evaluated_like_a_run(
    cno, run_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    out = tmp_path / "shared"
    outcome = cno("export", run_folder, "--half", "--out", out, "--device", "cpu")
    assert outcome.code == 0
    assert "MB; the error of" in outcome.out
    u = torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    full, half = load(run_folder).apply_to(u), load(out).apply_to(u)
    torch.testing.assert_close(half, full, rtol=0.02, atol=0.02 * float(full.abs().max()))
    assert cno("evaluate", out, "--split", "test", "--samples", 2, "--device", "cpu").code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    resumed = cno("resume", out)
    assert resumed.code == 2
    assert "to go on from" in resumed.err
    assert "begins again" not in resumed.err
    assert {name: (out / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("", "is the run itself"),
        ("../nowhere", "does not exist; name the"),
        ("model.json/deeper", "cannot be a folder"),
    ],
)
def test_mistakes_are_explained(cno, run_folder, tmp_path, out, message):
    run = tmp_path / "no-run" if "nowhere" in out else run_folder
    outcome = cno("export", run, "--half", "--out", run_folder / out)
    assert outcome.code == 2
    assert message in outcome.err


def test_files_for_other_programs(cno, run_folder, tmp_path):
    outcome = cno("export", run_folder, "--format", "pt2", "--out", tmp_path / "p1.pt2")
    assert outcome.code == 0
    assert "of the largest" in outcome.out
    u = torch.randn(3, 1, 24, 24)
    v = torch.export.load(tmp_path / "p1.pt2").module()(u)
    torch.testing.assert_close(v, load(run_folder).apply_to(u))


def test_a_folder_for_the_hub_is_one_for_predictions(cno, run_folder, tmp_path):
    assert cno("export", run_folder, "--format", "hub", "--out", tmp_path / "hub").code == 0
    np.save(tmp_path / "in.npy", np.ones((1, 1, 24, 24)))
    words = (tmp_path / "in.npy", "--out", tmp_path / "out.npy", "--device", "cpu")
    assert cno("predict", tmp_path / "hub", *words).code == 0
    again = cno("export", tmp_path / "hub", "--format", "pt2", "--out", tmp_path / "x.pt2")
    assert again.code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one of --format onnx"),
        (("--half", "--format", "hub"), "give one of --format onnx"),
        (("--format", "onx"), "unknown format 'onx'; did you mean 'onnx'? choose from hub, onnx"),
        (("--half", "--size", "24,24"), "--size is for --format onnx and pt2"),
        (("--format", "pt2", "--upload", "me/it"), "--upload is for --format hub"),
    ],
)
def test_options_that_do_not_go_together(cno, run_folder, tmp_path, words, message):
    outcome = cno("export", run_folder, *words, "--out", tmp_path / "x.pt2")
    assert outcome.code == 2
    assert message in outcome.err
    assert not list(tmp_path.iterdir())
