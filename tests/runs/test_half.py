"""Weights in half precision."""

import json
import re
import shutil

import pytest
import torch

from torchcno import Grid, load, load_pretrained, train_on, train_run
from torchcno.data.fields import Fields
from torchcno.runs import half, pretrained
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.folder import read_config
from torchcno.runs.half import TOLERANCE, export_half, halved
from torchcno.training.checkpoint import load_tensors, save_tensors

GRID = Grid((24, 24), "inclusive")


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    """The folder of an exported run, all its weights rounded, and what the export measured."""
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(half, "SMALL", 1)
        return folder, export_half(tiny_run, folder, device="cpu")


def test_small_weights_stay_as_they_are():
    network = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 99))
    types = {name: tensor.dtype for name, tensor in halved(network).items()}
    assert [name for name, dtype in types.items() if dtype == torch.float16] == ["0.weight"]


def test_weights_are_rounded_and_statistics_are_not(tiny_run, exported):
    full, _ = load_tensors(tiny_run / "model.safetensors")
    found, _ = load_tensors(exported[0] / "model.safetensors")
    assert found.keys() == full.keys()
    for name, tensor in full.items():
        rounded = name.endswith((".weight", ".bias"))
        assert found[name].dtype == (torch.float16 if rounded else tensor.dtype)
        torch.testing.assert_close(found[name], tensor.half() if rounded else tensor)
    assert {name.rsplit(".")[-1] for name, t in found.items() if t.dtype != torch.float16} == {
        "running_mean", "running_var", "num_batches_tracked",
    }  # fmt: skip


def test_a_name_will_do(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "WEIGHTS", tiny_run.parent)
    monkeypatch.chdir(tmp_path)
    errors = export_half(tiny_run.name, tmp_path / "copy", device="cpu")
    assert load(tmp_path / "copy").problem == "poisson"
    assert set(errors) == {"test", "ood"}


def test_no_operator_is_exported_over_another(tiny_run, exported, tmp_path):
    other = tmp_path / "run"
    shutil.copytree(tiny_run, other)
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(re.sub(r"(?m)^seed: .*$", "seed: 7", config))
    (other / "checksums.jsonl").unlink()
    with pytest.raises(ValueError, match="holds the operator of another run"):
        export_half(other, exported[0], device="cpu")


def test_no_run_is_trained_over_an_export(tiny_config, exported):
    before = {path: path.read_bytes() for path in exported[0].iterdir() if path.name != ".lock"}
    with pytest.raises(ValueError, match=r"without the run that made it; choose another folder"):
        train_run(tiny_config, exported[0])
    operator, fields = load(exported[0]), Fields(*torch.rand(2, 8, 1, 24, 24), GRID)
    with pytest.raises(ValueError, match=r"without the run that made it; choose another folder"):
        train_on(operator.network, fields, fields, exported[0], recipe=tiny_config.train)
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_loaded_operator_is_the_run_but_for_the_rounding(tiny_run, exported):
    operator, run = load_pretrained(exported[0]), load(tiny_run)
    assert {parameter.dtype for parameter in operator.parameters()} == {torch.float32}
    assert operator.description() == run.description()
    assert not operator.training
    for name, weight in operator.network.state_dict().items():
        torch.testing.assert_close(
            weight, run.network.state_dict()[name], rtol=2.0**-11, atol=2.0**-25
        )


def test_the_errors_are_those_of_the_exported_operator(tiny_run, exported):
    folder, errors = exported
    for which, where in (("full", tiny_run), ("half", folder)):
        for evaluation in evaluate_run(where, device="cpu"):
            expected = evaluation.summary["relative_l1_median_percent"]["normalized"]
            assert errors[evaluation.split][which] == pytest.approx(expected, rel=1e-6)
    assert json.loads((folder / "model.json").read_text())["relative_l1_median_percent"] == errors
    assert errors["test"]["half"] == pytest.approx(errors["test"]["full"], rel=TOLERANCE)
    assert errors["test"]["half"] != errors["test"]["full"]


def test_a_run_that_rounding_spoils_is_refused(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(half, "SMALL", 1)
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    weights, note = load_tensors(run / "model.safetensors")
    name = next(name for name in weights if name.endswith("weight") and weights[name].ndim == 4)
    weights[name] = weights[name] * 1e8  # beyond the largest float16
    save_tensors(run / "model.safetensors", weights, note)
    with pytest.raises(ValueError, match="half precision changes the error on test from"):
        export_half(run, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_an_export_into_another_run_is_refused(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "other")
    before = (tmp_path / "other" / "model.safetensors").stat()
    with pytest.raises(ValueError, match="other holds a run of its own; choose another --out"):
        export_half(tiny_run, tmp_path / "other", device="cpu")
    assert (tmp_path / "other" / "model.safetensors").stat() == before


def test_complex_weights_keep_their_precision(monkeypatch):
    monkeypatch.setattr(half, "SMALL", 1)
    layer = torch.nn.ParameterDict({"real": torch.ones(2), "complex": torch.ones(2) + 0j})
    dtypes = {name: tensor.dtype for name, tensor in halved(layer).items()}
    assert dtypes == {"real": torch.float16, "complex": torch.complex64}


def test_an_export_does_not_say_where_it_was_trained(tiny_run, exported):
    assert read_config(tiny_run).data is not None
    assert read_config(exported[0]).data is None
