import pytest
import torch

from torchcno import load


def test_an_exported_run_predicts_and_is_evaluated_like_a_run(
    cno, run_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    out = tmp_path / "shared"
    outcome = cno("export", run_folder, "--out", out, "--device", "cpu")
    assert outcome.code == 0
    assert "MB; the error of" in outcome.out
    u = torch.randn(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    full, half = load(run_folder).predict(u), load(out).predict(u)
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
    outcome = cno("export", run, "--out", run_folder / out)
    assert outcome.code == 2
    assert message in outcome.err
