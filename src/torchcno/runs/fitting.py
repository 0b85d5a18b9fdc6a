"""Tasks are fitted together, evaluated, and kept in their folders."""

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from torchcno.arithmetic import arithmetic
from torchcno.disk import write_json
from torchcno.evaluation.errors import channel_errors, published_error, sample_errors, summary
from torchcno.evaluation.mean_field import mean_field
from torchcno.evaluation.resolution import Evaluation
from torchcno.evaluation.timing import inference_time
from torchcno.models import count_parameters
from torchcno.models.ensemble import members_of
from torchcno.runs.folder import RunFolder
from torchcno.runs.task import Task
from torchcno.runs.verdict import judge
from torchcno.runs.watching import Watch
from torchcno.training import Diverged, Epoch, Fit, Member, fit_together, save_tensors
from torchcno.training.hardware import device_name, is_first_process, pick_device


def train_tasks(
    tasks: Sequence[Task],
    folders: Sequence[RunFolder],
    splits: Sequence[str],
    watches: Sequence[Watch],
    resume: bool = False,
) -> list[dict[str, Any] | Diverged]:
    """Fit the operators of `tasks`, evaluate them on `splits`, and keep all of it in `folders`.

    The tasks differ in their seeds alone: all members of all are fitted together. `watches` has one
    for each member. Whoever calls has opened the folders. Returns what each result.json says, or
    how a member diverged; nothing in further processes of a run.
    """
    first = tasks[0]
    hardware = first.config.hardware
    is_first = is_first_process(hardware)
    members = list[Member]()
    for task, folder in zip(tasks, folders, strict=True):
        operator = task.operator
        if is_first:
            write_json({**operator.description(), "versions": versions()}, folder.model_file)
        networks = members_of(operator.network)
        parts = zip(networks, folder.trainings(len(networks)), task.config.alone, strict=True)
        members += [Member(network, part, alone.seed) for network, part, alone in parts]
    if is_first and watches[0].scaling is not None:
        watches[0].scaling(first.operator.normalization)

    def tell(number: int, epoch: Epoch) -> None:
        if (on_epoch := watches[number].epoch) is not None:
            on_epoch(epoch)

    outcomes = iter(
        fit_together(
            members,
            first.supply(),
            first.judged(),
            first.config.train,
            hardware=hardware,
            on_epoch=tell,
            resume=resume,
            loss=first.loss,
        )
    )
    results = list[dict[str, Any] | Diverged]()
    for task, folder in zip(tasks, folders, strict=True):
        own = list(islice(outcomes, task.config.members))
        fits = [outcome for outcome in own if isinstance(outcome, Fit)]
        diverged = next((outcome for outcome in own if isinstance(outcome, Diverged)), None)
        results.append(diverged or (conclude(task, folder, splits, fits) if is_first else {}))
    return results


def conclude(
    task: Task, folder: RunFolder, splits: Sequence[str], fits: Sequence[Fit]
) -> dict[str, Any]:
    """Evaluate a fitted operator on `splits`, and keep what it came to in `folder`."""
    operator, config = task.operator, task.config
    recipe, hardware = config.train, config.hardware
    if config.members > 1:
        save_tensors(folder.weights, operator.network.state_dict())
    device = pick_device(hardware.accelerator)
    operator.to(device)
    with arithmetic(recipe.precision):  # as for the validation error
        evaluations = [task.evaluate(split) for split in splits]
        mean_errors = summarize_mean(task, evaluations)
        evaluated = task.mapping("train")
        inference = inference_time(evaluated, evaluations[0].fields.inputs, repeats=5)
        ood = next((one for one in evaluations if one.split == "ood"), None)
        verdict = judge(
            evaluated,
            task.known,
            task.load("val"),
            evaluations[0],
            published_error(mean_errors[splits[0]]),
            ood,
            task.mask,
        )
        operator.trust = task.measure_trust()
    folder.write_evidence(evaluations, task.mask)
    if operator.trust is not None:
        folder.write_trust(operator.trust)
    operator.home = folder.path
    training, count = summarize_fits(fits), count_parameters(operator.network)
    # Whoever compares times by the device's name takes none that are of several.
    devices = dict.fromkeys([*training.pop("devices"), device_name(device)])
    result = {
        "problem": operator.problem,
        "model": operator.model,
        "preset": config.preset,
        "seed": config.seed,
        "parameters": count.entries,  # the paper's way: a complex weight once
        "real_parameters": count.reals,
        **training,
        "inference": asdict(inference),
        "device": ", then ".join(devices),
        "versions": versions(),
        "weights": folder.hash_weights(),
        "errors": {evaluation.split: evaluation.summary for evaluation in evaluations},
        "channel_errors": {
            one.split: [
                summary(errors)
                for errors in channel_errors(
                    one.prediction, one.fields, operator.error_scaling, task.mask
                )
            ]
            for one in evaluations
            if one.prediction.shape[1] > 1
        },
        "mean_field_errors": mean_errors,
    }
    result["verdict"] = asdict(verdict)
    if config.members > 1:
        result["members"] = describe_members(task, evaluations, fits)
    write_json(result, folder.result_file)
    return result


def summarize_mean(task: Task, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The errors of the mean training output by split, to measure a network's by."""
    mean, scaling = mean_field(task.known), task.operator.error_scaling
    guesses = (mean.to(one.fields.inputs).expand_as(one.fields.outputs) for one in evaluations)
    return {
        one.split: summary(sample_errors(guess, one.fields, scaling, task.mask))
        for one, guess in zip(evaluations, guesses, strict=True)
    }


def summarize_fits(fits: Sequence[Fit]) -> dict[str, Any]:
    """The fit of a run, or what those of its members come to: the time of all, the mean error."""
    if len(fits) == 1:
        return asdict(fits[0])
    epochs = max(fit.epochs for fit in fits)
    return {
        "epochs": epochs,
        "best_epoch": max(fit.best_epoch for fit in fits),
        "best_validation_error": sum(fit.best_validation_error for fit in fits) / len(fits),
        "seconds_per_epoch": sum(fit.seconds_per_epoch * fit.epochs for fit in fits) / epochs,
        "devices": tuple(dict.fromkeys(device for fit in fits for device in fit.devices)),
    }


def describe_members(
    task: Task, evaluations: Sequence[Evaluation], fits: Sequence[Fit]
) -> list[dict[str, Any]]:
    """What each member of an ensemble came to by itself."""
    described = []
    for member, alone, fit in zip(task.operator.members(), task.config.alone, fits, strict=True):
        own = replace(task, operator=member)
        with arithmetic(task.config.train.precision):
            errors = {one.split: own.evaluate(one.split).summary for one in evaluations}
        described.append({"seed": alone.seed, **asdict(fit), "errors": errors})
    return described


def versions() -> dict[str, str]:
    """What a run was made with; Fabric comes by itself or as a part of Lightning."""
    fabric = ("lightning-fabric", "lightning", "pytorch-lightning")
    found = {"python": platform.python_version()}
    for name in ("torchcno", "torch", "numpy", *fabric, "safetensors"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
