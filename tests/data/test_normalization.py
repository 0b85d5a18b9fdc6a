"""Scaling keeps what it says it keeps, channel by channel, and is undone exactly as it was done."""

import pytest
import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import NORMALIZATIONS, Normalization, describe_scaling
from torchcno.data.statistics import RunningStatistics, fields_statistics, find_oddities
from torchcno.grids import Grid

GRID = Grid((8, 8), "periodic")
OFFSETS = torch.tensor([0.0, 1e5]).reshape(2, 1, 1)
SCALES = torch.tensor([1.0, 3e3]).reshape(2, 1, 1)


@pytest.fixture
def train():
    """Two channels, a velocity around zero and a pressure around 1e5."""
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, 150, 2, 8, 8, generator=generator, dtype=torch.float64)
    return Fields(u, OFFSETS + SCALES * v, GRID)


def test_unit_fills_the_unit_interval_by_one_minimum_and_maximum(train):
    constants = Normalization.fit(train)
    for scaled in (
        constants.normalize_inputs(train.inputs),
        constants.normalize_outputs(train.outputs),
    ):
        assert scaled.aminmax() == (0.0, 1.0)


def test_symmetric_keeps_zero_and_signs_and_fills_each_channel(train):
    constants = Normalization.fit(train, "symmetric")
    scaled = constants.normalize_outputs(train.outputs)
    assert scaled.abs().amax((0, 2, 3)).tolist() == [1.0, 1.0]
    assert not constants.normalize_outputs(torch.zeros(1, 2, 8, 8)).any()
    torch.testing.assert_close(constants.normalize_outputs(-train.outputs), -scaled)


def test_standard_has_mean_zero_and_deviation_one_in_each_channel(train):
    scaled = Normalization.fit(train, "standard").normalize_outputs(train.outputs)
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(2).double(), atol=1e-9, rtol=0)
    ones = torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(scaled.std((0, 2, 3), correction=0), ones)


def test_the_rule_keeps_zero_where_a_channel_has_one(train):
    chosen = Normalization.fit(train, "auto").constants("output")
    assert chosen[0] == Normalization.fit(train, "symmetric").constants("output")[0]
    assert chosen[1] == Normalization.fit(train, "standard").constants("output")[1]


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_other_sets_are_scaled_by_the_same_map_and_back(train, name):
    constants = Normalization.fit(train, name)
    other = 3 * train.outputs
    scaled = constants.normalize_outputs(other)
    torch.testing.assert_close(constants.denormalize_outputs(scaled), other)
    for c in range(2):
        alone = constants.for_output(c).normalize_outputs(other[:, c : c + 1])
        torch.testing.assert_close(alone, scaled[:, c : c + 1])


def test_identity_changes_no_bit(train):
    identity = Normalization.identity()
    assert identity == Normalization.fit(train, "none")
    assert torch.equal(identity.normalize_inputs(train.inputs), train.inputs)
    assert torch.equal(identity.denormalize_outputs(train.outputs), train.outputs)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["unit", "symmetric", "standard", "auto"])
def test_constant_or_broken_fields_are_refused(train, name, value):
    inputs = train.inputs.clone()
    inputs[:, :] = value
    with pytest.raises(ValueError, match=r"input.* cannot be scaled"):
        Normalization.fit(Fields(inputs, train.outputs, GRID), name)


def test_constants_that_do_not_pair_up_or_fit_are_refused(train):
    with pytest.raises(ValueError, match="a number each, or one per channel"):
        Normalization((0.0, 0.0), 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"2 channels.*3 constants"):
        Normalization((0.0,) * 3, (1.0,) * 3, 0.0, 1.0).normalize_inputs(train.inputs)


def statistics_of(blocks):
    running = RunningStatistics()
    for block in blocks:
        running.add(block)
    return running.result()


def test_statistics_do_not_depend_on_blocks(train):
    whole = statistics_of([train.outputs])
    for size in (1, 7, 64):
        blocks = statistics_of(train.outputs.split(size))
        assert (blocks.low, blocks.high) == (whole.low, whole.high)
        assert blocks.mean == pytest.approx(whole.mean, rel=1e-12, abs=1e-12)
        assert blocks.deviation == pytest.approx(whole.deviation, rel=1e-12)
    direct = train.outputs.std((0, 2, 3), correction=0).tolist()
    assert whole.deviation == pytest.approx(direct, rel=1e-9)


def test_outliers_and_unlike_channels_are_named(train):
    inputs = train.inputs.clone()
    assert find_oddities(*fields_statistics(Fields(inputs, inputs, GRID))) == []
    (unlike,) = find_oddities(*fields_statistics(train))
    assert "output channel 1 is" in unlike
    assert "times as large as channel 0" in unlike
    inputs[17, 1, 3, 3] = 1e4
    found = find_oddities(*fields_statistics(Fields(inputs, train.inputs, GRID)))
    assert any("sample 17" in one and "input channel 1" in one for one in found)


def test_the_scaling_is_told_in_words():
    scaling = Normalization(0.0, 2.0, (0.0, 1e5, -0.5), (1.0, 100100.0, 1.5))
    assert describe_scaling(scaling) == [
        "inputs: u / 2",
        "output channel 0: as it is",
        "output channel 1: (u - 100000) / 100",
        "output channel 2: (u + 0.5) / 2",
    ]
