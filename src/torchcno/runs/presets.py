"""From names to objects: a problem, and a model with the paper's hyper-parameters for it."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import torch
from torch import nn

from torchcno.models import MODELS, ParameterCount, count_parameters
from torchcno.problems import PROBLEMS
from torchcno.problems.problem import Problem
from torchcno.runs.plain import check_key
from torchcno.selection import select

# The paper trains no model on its counter-example; there the Navier-Stokes rows stand in.
STANDS_IN = {"vorticity": "navier-stokes"}


def boundary_of(problem: Problem, preset: str) -> str:
    """How a convolutional operator treats the edge, by training preset.

    `paper`: with zeros, as the authors' implementation. `best`: periodic where the problem is.
    Networks see fields scaled to [0, 1], whose edge values are not zero: there is no odd boundary
    to honour, and reflecting an odd field evenly puts a kink on the edge.
    """
    periodic = {"paper": False, "best": problem.boundary == "periodic"}
    return "periodic" if select(periodic, preset, "preset") else "zero"


def build_problem(problem: str | Problem) -> Problem:
    """The problem of that name with the paper's constants; a problem is left as it is."""
    return problem if isinstance(problem, Problem) else select(PROBLEMS, problem, "problem")()


def model_class(name: str) -> Any:
    """The class of that name: a module with `Config`, `PAPER` and `PAPER_TRAINING`."""
    return select(MODELS, name, "model")


def model_config(
    name: str, problem: str | Problem = "poisson", preset: str = "paper", **overrides: Any
) -> Any:
    """The configuration of model `name` for `problem`, with the paper's hyper-parameters.

    Channels and size are the problem's, and so are, where a model knows of them, the grid's layout
    and the boundary of the `preset`. `overrides` are fields of the configuration.
    """
    model, problem = model_class(name), build_problem(problem)
    in_channels, out_channels = problem.channels
    of_problem = {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "size": problem.grid(problem.resolution).shape,
        "layout": problem.layout,
        "boundary": boundary_of(problem, preset),
    }
    known = [field.name for field in fields(model.Config)]
    for key in overrides:
        check_key(key, known, "model")
    given = {key: value for key, value in of_problem.items() if key in known}
    return model.Config(**{**given, **paper_row(model.PAPER, problem.name), **overrides})


def build_model(
    name: str, problem: str | Problem = "poisson", preset: str = "paper", **overrides: Any
) -> nn.Module:
    """Model `name` with the paper's hyper-parameters for `problem`; `overrides` are config fields.

    >>> model = build_model("fno", problem="darcy", width=16)
    """
    return model_class(name)(model_config(name, problem, preset, **overrides))


@cache
def parameter_count(name: str, config: Any) -> ParameterCount:
    """How many parameters model `name` has in that configuration, without making them."""
    with torch.device("meta"):
        return count_parameters(model_class(name)(config))


def training_row(model: str, problem: str, preset: str) -> Mapping[str, Any]:
    """What is the model's own in the recipe `preset` for `problem`."""
    own = model_class(model)
    row = paper_row(own.PAPER_TRAINING, problem)
    # A problem that stands in for another has not its symmetries: only its own name counts here.
    found = getattr(own, "BEST_TRAINING", {}).get(problem, {}) if preset == "best" else {}
    return {**row, **found}


def paper_row(table: Mapping[str, Mapping[str, Any]], problem: str) -> Mapping[str, Any]:
    """The row of `PAPER` or `PAPER_TRAINING` for `problem`; empty where there is none."""
    return table.get(STANDS_IN.get(problem, problem), {})
