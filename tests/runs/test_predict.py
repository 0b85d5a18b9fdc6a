import pytest

from torchcno.runs.folder import RunFolder, load
from torchcno.runs.predict import predict_file, write_groups


def test_a_file_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing to write to .*; choose other resolutions"):
        write_groups(tmp_path / "predictions.nc", {})
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file_of_inputs(tiny_run, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; name a file"):
        predict_file(load(tiny_run), tmp_path, tmp_path / "out.nc")


def test_the_configuration_of_another_program_is_no_run(tmp_path):
    (tmp_path / "config.yaml").write_text("learning_rate: 0.1\n")
    with pytest.raises(ValueError, match=r"is not of a run of torchcno; name"):
        RunFolder(tmp_path).config()
