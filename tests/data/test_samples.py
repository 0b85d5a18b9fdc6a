"""A sample is a function of its number."""

import dataclasses
import itertools
import json

import pytest
import torch

from torchcno.data.samples import Samples


def test_no_two_samples_of_a_set_share_their_seed(toy):
    # Steps of one odd number visit all 2³² seeds that torch tells apart before any comes again.
    seeds = [Samples(toy, "train", 16).sample_seed(i) for i in range(50)]
    steps = {(b - a) % 2**32 for a, b in itertools.pairwise(seeds)}
    assert len(steps) == 1
    assert steps.pop() % 2 == 1


def test_problem_split_seed_and_number_each_change_the_randomness(toy):
    other = type("Other", (type(toy),), {"name": "other"})()
    made = [
        Samples(toy, "train", 16).make([0]),
        Samples(other, "train", 16).make([0]),
        Samples(toy, "test", 16).make([0]),
        Samples(toy, "train", 16, seed=1).make([0]),
        Samples(toy, "train", 16).make([1]),
    ]
    assert len({inputs.mean(-1).abs().sum().item() for inputs, _ in made}) == len(made)


def test_resolution_and_constants_leave_the_randomness(toy):
    # The same functions on another grid, and the same draws under another constant.
    (u, v), (u32, _) = (Samples(toy, "train", n).make(range(3)) for n in (16, 32))
    assert torch.allclose(u32[..., ::2, ::2], u, atol=1e-6)
    _, w = Samples(dataclasses.replace(toy, a=4.0), "train", 16).make(range(3))
    assert torch.equal(w, 2 * v)


def test_the_recipe_holds_every_constant_of_the_split(toy):
    recipe = json.loads(Samples(toy, "ood", 16).recipe)
    assert recipe == {"K": 5, "a": 2.0, "dimension": 2, "solver_grid": [16, 16]}


def test_a_constant_that_the_split_replaces_does_not_make_another_recipe(toy):
    other = dataclasses.replace(toy, K=4)
    assert not Samples(other, "train", 16).is_default
    assert Samples(other, "ood", 16).is_default
    assert not Samples(toy, "train", 16, seed=1).is_default


def test_a_solution_that_blew_up_is_an_error_that_names_the_sample(toy):
    with pytest.raises(ValueError, match=r"sample 7 of toy is not finite.*1e\+300"):
        Samples(dataclasses.replace(toy, a=1e300), "train", 16).make([7])


def test_an_unknown_split_is_an_error(toy):
    with pytest.raises(ValueError, match="unknown split 'trian'; did you mean 'train'"):
        Samples(toy, "trian", 16)
