import pytest
import torch
import xarray

from torchcno.metrics import relative_l1
from torchcno.runs.config import read_tree, write_tree
from torchcno.runs.evaluate import evaluate_run, save_evaluations
from torchcno.runs.operator import TrainedOperator
from torchcno.spectral import resample


def test_predictions_on_two_grids_are_the_same_function(tiny_run):
    fine, coarse = evaluate_run(tiny_run, ["test"], [48, 24], samples=3)
    assert (fine.resolution, coarse.resolution) == (48, 24)
    # K = 4 modes, so that both grids hold the same inputs; what the network adds is on 24².
    down = resample(fine.prediction.double(), (24, 24), "inclusive").float()
    torch.testing.assert_close(down, coarse.prediction, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "expected"), [("32", ("highest", False)), ("fp16-mixed", ("high", True))]
)
def test_a_run_is_evaluated_in_the_arithmetic_of_its_training(
    tiny_run, tmp_path, monkeypatch, precision, expected
):
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).symlink_to(tiny_run / name)
    tree = read_tree(tiny_run / "config.yaml")
    tree["train"]["precision"] = precision
    write_tree(tree, tmp_path / "config.yaml")
    seen, forward = [], TrainedOperator.forward

    def watched(operator, u, *conditions):
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return forward(operator, u, *conditions)

    monkeypatch.setattr(TrainedOperator, "forward", watched)
    evaluate_run(tmp_path, ["test"], [24, 12], samples=2)
    assert seen == [expected] * 2


def test_a_saved_evaluation_holds_fields_and_errors(tiny_run, tmp_path):
    path = tmp_path / "errors.nc"
    evaluations = evaluate_run(tiny_run, ["test", "ood"], samples=4)
    save_evaluations(evaluations, path)
    for evaluation in evaluations:
        with xarray.open_dataset(path, group=f"{evaluation.split}/24", engine="h5netcdf") as saved:
            assert saved["prediction"].dims == ("sample", "output_channel", "y", "x")
            prediction, output = (
                torch.from_numpy(saved[name].values).double() for name in ("prediction", "output")
            )
            stored = torch.from_numpy(saved["relative_l1_physical"].values)
        torch.testing.assert_close(relative_l1(prediction, output), stored)
    assert list(tmp_path.iterdir()) == [path]
