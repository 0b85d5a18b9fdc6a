import pytest

from torchcno.experiments import evaluate
from torchcno.experiments.measurements import RESOLUTIONS, SPECTRA


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
