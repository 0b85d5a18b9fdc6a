from dataclasses import dataclass
from typing import Literal

import pytest
import yaml

from torchcno.models import MODELS
from torchcno.operators.filters import Ideal, Nearest, WindowedSinc
from torchcno.problems import PROBLEMS
from torchcno.runs.config import RunConfig
from torchcno.runs.plain import from_plain, to_plain
from torchcno.runs.presets import model_config
from torchcno.training import PRESETS, Recipe


@dataclass(frozen=True)
class Sample:
    rate: float = 0.5
    count: int = 3
    limit: float | None = None
    shape: tuple[int, ...] = (1, 2)
    extent: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    mode: Literal["fast", "slow"] = "fast"
    active: bool = True
    filter: WindowedSinc | Ideal | Nearest = Ideal()  # noqa: RUF009


def through_yaml(config):
    return from_plain(type(config), yaml.safe_load(yaml.safe_dump(to_plain(config))), "config")


PLANE = [name for name, problem in PROBLEMS.items() if len(problem().extent) == 2]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("problem", PLANE)
def test_every_model_configuration_survives_its_file(model, problem):
    config = model_config(model, problem)
    assert through_yaml(config) == config


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_survives_its_file(problem):
    for split in ("train", "ood"):
        config = PROBLEMS[problem]().for_split(split)
        assert through_yaml(config) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_every_recipe_survives_its_file(preset):
    assert through_yaml(PRESETS[preset]) == PRESETS[preset]


def test_a_field_of_several_dataclasses_comes_back_as_the_one_it_was():
    for filter in (WindowedSinc(taps=8), Ideal(), Nearest()):
        assert through_yaml(Sample(filter=filter)).filter == filter
    assert from_plain(Sample, {"filter": "ideal"}, "").filter == Ideal()


def test_numbers_are_read_as_yaml_writes_them():
    text = "{rate: 1e-3, limit: 2, shape: [4, 4], extent: [[0, 2]]}"
    sample = from_plain(Sample, yaml.safe_load(text), "config")
    assert sample == Sample(rate=1e-3, limit=2.0, shape=(4, 4), extent=((0.0, 2.0),))


def test_what_is_left_out_comes_from_the_base():
    base = Sample(rate=2.0, count=7)
    assert from_plain(Sample, {"count": 1}, "config", base) == Sample(rate=2.0, count=1)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"cuont": 1}, r"config\.cuont is unknown; did you mean 'count'\?"),
        ({"count": "many"}, r"config\.count is 'many'; give a whole number"),
        ({"count": True}, r"config\.count is True; give a whole number"),
        ({"rate": "fast"}, r"config\.rate is 'fast'; give a number"),
        ({"limit": "none"}, r"config\.limit is 'none'; give a number or null"),
        ({"mode": "fats"}, r"config\.mode is 'fats'; give one of 'fast', 'slow'"),
        ({"shape": 4}, r"config\.shape is 4; give a list"),
        ({"filter": "idael"}, r"unknown config\.filter 'idael'; did you mean 'ideal'\?"),
        ({"filter": {"kind": "ideal", "taps": 3}}, r"config\.filter\.taps is unknown"),
        ([1, 2], r"config is \[1, 2\]; give its fields"),
    ],
)
def test_a_wrong_entry_is_named_with_its_remedy(tree, message):
    with pytest.raises(ValueError, match=message):
        from_plain(Sample, tree, "config")


def test_a_recipe_is_checked_by_its_own_rules_too():
    with pytest.raises(ValueError, match="epochs is 0"):
        from_plain(Recipe, {"epochs": 0}, "train")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"unknown problem \['poisson'\]; did you mean"):
        RunConfig.from_tree({"problem": {"name": ["poisson"]}, "model": "cno"})
