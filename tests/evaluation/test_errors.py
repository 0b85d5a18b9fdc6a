import pytest
import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.evaluation.errors import channel_errors, sample_errors, summary
from torchcno.grids import Grid

GRID = Grid((8, 8), "inclusive")


def fields(outputs: torch.Tensor) -> Fields:
    return Fields(torch.zeros(len(outputs), 1, 8, 8), outputs, GRID)


def test_normalised_and_physical_errors_of_a_constant_offset():
    # Values from −1 to 3 are ṽ = (v + 1) / 4: v = 1 is ṽ = 0.5, and an offset of 0.2 is 0.05.
    truth = fields(torch.ones(3, 1, 8, 8))
    normalization = Normalization(0.0, 1.0, -1.0, 3.0)
    errors = sample_errors(torch.full((3, 1, 8, 8), 1.2), truth, normalization)
    for metric in ("relative_l1", "relative_l2", "relative_h1"):
        assert errors[metric]["physical"].tolist() == pytest.approx([0.2] * 3)
        assert errors[metric]["normalized"].tolist() == pytest.approx([0.1] * 3)


def test_statistics_of_known_errors():
    truth = fields(torch.ones(101, 1, 8, 8))
    offsets = torch.arange(101.0)[torch.randperm(101)] / 100
    prediction = truth.outputs + offsets[:, None, None, None] ** 2
    table = summary(sample_errors(prediction, truth, Normalization.identity()))
    expected = {"median": 25.0, "mean": 33.5, "q05": 0.25, "q25": 6.25, "q75": 56.25, "q95": 90.25}
    for name, percent in expected.items():
        row = table[f"relative_l1_{name}_percent"]
        assert row["physical"] == pytest.approx(percent, rel=1e-4)
        assert row["normalized"] == pytest.approx(percent, rel=1e-4)
    assert {"relative_l2_median_percent", "relative_h1_mean_percent"} <= table.keys()


def test_where_outputs_do_not_count_both_fields_are_one():
    # The left half does not count: the prediction's nonsense there is gone, and the truth's 3 is 1.
    truth = fields(torch.full((1, 1, 8, 8), 3.0))
    prediction = truth.outputs + 0.5
    prediction[..., :4] = 1e6
    counts = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    counts[..., 4:] = True
    errors = sample_errors(prediction, truth, Normalization.identity(), lambda inputs: counts)
    assert errors["relative_l1"]["physical"].item() == pytest.approx(0.5 / (3 + 1))


def test_predictions_at_another_resolution_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 1, 16, 16\).*\(1, 1, 8, 8\)"):
        sample_errors(
            torch.ones(1, 1, 16, 16), fields(torch.ones(1, 1, 8, 8)), Normalization.identity()
        )


def test_errors_per_channel_do_not_mix_units():
    torch.manual_seed(0)
    units = torch.tensor([1.0, 1e5]).reshape(2, 1, 1)
    truth = torch.rand(4, 2, 8, 8) + 1
    grid = Grid((8, 8), "periodic")
    data = Fields(truth, units * truth, grid)
    prediction = units * truth * torch.tensor([1.5, 1.01]).reshape(2, 1, 1)
    both = channel_errors(prediction, data, Normalization.fit(data, "symmetric"))
    for one, factor in zip(both, (0.5, 0.01), strict=True):
        for space in ("normalized", "physical"):
            expected = torch.full((4,), factor, dtype=torch.float64)
            torch.testing.assert_close(one["relative_l1"][space], expected, rtol=1e-4, atol=0)
