"""Trajectories are picked, divided and paired in time without being mixed up."""

import pytest
import torch

from torchcno import Grid, Trajectories

GRID = Grid((4, 6), "periodic")
TIMES = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.5], dtype=torch.float64)


@pytest.fixture
def numbered() -> Trajectories:
    """Sample i at time j is 10 i + j everywhere; its parameter is i."""
    states = 10 * torch.arange(8.0)[:, None] + torch.arange(5.0)
    states = states[:, :, None, None, None].expand(8, 5, 2, 4, 6)
    return Trajectories(states, TIMES, GRID, ("u", "v"), torch.arange(8.0)[:, None], ("nu",))


def test_a_part_keeps_samples_with_their_parameters(numbered):
    for part in (numbered[2:4], numbered[[2, 3]], numbered[torch.tensor([2, 3])]):
        assert isinstance(part, Trajectories)
        assert part.states[:, 0, 0, 0, 0].tolist() == [20.0, 30.0]
        assert part.parameters[:, 0].tolist() == [2.0, 3.0]
        assert (part.names, part.grid) == (numbered.names, GRID)
    assert numbered[3][:, 0, 0, 0].tolist() == [30.0, 31.0, 32.0, 33.0, 34.0]
    assert (len(numbered), numbered.channels) == (8, 2)
    assert torch.equal(torch.cat([b.states for b in numbered.blocks(3)]), numbered.states)


def test_a_split_has_every_trajectory_once_and_is_its_seeds(numbered):
    parts = numbered.split(5, 2, 1, seed=3)
    values = torch.cat([part.parameters[:, 0] for part in parts])
    assert sorted(values.tolist()) == list(range(8))
    for part in parts:
        assert torch.equal(part.states[:, 0, 0, 0, 0], 10 * part.parameters[:, 0])
    assert torch.equal(numbered.split(5, seed=3)[0].states, parts[0].states)


def test_pairs_cover_each_pair_of_times_once(numbered):
    expected = {(i, j) for i in range(5) for j in range(i + 1, 5)}
    pairs = [tuple(pair) for pair in numbered.pairs().tolist()]
    assert len(pairs) == len(expected)
    assert set(pairs) == expected
    assert {tuple(p) for p in numbered.pairs(1).tolist()} == {(i, i + 1) for i in range(4)}
    with_itself = [tuple(p) for p in numbered.pairs(range(5)).tolist()]
    assert len(with_itself) == 15
    assert set(with_itself) == expected | {(i, i) for i in range(5)}


def test_lead_times_add_up(numbered):
    pairs = numbered.pairs()
    leads = dict(zip(map(tuple, pairs.tolist()), numbered.lead_times(pairs).tolist(), strict=True))
    for i, j in leads:
        for k in range(j + 1, 5):
            assert leads[i, j] + leads[j, k] == pytest.approx(leads[i, k], abs=1e-15)


@pytest.mark.parametrize("leads", [[], [5], [-1], [1, 1]])
def test_leads_that_do_not_fit_are_refused(numbered, leads):
    with pytest.raises(ValueError, match="steps, 0 to 4"):
        numbered.pairs(leads)


def test_fields_are_the_map_between_two_times(numbered):
    fields = numbered.as_fields(1, -1)
    assert torch.equal(fields.inputs, numbered.at(1))
    assert torch.equal(fields.outputs, numbered.states[:, 4])
    assert fields.grid == GRID
    assert fields.input_names == fields.output_names == ("u", "v")


def test_only_equal_steps_have_a_step(numbered):
    assert not numbered.is_uniform
    with pytest.raises(ValueError, match="steps in time differ"):
        _ = numbered.step
    some = numbered.select_times(slice(0, 3))
    assert some.is_uniform
    assert some.step == pytest.approx(0.1)
    times = torch.arange(1000, dtype=torch.float32) * 0.1  # rounded, as files have them
    assert Trajectories(torch.zeros(1, 1000, 1, 4, 6), times, GRID).is_uniform


def test_chosen_times_keep_their_states(numbered):
    chosen = numbered.select_times([0, 2, -1])
    assert chosen.times.tolist() == [0.0, 0.2, 0.5]
    assert torch.equal(chosen.states, numbered.states[:, [0, 2, 4]])
    with pytest.raises(ValueError, match="do not increase"):
        numbered.select_times([2, 1])
    with pytest.raises(ValueError, match="there is no time 5"):
        numbered.at(5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"times": [0, 1, 1, 2, 3]}, "1 is followed by 1; sort them"),
        ({"times": [0, 1]}, "do not fit 2 times"),
        ({"times": [0, 1, 2, 3, float("nan")]}, "times hold NaN"),
        ({"times": [[0, 1, 2, 3, 4]]}, "one row of numbers"),
        ({"times": [0.0], "states": torch.zeros(8, 1, 2, 4, 6)}, "1 time is no trajectory"),
        ({"states": torch.zeros(8, 5, 4, 6)}, "give \\(sample, time, channel"),
        ({"states": torch.zeros(0, 5, 2, 4, 6)}, "empty"),
        ({"names": ("u",)}, "1 names for 2 channels"),
        ({"parameters": torch.zeros(7, 1)}, "one row per trajectory"),
        ({"parameters": None}, "parameter_names without parameters"),
        ({"parameter_names": ("a", "b")}, "2 parameter_names for 1"),
        ({"parameters": torch.full((8, 1), torch.inf)}, "parameters are NaN or infinite"),
    ],
)
@pytest.mark.usefixtures("as_outside_tests")
def test_what_is_no_trajectory_is_refused(numbered, change, words):
    whole = {key: getattr(numbered, key) for key in numbered.__dataclass_fields__}
    with pytest.raises(ValueError, match=words):
        Trajectories(**(whole | change))


def test_nan_is_named_by_its_sample(numbered):
    states = numbered.states.clone()
    states[5, 1] = torch.nan
    with pytest.raises(ValueError, match="in 1 of 8 trajectories, first in number 5"):
        Trajectories(states, TIMES, GRID)
