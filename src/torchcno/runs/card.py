"""The model card of a trained operator: what it learnt, how good it is, and where it ends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from torchcno.models import TITLES, count_parameters
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import OwnData

TEMPLATES = Path(__file__).parent / "templates"
CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)  # of the bounds that a card states


def make_card(
    operator: TrainedOperator,
    digest: str,
    errors: Mapping[str, float],
    file: Path | None = None,
) -> str:
    """The card in Markdown, with the fields that the Hub reads on top.

    `digest` is that of the weights, `errors` are by split, in percent. `file` is what was exported,
    if it is one file for other programs.
    """
    template = jinja2.Template(
        (TEMPLATES / "card.md.j2").read_text(encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return template.render(
        operator=operator,
        axes=", ".join("zyx"[-len(operator.grid.shape) :]),
        title=TITLES.get(operator.model, operator.model),
        parameters=count_parameters(operator.network).entries,
        description=operator.description(),
        digest=digest,
        errors=errors,
        file=file,
        data=describe_data(operator),
        bounds=list_bounds(operator),
        channels=list_ranges(operator),
    )


def describe_data(operator: TrainedOperator) -> list[str]:
    """What the training data were, as far as the run's folder says."""
    from torchcno.runs.folder import RunFolder

    run = None if operator.home is None else RunFolder(operator.home)
    if run is None or not run.config_file.is_file():
        return [f"Fields of `{operator.problem}`; nothing more is kept with the weights."]
    config = run.config()
    problem = config.problem
    train = config.train.samples or problem.samples["train"]
    counts = f"{train} training samples, {problem.samples['val']} for validation."
    if isinstance(problem, OwnData):
        return [f"Own data, {problem.label}: {counts}", "No equation and no solver are known."]
    equation = (type(problem).__doc__ or problem.name).splitlines()[0]
    constants = ", ".join(
        f"{name} = {value}" for name, value in vars(problem).items() if not isinstance(value, dict)
    )
    return [f"{equation}", f"{counts}", f"Constants: {constants or 'none'}."]


def list_bounds(operator: TrainedOperator) -> list[dict[str, Any]]:
    """The bound on relative errors by confidence, where validation samples are enough for it."""
    if operator.trust is None:
        return []
    bands, found = operator.trust.bands, []
    for confidence in CONFIDENCES:
        try:
            physical, scaled = (
                bands.bound_relative(confidence, space) for space in ("physical", "normalized")
            )
        except ValueError:  # too few samples
            break
        found.append({"confidence": confidence, "physical": physical, "normalized": scaled})
    return found


def list_ranges(operator: TrainedOperator) -> list[dict[str, Any]]:
    """The range of the training's inputs per channel; empty: not kept."""
    seen = operator.range
    if seen is None:
        return []
    both = zip(seen.low, seen.high, seen.smoothest, seen.roughest, strict=True)
    names = ("low", "high", "smoothest", "roughest")
    return [dict(zip(names, one, strict=True)) for one in both]
