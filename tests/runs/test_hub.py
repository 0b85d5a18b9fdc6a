"""The layout of the Hugging Face Hub."""

import json
import sys
import types

import pytest
import torch
import yaml
from safetensors import safe_open

from torchcno import TrainedOperator, load
from torchcno.runs.folder import RunFolder
from torchcno.runs.hub import export_hub, find_uploader, read_errors


def test_an_operator_comes_back_as_it_was(tiny_run, tmp_path):
    operator = load(tiny_run)
    operator.save_pretrained(tmp_path / "hub")
    assert {path.name for path in (tmp_path / "hub").iterdir()} == {
        "config.json", "model.safetensors", "README.md", "checksums.jsonl", "trust.npz",
    }  # fmt: skip
    again = TrainedOperator.from_pretrained(tmp_path / "hub")
    assert again.description() == operator.description()
    u = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(again.apply_to(u), operator.apply_to(u), rtol=0, atol=0)


def test_the_files_are_what_the_hub_reads(tiny_run, tmp_path):
    export_hub(tiny_run, tmp_path / "hub")
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert (config["model_type"], config["model"]) == ("torchcno", "cno")
    with safe_open(tmp_path / "hub" / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == load(tiny_run).network.state_dict().keys()
    front, body = (tmp_path / "hub" / "README.md").read_text().split("---\n")[1:]
    head = yaml.safe_load(front)
    assert head["library_name"] == "torchcno"
    assert "poisson" in head["tags"]
    assert RunFolder(tmp_path / "hub").hash_weights() in body


def test_the_card_has_the_errors_of_the_run(tiny_run, tmp_path):
    errors = read_errors(RunFolder(tiny_run))
    assert errors.keys() == {"test", "ood"}
    card = (export_hub(tiny_run, tmp_path / "hub") / "README.md").read_text()
    for split, error in errors.items():
        assert f"| {split} | {error:.3g} % |" in card
    unmeasured = load(tiny_run).save_pretrained(tmp_path / "other") / "README.md"
    assert "No errors are noted" in unmeasured.read_text()


def test_the_card_states_data_bands_and_limits(tiny_run, tmp_path):
    operator = load(tiny_run)
    card = (export_hub(tiny_run, tmp_path / "hub") / "README.md").read_text()
    bands = operator.trust.bands
    for confidence in (0.5, 0.9, 0.99):
        bound, scaled = (
            100 * bands.bound_relative(confidence, space) for space in ("physical", "normalized")
        )
        assert f"| {confidence:g} | {bound:.3g} % | {scaled:.3g} % |" in card
    assert "8 training samples, 128 for validation" in card
    assert f"values from {operator.range.low[0]:.3g} to {operator.range.high[0]:.3g}" in card
    assert "must not be used" in card
    operator.trust = None
    plain = (operator.save_pretrained(tmp_path / "plain") / "README.md").read_text()
    assert "No error bands were calibrated" in plain


def test_nothing_is_written_over_a_run(tiny_run, tmp_path):
    before = {path.name for path in tiny_run.iterdir()}
    with pytest.raises(ValueError, match="holds a run; choose another --out"):
        export_hub(tiny_run, tiny_run)
    assert {path.name for path in tiny_run.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file; choose another --out"):
        export_hub(tiny_run, tmp_path / "file")


def test_an_upload_makes_the_repository_and_sends_the_folder(monkeypatch, tmp_path):
    calls = []

    class HfApi:
        def create_repo(self, name, exist_ok):
            calls.append((name, exist_ok))

        def upload_folder(self, *, folder_path, repo_id):
            calls.append((folder_path, repo_id))
            return f"https://huggingface.co/{repo_id}"

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=HfApi))
    assert find_uploader()(tmp_path, "me/it") == "https://huggingface.co/me/it"
    assert calls == [("me/it", True), (str(tmp_path), "me/it")]


def test_without_huggingface_hub_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'torchcno\[hub\]'"):
        find_uploader()
