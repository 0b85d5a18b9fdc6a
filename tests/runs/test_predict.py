import pytest

from torchcno.runs.predict import write_groups


def test_a_file_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing to write to .*; choose other resolutions"):
        write_groups(tmp_path / "predictions.nc", {})
    assert not list(tmp_path.iterdir())
