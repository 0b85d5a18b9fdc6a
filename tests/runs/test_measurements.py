import pytest

from torchcno.disk import write_json
from torchcno.runs import evaluate
from torchcno.runs.folder import RunFolder
from torchcno.runs.measurements import RESOLUTIONS, SPECTRA


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
