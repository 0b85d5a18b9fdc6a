"""Samples are picked, divided and masked without being mixed up."""

import pytest
import torch
from torch.utils.data import DataLoader

from torchcno import Fields, Grid
from torchcno.data.normalization import Normalization
from torchcno.data.statistics import fields_statistics
from torchcno.evaluation.errors import sample_errors

GRID = Grid((4, 6), ("inclusive", "periodic"))


@pytest.fixture
def numbered() -> Fields:
    """Sample i is i everywhere, and its output −i."""
    u = torch.arange(1.0, 11.0).reshape(10, 1, 1, 1).expand(10, 2, 4, 6)
    return Fields(u, -u[:, :1], GRID, input_names=("a", "b"), output_names=("v",))


def test_a_part_is_fields_and_a_sample_is_a_pair(numbered):
    for part in (numbered[2:4], numbered[[2, 3]], numbered[torch.tensor([2, 3])]):
        assert isinstance(part, Fields)
        assert part.grid == GRID
        assert part.input_names == ("a", "b")
        assert part.outputs.unique().tolist() == [-4.0, -3.0]
    u, v = numbered[3]
    assert (u.unique().item(), v.unique().item()) == (4.0, -4.0)
    inputs, outputs = numbered[:3]
    assert torch.equal(inputs[:, :1], -outputs)
    again = Fields(*numbered[:3], GRID)
    assert torch.equal(again.inputs, inputs)
    batches = list(DataLoader(numbered, batch_size=5))
    assert torch.equal(torch.cat([u for u, _ in batches]), numbered.inputs)


def test_a_split_has_every_sample_once_and_is_its_seeds(numbered):
    parts = numbered.split(6, 3, 1, seed=3)
    assert [len(part) for part in parts] == [6, 3, 1]
    values = torch.cat([part.inputs[:, 0, 0, 0] for part in parts])
    assert sorted(values.tolist()) == list(range(1, 11))
    same, other = numbered.split(6, seed=3)[0], numbered.split(6, seed=4)[0]
    assert torch.equal(same.inputs, parts[0].inputs)
    assert not torch.equal(other.inputs, parts[0].inputs)
    assert torch.equal(numbered.split(6, 4, seed=None)[1].inputs, numbered.inputs[6:])


@pytest.mark.parametrize("counts", [(8, 3), (), (0, 5), (2.5,), (True,), (-1,)])
@pytest.mark.usefixtures("as_outside_tests")
def test_a_split_that_cannot_be_is_refused(numbered, counts):
    with pytest.raises(ValueError, match="samples"):
        numbered.split(*counts)


def test_names_that_do_not_fit_are_refused(numbered):
    with pytest.raises(ValueError, match="3 input_names for 2 input channels"):
        Fields(numbered.inputs, numbered.outputs, GRID, input_names=("a", "b", "c"))


class TestMask:
    hole = torch.ones(4, 6, dtype=torch.bool)
    hole[1:3, 2:4] = False

    def test_what_lies_in_a_hole_changes_no_error_and_no_statistic(self, numbered):
        torch.manual_seed(0)
        v, p = torch.rand(2, 10, 1, 4, 6, dtype=torch.float64) + 1
        found = []
        for junk in (0.0, 1e6):
            fields = Fields(numbered.inputs, torch.where(self.hole, v, junk), GRID, self.hole)
            scaling = Normalization.fit(fields, "standard")
            errors = sample_errors(torch.where(self.hole, p, -junk), fields, scaling)
            found.append((fields_statistics(fields)[1], errors))
        assert found[0][0].mean == pytest.approx(found[1][0].mean)
        assert found[0][0].deviation == pytest.approx(found[1][0].deviation)
        for space in ("normalized", "physical"):
            a, b = (errors["relative_l1"][space] for _, errors in found)
            torch.testing.assert_close(a, b)
        inside = self.hole.expand_as(v)
        by_hand = (p - v)[inside].reshape(10, -1).abs().sum(1)
        by_hand = by_hand / v[inside].reshape(10, -1).abs().sum(1)
        torch.testing.assert_close(found[0][1]["relative_l1"]["physical"], by_hand)

    def test_it_goes_with_its_samples(self, numbered):
        mask = torch.rand(10, 1, 4, 6) < 0.5
        mask[:, :, 0, 0] = True
        fields = Fields(numbered.inputs, numbered.outputs, GRID, mask)
        order = [7, 2, 5]
        assert torch.equal(fields[order].mask, mask[order])

    def test_one_that_does_not_fit_is_refused(self, numbered):
        for mask, remedy in (
            (torch.ones(3, 3, dtype=torch.bool), "does not extend"),
            (torch.ones(4, 6), "True where outputs count"),
            (torch.zeros(4, 6, dtype=torch.bool), "leaves nothing"),
        ):
            with pytest.raises(ValueError, match=remedy):
                Fields(numbered.inputs, numbered.outputs, GRID, mask)


def test_each_axis_is_resampled_by_its_own_layout():
    def sample(shape):
        y, x = Grid(shape, GRID.layout).mesh()
        return (torch.sin(torch.pi * y) * torch.cos(2 * torch.pi * x) + y).float()[None, None]

    fields = Fields(sample((9, 8)), sample((9, 8)), Grid((9, 8), GRID.layout)).resampled(17, 12)
    torch.testing.assert_close(fields.inputs, sample((17, 12)), atol=1e-6, rtol=0)
