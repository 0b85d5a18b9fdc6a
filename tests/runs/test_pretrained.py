"""Trained operators by name: those in the package, and those that a user downloads."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from torchcno import load, load_pretrained
from torchcno.data.fields import Fields
from torchcno.data.samples import Samples
from torchcno.evaluation.errors import sample_errors, summary
from torchcno.runs import pretrained
from torchcno.runs.folder import read_config
from torchcno.runs.half import TOLERANCE

ROOT = Path(__file__).parents[2]
SHIPPED = pretrained.pretrained()
MEGABYTE = 1e6
SLOW = {"airfoil", "navier-stokes", "vorticity"}  # solvers that take a second or more for a sample


@pytest.fixture
def package(tiny_run, tmp_path, monkeypatch):
    """A package with one operator, `tiny`; the data folder is beside it."""
    weights = tmp_path / "package"
    for file in ("config.yaml", "model.json", "model.safetensors"):
        (weights / "tiny").mkdir(parents=True, exist_ok=True)
        shutil.copy(tiny_run / file, weights / "tiny" / file)
    monkeypatch.setattr(pretrained, "WEIGHTS", weights)
    monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
    return weights


@pytest.fixture
def released(package, tmp_path):
    """The file of weights that the package no longer has, but knows of."""
    file = tmp_path / "tiny.safetensors"
    shutil.move(package / "tiny" / "model.safetensors", file)
    content = file.read_bytes()
    entry = {
        "url": "https://example.org/tiny.safetensors",
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    (package / "releases.json").write_text(json.dumps({"tiny": entry}))
    return file


def test_names_and_folders_load_the_same(package, tiny_run):
    u = torch.randn(2, 1, 24, 24)
    for what in ("tiny", tiny_run, str(tiny_run)):
        torch.testing.assert_close(load_pretrained(what).apply_to(u), load(tiny_run).apply_to(u))


def test_a_folder_comes_before_a_name(package, tiny_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_run.parent)
    assert pretrained.find_run("tiny") == Path("tiny")
    monkeypatch.chdir(tmp_path)
    assert pretrained.find_run("tiny") == package / "tiny"


def test_what_to_download_is_said(released, tmp_path):
    target = tmp_path / "data" / "weights" / "tiny" / "model.safetensors"
    with pytest.raises(FileNotFoundError) as raised:
        load_pretrained("tiny")
    assert "https://example.org/tiny.safetensors" in str(raised.value)
    assert str(target) in str(raised.value)
    assert not (tmp_path / "data").exists()


def test_downloaded_weights_are_a_run_folder(released, tiny_run, tmp_path):
    target = tmp_path / "data" / "weights" / "tiny" / "model.safetensors"
    target.parent.mkdir(parents=True)
    shutil.copy(released, target)
    u = torch.randn(2, 1, 24, 24)
    for _ in range(2):
        torch.testing.assert_close(load_pretrained("tiny").apply_to(u), load(tiny_run).apply_to(u))
    assert pretrained.find_run("tiny") == target.parent
    assert read_config(target.parent) == read_config(tiny_run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "bytes, not"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "has the SHA-256"),
    ],
)
def test_another_file_is_refused(released, tmp_path, change, message):
    target = tmp_path / "data" / "weights" / "tiny" / "model.safetensors"
    target.parent.mkdir(parents=True)
    target.write_bytes(change(released.read_bytes()))
    with pytest.raises(ValueError, match=message):
        load_pretrained("tiny")
    assert list(target.parent.iterdir()) == [target]


def test_unknown_names_are_answered_with_what_there_is(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="pretrained operator 'navier'; choose from tiny"):
        load_pretrained("navier")
    monkeypatch.setattr(pretrained, "WEIGHTS", tmp_path / "none")
    with pytest.raises(ValueError, match="no weights come with this build"):
        load_pretrained("navier-stokes")


def test_every_release_has_all_but_its_weights_in_the_package():
    for name, release in pretrained.releases().items():
        assert name in SHIPPED
        assert not (SHIPPED[name] / "model.safetensors").exists()
        assert re.fullmatch("[0-9a-f]{64}", release.sha256)
        assert release.url.startswith("https://")


def test_shipped_weights_are_small():
    size = sum(path.stat().st_size for folder in SHIPPED.values() for path in folder.iterdir())
    assert size <= 20 * MEGABYTE


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_do_what_their_export_measured(name):
    operator, config = load_pretrained(name), read_config(SHIPPED[name])
    assert operator.problem == name
    recorded = json.loads((SHIPPED[name] / "model.json").read_text())["relative_l1_median_percent"]
    for error in recorded.values():
        assert error["half"] == pytest.approx(error["full"], rel=TOLERANCE)
    samples = Samples(config.problem, "test", config.resolution)
    fields = Fields(*samples.make(range(3 if name in SLOW else 9)), samples.grid)
    errors = sample_errors(
        operator.apply_to(fields.inputs), fields, operator.error_scaling, config.problem.mask
    )
    # A few samples' median against that of the whole test set: of that size, not equal to it.
    median = summary(errors)["relative_l1_median_percent"]["normalized"]
    assert 0.5 < median / recorded["test"]["half"] < 2


def test_documents_name_only_weights_that_are_shipped():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {
        name
        for page in pages
        for name in re.findall(r"load_pretrained\(\s*[\"']([\w-]+)[\"']", page.read_text())
    }
    assert named <= SHIPPED.keys()
