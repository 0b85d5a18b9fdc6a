from pathlib import Path
from shutil import copytree

import pytest

from torchcno.disk import write_json
from torchcno.runs import evaluate
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.folder import RunFolder
from torchcno.runs.measurements import RESOLUTIONS, SPECTRA, measure_spectra, read_spectra


@pytest.mark.parametrize("measurement", [RESOLUTIONS, SPECTRA])
def test_a_run_is_measured_on_the_device_that_is_asked_for(
    measurement, tiny_run, tmp_path, monkeypatch
):
    asked = []

    def pick_device(name):
        asked.append(name)
        raise LookupError

    monkeypatch.setattr(evaluate, "pick_device", pick_device)
    for name in ("config.yaml", "result.json", "model.json", "model.safetensors"):
        (tmp_path / name).symlink_to(tiny_run / name)
    with pytest.raises(LookupError):
        measurement.make(tmp_path, "cpu")
    assert asked == ["cpu"]


def test_of_a_run_without_test_errors_nobody_knows_whose_weights_were_measured(tmp_path):
    errors = {"ood": {"relative_l1_median_percent": {"normalized": 2.0}}}
    write_json({"errors": errors}, tmp_path / "result.json")
    assert RunFolder(tmp_path).has_weights(None, 1.0)


def test_a_measurement_is_of_the_weights_that_it_names(tmp_path):
    """Whatever their errors; without a hash, by their errors."""
    errors = {"test": {"relative_l1_median_percent": {"normalized": 2.0}}}
    write_json({"errors": errors, "weights": "abc"}, tmp_path / "result.json")
    folder = RunFolder(tmp_path)
    assert folder.has_weights("abc", 1.0)
    assert not folder.has_weights("abd", 2.0)
    assert folder.has_weights(None, 2.01)
    assert not folder.has_weights(None, 2.1)


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


def test_a_measurement_is_made_once(tiny_run, tmp_path):
    folder = tmp_path / "run"
    copytree(tiny_run, folder)
    SPECTRA.make(folder, "cpu")
    before = (folder / "spectra.npz").stat().st_ino  # a file that is written again is another
    SPECTRA.make(folder, "cpu")
    assert (folder / "spectra.npz").stat().st_ino == before


def test_damage_names_the_file_and_says_why(tiny_run, tmp_path):
    folder = tmp_path / "run"
    copytree(tiny_run, folder)
    assert RunFolder(folder).damage() is None
    assert RunFolder(tmp_path / "nowhere").damage() is None
    (folder / "config.yaml").write_text("train: 3\n")
    assert str(RunFolder(folder).damage()).startswith(f"{folder / 'config.yaml'} cannot be read (")
    bytes_ = bytearray((tiny_run / "errors.npz").read_bytes())
    bytes_[len(bytes_) // 3] ^= 1  # a bit, somewhere in an array
    (folder / "config.yaml").unlink()
    (folder / "errors.npz").write_bytes(bytes_)
    damage = RunFolder(folder).damage()
    assert damage is not None
    assert damage.file == Path(folder, "errors.npz")
