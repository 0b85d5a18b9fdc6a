import pytest
import torch
from torch import Tensor

from torchcno.models import MODELS
from torchcno.problems import PROBLEMS
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.runs.choose import choose_network
from torchcno.runs.config import RunConfig
from torchcno.runs.presets import build_model, model_config, parameter_count, training_row
from torchcno.training import PRESETS, Recipe
from torchcno.training.augmentation import GROUPS


@pytest.mark.parametrize("model", MODELS)
def test_fields_of_the_problem_reach_the_model(model):
    for name, problem in PROBLEMS.items():
        dimensions = getattr(MODELS[model].Config, "DIMENSIONS", (1, 2, 3))
        if len(problem().extent) not in dimensions:
            with pytest.raises(ValueError, match="for no grid of this network"):
                model_config(model, name)
            continue
        config = model_config(model, name)
        assert (config.in_channels, config.out_channels) == problem().channels
        assert config.size == problem().grid(problem.resolution).shape


@pytest.mark.parametrize("model", MODELS)
def test_the_counter_example_borrows_the_navier_stokes_row(model):
    assert model_config(model, "vorticity") == model_config(model, "navier-stokes")


def test_presets_differ_in_the_boundary():
    assert model_config("cno", "navier-stokes", "paper").boundary == "zero"
    assert model_config("cno", "navier-stokes", "best").boundary == "periodic"
    for name, problem in PROBLEMS.items():
        assert model_config("cno", name, "best").layout == problem.layout


def shift(fields: Tensor, layout: str) -> Tensor:
    """The fields moved by a quarter of every axis; both ends of an inclusive axis are one point."""
    inclusive = layout == "inclusive"
    for axis in range(2, fields.ndim):
        ring = fields.narrow(axis, 0, fields.shape[axis] - inclusive)
        fields = ring.roll(ring.shape[axis] // 4, axis)
        if inclusive:
            fields = torch.cat([fields, fields.narrow(axis, 0, 1)], axis)
    return fields


CHEAPER = {
    "burgers": {"N": 64, "nu": 1e-2, "T": 0.2},
    "navier-stokes": {"N": 32, "T": 0.2},
    "taylor-green": {"N": 8, "T": 0.1},
    "vorticity": {"T": 5.0, "k_max": 15, "N": 32},
}


@pytest.mark.parametrize("name", [n for n in PROBLEMS if PROBLEMS[n].boundary == "periodic"])
def test_networks_are_periodic_where_shifted_inputs_have_shifted_outputs(name):
    problem = PROBLEMS[name](**CHEAPER.get(name, {}))
    u = problem.sample_inputs(problem.solver_grid(32), 1, torch.Generator().manual_seed(0))
    v = problem.solve(u)
    difference = (problem.solve(shift(u, problem.layout)) - shift(v, problem.layout)).abs().max()
    commutes = bool(difference < 1e-9 * v.abs().max())
    assert problem.homogeneous == commutes
    assert (model_config("cno", problem, "best").boundary == "periodic") == commutes


def test_what_was_found_better_is_of_best_and_of_the_problem_itself():
    found = {"optimizer": "muon", "augmentation": "odd-reflections"}
    assert found.items() <= training_row("cno", "navier-stokes", "best").items()
    assert training_row("cno-no-filters", "wave", "best") == training_row("cno", "wave", "best")
    # Vorticity has the network of navier-stokes, and not its symmetries.
    assert "augmentation" not in training_row("cno", "vorticity", "best")
    assert training_row("fno", "vorticity", "best") == training_row("fno", "vorticity", "paper")


def test_a_problem_of_two_components_makes_models_of_two_channels():
    model = build_model("cno", NavierStokes(components="uv"), width=4, neck_blocks=1, skip_blocks=1)
    assert (model.config.in_channels, model.config.out_channels) == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("con", "poisson", "paper"), "unknown model 'con'; did you mean 'cno'"),
        (("cno", "posson", "paper"), "unknown problem 'posson'; did you mean 'poisson'"),
        (("cno", "poisson", "papre"), "unknown preset 'papre'; did you mean 'paper'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_model(*arguments)


def test_a_wrong_field_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"model\.widht is unknown; did you mean 'width'"):
        build_model("cno", widht=3)


@pytest.mark.parametrize("model", MODELS)
def test_best_takes_the_largest_group_that_the_problem_has(model):
    for name, problem in PROBLEMS.items():
        row = {"augmentation": "none", **training_row(model, name, "best")}
        space = torch.Size(problem().grid(problem.resolution).shape)
        channels = max(problem().channels)
        sizes = {key: len(group(space, channels)) for key, group in GROUPS.items()
                 if key in problem().symmetries}  # fmt: skip
        assert sizes.get(row["augmentation"], 1) == max(sizes.values(), default=1)
        assert row.get("symmetric_predictions", False) == bool(sizes)


def test_a_wind_off_the_diagonal_takes_the_symmetry_from_the_recipe():
    problem = PROBLEMS["smooth-transport"](velocity=(0.2, 0.1))
    assert "augmentation" not in training_row("fno", problem, "best")
    assert training_row("fno", "smooth-transport", "best")["augmentation"] == "exchange"


@pytest.mark.parametrize("model", ["cno", "fno", "unet"])
def test_a_problem_in_space_has_the_sizes_that_its_samples_would_be_given(model):
    problem = PROBLEMS["taylor-green"]()
    grid = problem.grid(problem.resolution)
    chosen = choose_network(model, problem.samples["train"], grid, problem.channels)
    preset = model_config(model, problem, "best")
    assert parameter_count(model, preset).reals <= 1.2 * parameter_count(model, chosen).reals


def test_an_entry_makes_a_preset(monkeypatch):
    monkeypatch.setitem(PRESETS, "short", Recipe(epochs=3, schedule="cosine"))
    train = RunConfig.resolve("allen-cahn", "cno", "short").train
    assert (train.epochs, train.schedule) == (3, "cosine")
    with pytest.raises(ValueError, match="unknown preset 'sort'; did you mean 'short'"):
        RunConfig.resolve("allen-cahn", "cno", "sort")
