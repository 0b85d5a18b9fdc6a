from collections import Counter
from dataclasses import replace

import pytest

from torchcno.models import MODELS, count_parameters
from torchcno.runs.config import RunConfig
from torchcno.runs.search.space import Space, parameters_of

# Millions of parameters of the smallest and largest configuration that the paper's selection drew
# for any problem at 64² points, from its table of model sizes.
DRAWN = {
    "ffnn": (0.3, 8.2),
    "resnet": (0.1, 10.2),
    "unet": (0.5, 31.0),
    "deeponet": (0.7, 49.2),
    "fno": (0.2, 65.6),
    "cno": (0.5, 26.8),
}


def space_of(model: str, **fields: object) -> Space:
    return Space.of(RunConfig.resolve("poisson", model, "paper"), **fields)


@pytest.mark.parametrize("model", DRAWN)
def test_the_ranges_span_the_sizes_that_the_paper_drew(model):
    space = space_of(model)
    sizes = [
        parameters_of(space.config({name: end(values) for name, values in space.ranges.items()}))
        for end in (min, max)
    ]
    smallest, largest = DRAWN[model]
    assert sizes[0] / 1e6 < smallest + 0.1
    assert sizes[1] / 1e6 > largest - 0.06


@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_be_searched(model):
    space = space_of(model)
    config = space.config(space.draw(seed=1, number=2))
    assert RunConfig.from_tree(config.to_tree()) == config


def test_parameters_are_counted_as_those_of_the_built_network():
    config = RunConfig.resolve("poisson", "fno")
    assert parameters_of(config) == count_parameters(MODELS["fno"](config.architecture)).entries


def test_a_draw_depends_on_seed_and_number_alone():
    space = space_of("deeponet")
    forwards = [space.draw(0, number) for number in range(20)]
    assert [space.draw(0, number) for number in reversed(range(20))] == forwards[::-1]
    assert [space.draw(1, number) for number in range(20)] != forwards


def test_draws_are_uniform_over_what_counts():
    """Four widths of five fit the budget: each is a quarter of the draws, within five sigma."""
    base = RunConfig.resolve("poisson", "ffnn", "paper")
    widths = (32, 64, 128, 256, 512)
    space = Space(base, {"model.width": widths}, max_parameters=4 * 10**6)
    n = 400
    counts = Counter(space.draw(seed, number=seed % 4)["model.width"] for seed in range(n))
    assert set(counts) == set(widths[:-1])
    sigma = (n * 0.25 * 0.75) ** 0.5
    assert all(abs(count - n / 4) < 5 * sigma for count in counts.values())


def test_no_configuration_is_drawn_twice():
    base = RunConfig.resolve("poisson", "ffnn", "paper")
    ranges = {"model.width": (32, 64, 512), "model.layers": (4, 8)}
    space = Space(base, ranges, max_parameters=4 * 10**6)  # not of width 512
    drawn = {tuple(space.draw(0, number).values()) for number in range(4)}
    assert drawn == {(width, layers) for width in (32, 64) for layers in (4, 8)}
    assert (space.count(3), space.count(30)) == (3, 4)
    with pytest.raises(ValueError, match="no more than 4 valid configurations"):
        space.draw(0, 4)


def test_what_is_counted_can_be_drawn_however_rare():
    base = RunConfig.resolve("poisson", "ffnn", "paper")
    ranges = {"model.width": (8, *range(512, 1536)), "model.layers": (4,)}
    space = Space(base, ranges, max_parameters=10**6)
    assert space.count(30) == 1
    assert all(space.draw(seed, 0)["model.width"] == 8 for seed in range(3))


def test_fixed_fields_keep_the_values_of_the_base():
    base = RunConfig.resolve("poisson", "unet", "paper")
    base = replace(base, architecture=replace(base.architecture, channels=5))
    space = Space.of(base, {"train.batch_size": (4, 8)}, fixed=("model.channels",))
    config = space.config(space.draw(0, 0))
    assert config.architecture.channels == 5
    assert config.train.batch_size in (4, 8)


def test_a_schedule_without_steps_has_no_gamma_to_search():
    assert "train.gamma" in space_of("unet").ranges
    assert "train.gamma" not in Space.of(RunConfig.resolve("poisson", "unet", "best")).ranges


def test_rates_of_adamw_are_not_searched_for_another_optimiser():
    muon = RunConfig.resolve("wave", "cno", "best")
    assert muon.train.optimizer == "muon"
    assert "train.learning_rate" not in Space.of(muon).ranges
    assert "train.learning_rate" in Space.of(muon, {"train.learning_rate": (2e-3, 4e-3)}).ranges
    assert "train.learning_rate" in space_of("cno").ranges
