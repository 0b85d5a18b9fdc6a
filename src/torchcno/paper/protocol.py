"""What our preset `paper` runs, beside what the paper says: its text, and its tables 6 to 12."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchcno.paper import published as paper
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.presets import build_model
from torchcno.training.schedules import STEP_EPOCHS

FIELD_TITLES = {
    "optimizer": "optimiser",
    "patience": "patience in epochs",
    "epochs_a_step": "epochs per step of γ",
    "lift_layers": "layers of the lifting",
}


@dataclass(frozen=True)
class Departure:
    """A field of which our preset has another value than the text."""

    title: str
    models: str
    place: str  # the section of the supplement
    text: Any
    ours: Any


def departures() -> Iterator[Departure]:
    """Where the preset `paper` does not follow the paper's text."""
    for statement in paper.PROTOCOL:
        by_value: dict[Any, list[str]] = {}
        for model in statement.models:
            for value in {our_value(model, p, statement.field) for p in paper.PROBLEM_TITLES}:
                if value != statement.value:
                    by_value.setdefault(value, []).append(model)
        title = FIELD_TITLES.get(statement.field, statement.field)
        for value, models in by_value.items():
            ours = "none" if value is None else value
            yield Departure(title, _together(models), statement.place, statement.value, ours)


def our_value(model: str, problem: str, field: str) -> Any:
    """A field of the recipe or of the network that the preset `paper` runs."""
    config = planned(BUDGETS["paper"], problem, model).config
    if field == "lift_layers":
        with torch.device("meta"):
            lift = build_model(model, problem).get_submodule("lift")
        return len([layer for layer in lift.modules() if list(layer.parameters(recurse=False))])
    return {**vars(config.architecture), **vars(config.train), "epochs_a_step": STEP_EPOCHS}[field]


def _together(models: Sequence[str]) -> str:
    """The models in few words."""
    others = [model for model in paper.COMPARED if model not in models]
    if not others:
        return "all"
    few = min(models, others, key=len)
    titles = ", ".join(paper.MODEL_TITLES[model] for model in few)
    return titles if few is models else f"all but {titles}"


def contradicted_value(model: str, problem: str, field: str) -> float | None:
    """What is printed where we run another value: one that the printed count of parameters has."""
    said = paper.HYPER_PARAMETERS[model, problem].get(field)
    return None if said == our_value(model, problem, field) else said
