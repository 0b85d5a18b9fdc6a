"""The audit of trained runs, on samples of their own problems."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from torchcno.arithmetic import arithmetic
from torchcno.disk import read_json
from torchcno.evaluation.aliasing import Audit, audit
from torchcno.evaluation.errors import published_error
from torchcno.evaluation.symmetries import Symmetry, find_symmetries
from torchcno.runs.folder import RunFolder
from torchcno.runs.loading import load_predicted
from torchcno.runs.own import present_splits
from torchcno.runs.plain import from_plain
from torchcno.runs.rollout import EvolutionOperator
from torchcno.runs.sections import Subject, TrustPage, measure_page
from torchcno.runs.trust import measure_on_data
from torchcno.training.hardware import pick_device

KNOWN = 256  # training samples by whose span inputs are known


@dataclass(frozen=True)
class RunAudit(Audit):
    """The audit of a run, and what tells its weights from those of a later run of the same name."""

    error: float | None = None  # the published one on test data, in percent; None: not kept
    weights: str | None = None  # their hash; None: of before it was kept


def audit_run(
    folder: str | Path,
    *,
    split: str | None = None,
    samples: int = 4,
    resolutions: Sequence[int] = (),
    device: str = "auto",
    name: str | None = None,
    data: str | Path | None = None,
) -> RunAudit:
    """The aliasing of a run's operator, from physical inputs to physical outputs.

    On the first `samples` of a split, at the training resolution. `resolutions` are the ladder's.
    The data are in the folder `data`, or where they were in training.
    """
    run = RunFolder(folder)
    config, operator = run.config_here(data), run.operator(pick_device(device))
    damage = run.damage()
    if damage is not None:
        raise ValueError(
            f"{damage}; bring it back, or move it away: an audit needs the weights alone."
        )
    test = (run.result() or {"errors": {}})["errors"].get("test")
    if split is None:
        (split,) = present_splits(config.problem, ("test",))
    fields = load_predicted(config, operator, split, samples, pick_device(device))
    found = audit(
        operator,
        fields.inputs,
        resolutions=resolutions or None,
        homogeneous=config.problem.homogeneous,
        name=name or run.path.resolve().name,
    )
    layers = [replace(layer, name=layer.name.removeprefix("network.")) for layer in found.layers]
    named = replace(found, layers=tuple(layers))
    error = None if test is None else published_error(test)
    return RunAudit(**vars(named), error=error, weights=run.hash_weights())


def audit_trust(
    folder: str | Path,
    *,
    samples: int = 64,
    device: str = "auto",
    data: str | Path | None = None,
) -> TrustPage:
    """All that says how far to trust a run: `TrustPage`, on `samples` of test and of ood."""
    run, where = RunFolder(folder), pick_device(device)
    config, operator = run.config_here(data), run.operator(where)
    if config.times:
        raise ValueError(
            f"{folder} learnt trajectories, and these sections are of single steps; use "
            "--aliasing-only, and `cno evaluate` for the errors of rollouts."
        )
    (split, *_) = present_splits(config.problem, ("test",))
    found = {}
    for name in (split, "ood"):
        there = config.problem.samples.get(name, 0)
        if there:
            found[name] = load_predicted(config, operator, name, min(samples, there), where)
    if operator.trust is None:
        operator.trust = measure_on_data(operator, config, where)
    result = run.result()
    seconds = None if result is None else result["seconds_per_epoch"] * result["epochs"]
    with arithmetic(config.train.precision):
        return measure_page(
            Subject(operator, config, found[split], split, found.get("ood"), where, seconds)
        )


def find_run_symmetries(folder: str | Path, *, device: str = "auto") -> list[Symmetry]:
    """Which symmetries the data of a run have, as far as its network and its samples tell."""
    run = RunFolder(folder)
    config, where = run.config(), pick_device(device)
    operator, counts = run.operator(where), config.problem.samples
    (split,) = present_splits(config.problem, ("test",))
    scaling, pairs = operator.normalization, []
    for name, count in (("train", min(KNOWN, counts["train"])), (split, counts[split])):
        fields = load_predicted(config, operator, name, count, where)
        u, v = fields.inputs.float().to(where), fields.outputs.float().to(where)
        pairs.append((scaling.normalize_inputs(u), scaling.normalize_outputs(v)))
    network = operator.step if isinstance(operator, EvolutionOperator) else operator.network
    with torch.inference_mode():
        return find_symmetries(network, pairs[0], pairs[1], operator.grid)


def audit_report(
    audits: Sequence[Audit], threshold: float, pages: Sequence[TrustPage | None] = ()
) -> dict[str, Any]:
    """The audits and their verdicts for a JSON file."""
    told = []
    for i, found in enumerate(audits):
        page = pages[i] if pages else None
        passed = found.passes(threshold) and (page is None or page.calibration.holds is not False)
        one = {**found.as_dict(), "passed": passed}
        told.append(one if page is None else one | {"trust": asdict(page)})
    return {
        "threshold": threshold,
        "passed": all(one["passed"] for one in told),
        "audits": told,
    }


def read_audits(path: Path) -> list[RunAudit]:
    """The audits of a file that `audit_report` went to."""
    known = {field.name for field in fields(RunAudit)}
    return [
        from_plain(RunAudit, {key: one[key] for key in known & one.keys()}, "audit")
        for one in read_json(path)["audits"]
    ]
