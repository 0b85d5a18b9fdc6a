"""What our preset `paper` runs, beside what the paper says: its text, and its tables 6 to 12."""

from functools import cache
from itertools import product
from typing import Any

import torch

from torchcno.models import ParameterCount
from torchcno.paper import published as paper
from torchcno.paper.report.cells import (
    EMPTY,
    PUBLISHED,
    Cell,
    Row,
    Table,
    begun,
    given,
    percent,
    plain,
)
from torchcno.paper.report.results import Results
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.config import RunConfig
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.presets import build_model, model_class, model_config, parameter_count
from torchcno.training.schedules import STEP_EPOCHS

FIELD_TITLES = {
    "optimizer": "optimiser",
    "patience": "patience in epochs",
    "epochs_a_step": "epochs a step of γ",
    "lift_layers": "layers of the lifting",
}
# What trials that follow the text in one field are called after <problem>-<model>
# (docs/training.md). Every one that is there is shown.
TRIALS = {"patience": "patience-50", "epochs_a_step": "every-epoch", "activation": "gelu"}
NOT_FIELDS = (
    "What is no field is not compared. DON's residual blocks are 0.9 v + 0.1 W σ(v) where the text "
    "has v + K σ(K v), its branch pools over 4 points where the text has 2, and its initial "
    "weights are our own (models/deeponet.py); disks of discontinuous transport are softened "
    "themselves where the text softens samples of them (--problem.edges sampled)."
)
TRAINING_TITLES = {
    "learning_rate": "rate",
    "gamma": "γ",
    "weight_decay": "decay",
    "batch_size": "batch",
}


def departures(results: Results) -> Table:
    """Where the preset `paper` does not follow the paper's text, and what a trial says of it."""
    rows = []
    for statement in paper.PROTOCOL:
        by_value: dict[Any, list[str]] = {}
        for model in statement.models:
            for value in {our_value(model, p, statement.field) for p in paper.PROBLEM_TITLES}:
                if value != statement.value:
                    by_value.setdefault(value, []).append(model)
        for value, models in by_value.items():
            title = FIELD_TITLES.get(statement.field, statement.field)
            said = given(plain(statement.value)), given(plain("none" if value is None else value))
            labels = title, _together(models), statement.place
            rows += begun(
                [
                    Row((*labels, trial), (*said, *errors))
                    for trial, errors in _trials(results, statement.field, models)
                ]
            )
    return Table(
        "departures",
        "Table 1, protocol",
        "Where our preset “paper” departs from the paper's text",
        ("what", "models", "section of the SM", "a run by the text (epochs)"),
        ("text", "ours", "text, in", "text, out", "ours, in", "ours, out"),
        tuple(rows),
        "Compared are fields of recipes and networks that the text has a value of. Each of these "
        "follows the authors' implementation, but for the stop of GT, which is our own choice. The "
        "last columns are errors in percent of a run that follows the text in this "
        f"(results/trials) and of ours; docs/training.md has more. {NOT_FIELDS}",
    )


def our_value(model: str, problem: str, field: str) -> Any:
    """A field of the recipe or of the network that the preset `paper` runs."""
    config = _config(model, problem)
    if field == "lift_layers":
        with torch.device("meta"):
            lift = build_model(model, problem).get_submodule("lift")
        return len([layer for layer in lift.modules() if list(layer.parameters(recurse=False))])
    return {**vars(config.architecture), **vars(config.train), "epochs_a_step": STEP_EPOCHS}[field]


@cache
def _config(model: str, problem: str) -> RunConfig:
    return RunConfig.resolve(problem, model, "paper")


def _trials(results: Results, field: str, models: list[str]) -> list[tuple[str, list[Cell]]]:
    """The trials of a field on those models, or one line without any."""
    every = product(paper.PROBLEM_TITLES, models) if field in TRIALS else ()
    found = [_trial(results, problem, model, TRIALS[field]) for problem, model in every]
    return [trial for trial in found if trial is not None] or [("", [EMPTY] * 4)]


def _trial(
    results: Results, problem: str, model: str, change: str
) -> tuple[str, list[Cell]] | None:
    """A trial's errors and those of `paper`; None where it has not been run."""
    name = f"{problem}-{model}-{change}"
    damage = results.records.damages.get(name)
    if damage is not None:
        return f"{name}: {damage.file.name} cannot be read", [Cell()] * 4
    trial = results.trials.get(name)
    if trial is None:
        return None
    by_text = [trial.error(split) for split in EVALUATED]
    run = planned(BUDGETS["paper"], problem, model)
    by_ours = [results.error(run, split) for split in EVALUATED]
    return f"{name} ({trial['epochs']})", [percent(error) for error in (*by_text, *by_ours)]


def _together(models: list[str]) -> str:
    """The models in few words."""
    others = [model for model in paper.COMPARED if model not in models]
    if not others:
        return "all"
    few = min(models, others, key=len)
    titles = ", ".join(paper.MODEL_TITLES[model] for model in few)
    return titles if few is models else f"all but {titles}"


def tables_6_to_12() -> Table:
    """Parameter counts of the selected models, both ways."""
    rows: list[Row] = []
    off = []  # what does not round to the printed digit
    for problem, published in paper.PARAMETERS.items():
        title = paper.PROBLEM_TITLES[problem]
        group = [
            Row(
                (title, PUBLISHED),
                tuple(Cell(published[m], f"{published[m]:.1f}") for m in paper.COMPARED),
                published=True,
            )
        ]
        counts = {model: _count(model, problem) for model in paper.COMPARED}
        for label, which in (("entries", 0), ("reals", 1)):
            cells = (plain(count[which] / 1e6, ".2f") for count in counts.values())
            group.append(Row((title, label), tuple(cells)))
        off += [
            f"{paper.MODEL_TITLES[model]} of {title} ({ours:.2f}, printed {published[model]:.1f})"
            for model, count in counts.items()
            if abs((ours := millions(model, count)) - published[model]) > 0.05
        ]
        rows += begun(group)
    tables = paper.HYPER_PARAMETER_TABLES.items()
    differing = {n: len(paper.CONTRADICTED[m]) for n, m in tables if m in paper.CONTRADICTED}
    where = [f"{count} in Table {n}" for n, count in differing.items()]
    return Table(
        "tables-6-12",
        "Tables 6 to 12",
        "Learnt parameters of the selected models, in millions",
        ("problem", "counted"),
        tuple(paper.MODEL_TITLES[m] for m in paper.COMPARED),
        tuple(rows),
        "A complex weight is one entry of a tensor and two real numbers: the paper counts the "
        "entries of FNO and the reals of GT. The hyper-parameters are the printed ones but for "
        f"{sum(differing.values())} rows ({', '.join(where)}) that contradict their printed "
        f"counts: there the counts decide. Not as printed are the {', '.join(off)}.",
    )


def printed(model: str, problem: str) -> dict[str, Any]:
    """The row of a problem in the model's table as the paper has it, but for the count."""
    columns = paper.HYPER_PARAMETER_COLUMNS[model]
    run = {name: our_value(model, problem, name) for name in columns}
    return run | paper.CONTRADICTED.get(model, {}).get(problem, {})


def hyper_parameters(number: int, model: str) -> Table:
    """Tables 6 to 12 one by one: what the selected models are made of and trained with."""
    network = [name for name in model_class(model).PAPER["poisson"] if name != "size"]
    names = [*network, *TRAINING_TITLES]
    differing = paper.CONTRADICTED.get(model, {})
    rows: list[Row] = []
    for problem, title in paper.PROBLEM_TITLES.items():
        run = [our_value(model, problem, name) for name in names]
        if problem in differing:
            said = _said(model) | printed(model, problem)
            published = _values((title, PUBLISHED), [said.get(name) for name in names])
            rows += begun([published, _values((title, "ours"), run)])
        else:
            rows += begun([_values((title, "both"), run)])
    known = {*_said(model), *paper.HYPER_PARAMETER_COLUMNS[model]}
    unsaid = [TRAINING_TITLES[name] for name in TRAINING_TITLES if name not in known]
    notes = [_why(model, problem, fields) for problem, fields in differing.items()]
    if unsaid:
        notes.append(f"The paper does not give: {', '.join(unsaid)}.")
    return Table(
        f"table-{number}",
        f"Table {number}",
        f"{paper.MODEL_TITLES[model]}: hyper-parameters of the selected models",
        ("problem", "by"),
        (*(name.replace("_", " ") for name in network), *TRAINING_TITLES.values()),
        tuple(rows),
        " ".join(notes),
    )


def _said(model: str) -> dict[str, Any]:
    """The hyper-parameters that the text gives, and not the model's table."""
    return {one.field: one.value for one in paper.PROTOCOL if model in one.models}


def _values(labels: tuple[str, ...], values: list[float | None]) -> Row:
    cells = tuple(plain(value) for value in values)
    return Row(labels, cells, published=labels[-1] == PUBLISHED)


def _why(model: str, problem: str, fields: dict[str, float]) -> str:
    """Why our row is another one: the printed one has not the printed number of parameters."""
    printed, run = (millions(model, _count(model, problem, **which)) for which in (fields, {}))
    names = ", ".join(f"{name.replace('_', ' ')} = {value:g}" for name, value in fields.items())
    return (
        f"{paper.PROBLEM_TITLES[problem]}: with {names} as printed the network would have "
        f"{printed:.1f}M parameters; {paper.PARAMETERS[problem][model]}M are printed, and ours has "
        f"{run:.1f}M."
    )


def millions(model: str, count: ParameterCount) -> float:
    """Parameters as the paper counts them: the real numbers of GT, else entries of tensors."""
    return (count.reals if model == "galerkin-transformer" else count.entries) / 1e6


def _count(model: str, problem: str, **fields: Any) -> ParameterCount:
    """Of the network that the preset `paper` runs, with other `fields`."""
    return parameter_count(model, model_config(model, problem, **fields))
