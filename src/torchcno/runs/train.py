"""A run: one model trained on one problem, kept in a folder that says everything about it.

config.yaml         the whole configuration, every field resolved
metrics.jsonl       a row an epoch
tensorboard/        the rows as curves, where the configuration asks for them
model.safetensors   the weights that did best on validation
model.json          what they are the weights of: model, configuration, normalisation, grid
checkpoint/         everything to go on with an interrupted run
result.json         errors in and out of distribution, speed, size
errors.npz          the error of every sample
examples.npz        some samples with their predictions
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from torchcno.arithmetic import arithmetic
from torchcno.data.dataset import Fields, Normalization
from torchcno.data.dataset import load as load_fields
from torchcno.data.samples import Samples
from torchcno.disk import locked, write_json
from torchcno.evaluation.errors import sample_errors, summary
from torchcno.evaluation.mean_field import mean_field
from torchcno.evaluation.timing import inference_time
from torchcno.metrics import Mask
from torchcno.models import MODELS, count_parameters
from torchcno.runs.config import (
    RunConfig,
    differences,
    read_config,
    write_tree,
)
from torchcno.runs.evaluate import EVALUATED, Evaluation, evaluate_run
from torchcno.runs.evidence import save_evidence
from torchcno.runs.operator import TrainedOperator, load, pick_device
from torchcno.runs.run_files import finished_result
from torchcno.training import Epoch, EventFile, Fit, Hardware, Pairs, fit
from torchcno.training.hardware import device_name, extent, is_first_process
from torchcno.training.loop import check_batches
from torchcno.training.run_folder import RunFolder


@dataclass(frozen=True)
class Watch:
    """Who is told how a run goes on; by default no one."""

    data: Callable[[int, int], None] | None = None  # samples made, samples in all
    epoch: Callable[[Epoch], None] | None = None


NO_ONE = Watch()


def train_run(
    config: RunConfig,
    out: str | Path,
    watch: Watch = NO_ONE,
    splits: Sequence[str] = EVALUATED,
) -> dict[str, Any]:
    """Train by `config` into the new run folder `out`, evaluate, and return what result.json says.

    `splits` are those to evaluate; a run that is only to be compared with others has no business
    with test data.

    >>> result = train_run(RunConfig.resolve("poisson", "cno"), "runs/p1")
    """
    folder = Path(out)
    for split in ("train", "val", *splits):  # now, and not when the first of them is needed
        Samples.of(config.problem, split, config.resolution).check_inputs()
    with at_work(config, folder, watch) as watch:
        return begin(config, folder, watch, splits)


def resume_run(
    folder: str | Path, watch: Watch = NO_ONE, hardware: Hardware | None = None
) -> dict[str, Any]:
    """Go on with the interrupted run in `folder`, to the end that it would have come to.

    On its devices, or on other `hardware`. A finished run is left as it is, with or without its
    checkpoint and weights.
    """
    config, folder = read_config(folder), Path(folder)
    config = replace(config, hardware=hardware or config.hardware)
    with at_work(config, folder, watch) as watch:
        return go_on(config, folder, watch, EVALUATED)


@contextmanager
def at_work(
    config: RunConfig, folder: Path, watch: Watch = NO_ONE, *, wait: bool = False
) -> Iterator[Watch]:
    """Who is told of the work in a folder that is `claimed` for it."""
    with _drawn(config, folder, watch) as watch, claimed(folder, config.hardware, wait=wait):
        yield watch


@contextmanager
def claimed(folder: Path, hardware: Hardware, *, wait: bool = False) -> Iterator[bool]:
    """The folder of a run for one process, another is refused or has to `wait`; whether it writes.

    Of the processes of one run the first writes, and locks the folder for all of them.
    """
    if not is_first_process(hardware):
        yield False
        return
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait):
        yield True


def begin(config: RunConfig, folder: Path, watch: Watch, splits: Sequence[str]) -> dict[str, Any]:
    """`train_run` for who is `at_work` in the folder."""
    if is_first_process(config.hardware):
        refuse_existing(folder, config)
    return _run(config, folder, watch, splits, resume=False)


def go_on(config: RunConfig, folder: Path, watch: Watch, splits: Sequence[str]) -> dict[str, Any]:
    """`resume_run` for who is `at_work` in the folder, with data and hardware of `config`."""
    result = finished_result(folder)
    if result is not None:
        return result if is_first_process(config.hardware) else {}
    RunFolder(folder).refuse_lone_weights()  # before anything there is written anew
    return _run(config, folder, watch, splits, resume=True)


@contextmanager
def _drawn(config: RunConfig, folder: Path, watch: Watch) -> Iterator[Watch]:
    """`watch`, and TensorBoard's event file where the configuration asks for it."""
    if not config.tensorboard:
        yield watch
        return
    with closing(EventFile(folder / "tensorboard")) as draw:

        def on_epoch(epoch: Epoch) -> None:
            draw(epoch)
            if watch.epoch is not None:
                watch.epoch(epoch)

        yield replace(watch, epoch=on_epoch)


def refuse_existing(folder: Path, config: RunConfig) -> None:
    """Refuse to train into the folder of a run that is there already, this one or another."""
    if not RunFolder(folder).has_begun:
        RunFolder(folder).refuse_weights()
        return
    if not (folder / "config.yaml").exists():
        raise ValueError(f"{folder} holds a network that `train_on` made; choose another --out.")
    changed = sorted(differences(read_config(folder), config))
    finished = (folder / "result.json").exists()
    if changed:
        remedy = "" if finished else f", or go on with that run: cno resume {folder}"
        raise ValueError(
            f"{folder} holds another run, which differs in {', '.join(changed)}; choose another "
            f"--out{remedy}"
        )
    if finished:
        raise ValueError(
            f"{folder} holds this run already, and it is finished (cno evaluate {folder}); to "
            "train it again, choose another --out"
        )
    raise ValueError(f"{folder} holds this run already; go on with it: cno resume {folder}")


def _run(
    config: RunConfig, folder: Path, watch: Watch, splits: Sequence[str], resume: bool
) -> dict[str, Any]:
    """Train, from the start or from a checkpoint, and evaluate what came out."""
    if not splits:
        raise ValueError("no split to evaluate; name one at least, such as val.")
    problem, recipe = config.problem, config.train
    device = pick_device(config.hardware.accelerator)
    # Data may take hours: whatever can be refused without them is refused first.
    refuse_misfits(config)
    if is_first_process(config.hardware):
        # Also of a run that goes on: whoever evaluates it reads there where the data are now.
        write_tree(config.to_tree(), folder / "config.yaml")
    torch.manual_seed(config.seed)  # the initial weights
    network = MODELS[config.model](config.architecture)
    # Also what is evaluated later: data that cannot be made shall not spoil a trained run.
    train, val, *_ = (
        load_fields(
            problem,
            split,
            folder=config.data,
            resolution=config.resolution,
            samples=recipe.samples if split == "train" else None,
            device=device,
            progress=watch.data,
        )
        for split in dict.fromkeys(("train", "val", *splits))
    )
    normalization = Normalization.fit(train) if problem.normalized else Normalization.identity()
    if is_first_process(config.hardware):
        operator = TrainedOperator(network, normalization, train.grid, config.model, problem.name)
        write_json({**operator.description(), "versions": versions()}, folder / "model.json")
    outcome = fit(
        network,
        pairs(train, normalization, problem.mask),
        pairs(val, normalization, problem.mask),
        recipe,
        folder,
        seed=config.seed,
        hardware=config.hardware,
        on_epoch=watch.epoch,
        resume=resume,
    )
    if not is_first_process(config.hardware):
        return {}
    evaluations = evaluate_run(folder, splits, device=device.type)
    save_evidence(evaluations, folder, problem.mask)
    result = {
        **_result(config, folder, outcome, evaluations, device),
        "mean_field_errors": {
            e.split: _mean_field_errors(train, e, normalization, config) for e in evaluations
        },
    }
    write_json(result, folder / "result.json")
    return result


def refuse_misfits(config: RunConfig) -> None:
    """Refuse a network that does not fit the problem, and batches that do not fit the set."""
    network, problem, recipe = config.architecture, config.problem, config.train
    channels = (network.in_channels, network.out_channels)
    if channels != problem.channels:
        raise ValueError(
            f"{problem.name} has {problem.channels[0]} input and {problem.channels[1]} output "
            f"channels, the network {channels[0]} and {channels[1]}; leave in_channels and "
            "out_channels out."
        )
    if getattr(network, "out_size", None) not in (None, network.size):
        raise ValueError(
            f"outputs of {problem.name} lie on the inputs' grid; leave out_size out, or train such "
            "a network in Python by torchcno.training.fit."
        )
    devices, nodes = extent(config.hardware)
    check_batches(recipe, recipe.samples or problem.samples["train"], devices * nodes)


def _result(
    config: RunConfig,
    folder: Path,
    outcome: Fit,
    evaluations: Sequence[Evaluation],
    device: torch.device,
) -> dict[str, Any]:
    """What a finished run came to."""
    operator = load(folder, device)
    training = asdict(outcome)
    # Whoever compares times by the device's name takes none that are of several.
    devices = dict.fromkeys([*training.pop("devices"), device_name(device)])
    count = count_parameters(operator.network)
    with arithmetic(config.train.precision):  # as for the errors
        inference = inference_time(operator, evaluations[0].fields.inputs, repeats=5)
    return {
        "problem": config.problem.name,
        "model": config.model,
        "preset": config.preset,
        "seed": config.seed,
        "parameters": count.entries,  # the paper's way: a complex weight once
        "real_parameters": count.reals,
        **training,
        "inference": asdict(inference),
        "device": ", then ".join(devices),
        "versions": versions(),
        "errors": {evaluation.split: evaluation.summary for evaluation in evaluations},
    }


def _mean_field_errors(
    train: Fields, evaluation: Evaluation, normalization: Normalization, config: RunConfig
) -> dict[str, dict[str, float]]:
    """The errors of the mean training output on the same samples, to measure a network's by."""
    fields = evaluation.fields
    prediction = mean_field(train, fields.inputs)
    return summary(sample_errors(prediction, fields, normalization, config.problem.mask))


def pairs(fields: Fields, normalization: Normalization, mask: Mask | None = None) -> Pairs:
    """Fields as a network sees them; `mask` sees the physical inputs."""
    scaled = Pairs(
        normalization.normalize_inputs(fields.inputs),
        normalization.normalize_outputs(fields.outputs),
    )
    return scaled.masked(mask, fields.inputs)


def versions() -> dict[str, str]:
    """What a run was made with; Fabric comes by itself or as a part of Lightning."""
    fabric = ("lightning-fabric", "lightning", "pytorch-lightning")
    packages = ("torchcno", "torch", "numpy", *fabric, "safetensors")
    found = {name: number for name in packages if (number := _installed(name)) is not None}
    return {"python": platform.python_version(), **found}


def _installed(package: str) -> str | None:
    """The version of a package; None where it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
