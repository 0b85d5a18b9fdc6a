"""A run: one model trained on one set of fields, kept in a `RunFolder`."""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcno.arithmetic import arithmetic
from torchcno.data.dataset import load as load_fields
from torchcno.data.fields import Fields
from torchcno.data.normalization import SIDES, Normalization
from torchcno.data.samples import Samples
from torchcno.disk import write_json
from torchcno.evaluation.errors import channel_errors, sample_errors, summary
from torchcno.evaluation.mean_field import mean_field
from torchcno.evaluation.resolution import Evaluation
from torchcno.evaluation.timing import inference_time
from torchcno.metrics import Mask
from torchcno.models import MODELS, count_parameters
from torchcno.operators import laid_out
from torchcno.runs.config import RunConfig, write_tree
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.folder import Mode, RunFolder
from torchcno.runs.operator import TrainedOperator, pick_device
from torchcno.training import PRESETS, Epoch, EventFile, Hardware, Pairs, Recipe, fit
from torchcno.training.augmentation import ZEROS
from torchcno.training.hardware import device_name, extent, is_first_process
from torchcno.training.loop import check_batches


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run; none by default."""

    data: Callable[[int, int], None] | None = None  # samples made, samples in all
    epoch: Callable[[Epoch], None] | None = None


NO_ONE = Watch()
MOVED_ZERO = 0.1  # how far from its place a scaled zero is taken to be moved: extremes are sampled


@dataclass(frozen=True)
class Task:
    """What is to be learnt, and how."""

    operator: TrainedOperator  # to be trained: network, scaling, grid and names
    fields: Mapping[str, Fields]  # "train", "val", and what is to be evaluated, in physical values
    recipe: Recipe
    seed: int = 0  # of the order of samples
    hardware: Hardware = Hardware()  # noqa: RUF009
    mask: Mask | None = None  # of physical inputs: where outputs count
    preset: str | None = None  # where recipe and network came from

    def pairs(self, split: str) -> Pairs:
        """The fields of a split as the network sees them."""
        fields, scaling = self.fields[split], self.operator.normalization
        # Scaled first and rounded then: of 101325 ± 1 Pa in float64, float32 alone keeps little.
        scaled = Pairs(
            scaling.normalize_inputs(fields.inputs).float(),
            scaling.normalize_outputs(fields.outputs).float(),
        )
        return scaled.masked(lambda inputs: fields.counts(self.mask), fields.inputs)


def train_task(
    task: Task,
    folder: RunFolder,
    splits: Sequence[str] = (),
    on_epoch: Callable[[Epoch], None] | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Fit the operator of `task`, evaluate it on `splits`, and keep all of it in `folder`.

    Returns what result.json says; nothing without `splits`, and in further processes of the run.
    Whoever calls has opened the folder.
    """
    operator, recipe, hardware = task.operator, task.recipe, task.hardware
    is_first = is_first_process(hardware)
    if is_first:
        write_json({**operator.description(), "versions": versions()}, folder.model_file)
    outcome = fit(
        operator.network,
        task.pairs("train"),
        task.pairs("val"),
        recipe,
        folder.path,
        seed=task.seed,
        hardware=hardware,
        on_epoch=on_epoch,
        resume=resume,
    )
    if not (is_first and splits):
        return {}
    device = pick_device(hardware.accelerator)
    laid_out(operator.to(device).network)  # with several processes it stayed as it was built
    known, scaling, evaluations = task.fields["train"], operator.error_scaling, []
    with arithmetic(recipe.precision):  # as for the validation error
        for split in splits:
            fields = task.fields[split]
            prediction = operator.predict(fields.inputs)
            errors = sample_errors(prediction, fields, scaling, task.mask)
            evaluations.append(Evaluation(fields, prediction, errors, split))
        inference = inference_time(operator, evaluations[0].fields.inputs, repeats=5)
    folder.write_evidence(evaluations, task.mask)
    training, count = asdict(outcome), count_parameters(operator.network)
    # Whoever compares times by the device's name takes none that are of several.
    devices = dict.fromkeys([*training.pop("devices"), device_name(device)])
    result = {
        "problem": operator.problem,
        "model": operator.model,
        "preset": task.preset,
        "seed": task.seed,
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
                for errors in channel_errors(one.prediction, one.fields, scaling, task.mask)
            ]
            for one in evaluations
            if one.prediction.shape[1] > 1
        },
        # To measure a network's by.
        "mean_field_errors": {
            one.split: summary(
                sample_errors(mean_field(known, one.fields.inputs), one.fields, scaling, task.mask)
            )
            for one in evaluations
        },
    }
    write_json(result, folder.result_file)
    return result


def train_run(
    config: RunConfig,
    out: str | Path,
    watch: Watch = NO_ONE,
    splits: Sequence[str] = EVALUATED,
    mode: Mode = "new",
) -> dict[str, Any]:
    """Train by `config` into the run folder `out`, evaluate, and return what result.json says.

    `splits` are those to evaluate; a run that is only to be compared with others needs no test
    data. `mode` says what the folder may hold already (`RunFolder.open`).

    >>> result = train_run(RunConfig.resolve("poisson", "cno"), "runs/p1")
    """
    folder, problem = RunFolder(out), config.problem
    # Before there is a folder, and before the data, which may take hours.
    if not folder.result_file.exists():
        refuse_misfits(config, splits)
    curves = closing(EventFile(folder.curves)) if config.tensorboard else nullcontext()
    with curves as draw, folder.open(config, mode) as finished:
        if finished is not None:
            return finished
        if is_first_process(config.hardware):
            # Also of a run that goes on: whoever evaluates it reads there where the data are now.
            write_tree(config.to_tree(), folder.config_file)
        torch.manual_seed(config.seed)  # the initial weights
        network = MODELS[config.model](config.architecture)
        # Also what is evaluated later: data that cannot be made shall not spoil a trained run.
        fields = {
            split: load_fields(
                problem,
                split,
                folder=config.data,
                resolution=config.resolution,
                samples=config.train.samples if split == "train" else None,
                device=pick_device(config.hardware.accelerator),
                progress=watch.data,
            )
            for split in dict.fromkeys(("train", "val", *splits))
        }
        known = fields["train"]
        published = Normalization.fit(known, "unit" if problem.normalized else "none")
        chosen = config.train.normalization
        scaling = published if chosen is None else Normalization.fit(known, chosen)
        refuse_moved_zero(config.train, scaling)
        task = Task(
            TrainedOperator(
                network,
                scaling,
                known.grid,
                config.model,
                problem.name,
                published,
                config.train.group,
            ),
            fields,
            config.train,
            config.seed,
            config.hardware,
            problem.mask,
            config.preset,
        )

        if mode == "resume" and is_first_process(config.hardware) and folder.model_file.exists():
            folder.refuse_another_operator(task.operator)

        def on_epoch(epoch: Epoch) -> None:
            for tell in (draw, watch.epoch):
                if tell is not None:
                    tell(epoch)

        return train_task(task, folder, splits, on_epoch, resume=mode != "new")


def resume_run(
    folder: str | Path,
    watch: Watch = NO_ONE,
    hardware: Hardware | None = None,
    data: str | Path | None = None,
) -> dict[str, Any]:
    """Go on with the interrupted run in `folder`, to the end that it would have come to.

    On its devices, or on other `hardware`; with its data in the folder `data`, if given. A finished
    run is left as it is, with or without its checkpoint and weights.
    """
    run = RunFolder(folder)
    config = run.config() if run.result_file.exists() else run.config_here(data)
    config = replace(config, hardware=hardware or config.hardware)
    return train_run(config, folder, watch, mode="resume")


def train_on(
    model: nn.Module,
    train: Fields,
    val: Fields,
    out: str | Path,
    *,
    recipe: Recipe = PRESETS["best"],
    name: str = "own data",
    seed: int = 0,
    hardware: Hardware = Hardware(),  # noqa: B008
    mask: Mask | None = None,
    normalization: Normalization | str | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    resume: bool = False,
) -> TrainedOperator:
    """Train a network of this package on any fields, into the folder `out`, which `load` opens.

    Fields are scaled channel by channel: `normalization` has the constants or the name of a rule
    (`NORMALIZATIONS`), else the recipe names one, else it is `auto`: each channel is divided by its
    largest magnitude, or, where it stays far from zero, has its mean taken off and is divided by
    its deviation. The weights that do best on `val` are kept, as for
    the benchmarks; the rest is as in `training.fit`. `name` is what the operator calls its problem.
    The initial weights are those of `model`: seed torch before it is built, and
    an interrupted run goes on to the end that it would have come to with `resume=True`.

    >>> train = Fields(inputs[:800], outputs[:800], Grid((48, 64), "periodic"))
    >>> val = Fields(inputs[800:], outputs[800:], Grid((48, 64), "periodic"))
    >>> model = CNO(CNOConfig(size=(48, 64), levels=3, layout="periodic", boundary="periodic"))
    >>> operator = train_on(model, train, val, "runs/mine")
    """
    kind = next((name for name, model_type in MODELS.items() if type(model) is model_type), None)
    if kind is None:
        raise ValueError(
            f"{type(model).__name__} is no network of this package, so that no folder of it could "
            "be loaded; torchcno.training.fit takes any module."
        )
    refuse_foreign_fields(model, train, val)
    fields = {"train": train, "val": val}
    scaling = normalization or recipe.normalization or "auto"
    if isinstance(scaling, str):
        scaling = Normalization.fit(fields["train"], scaling)
    refuse_moved_zero(recipe, scaling)
    operator = TrainedOperator(model, scaling, train.grid, kind, name, symmetry=recipe.group)
    folder = RunFolder(out)
    with folder.lock(hardware) as is_first:
        if is_first and not resume:
            folder.claim()
        if is_first and folder.model_file.exists():
            folder.refuse_another_operator(operator)
        task = Task(operator, fields, recipe, seed, hardware, mask)
        train_task(task, folder, on_epoch=on_epoch, resume=resume)
    return operator.eval()


def refuse_misfits(config: RunConfig, splits: Sequence[str]) -> None:
    """Refuse what cannot be trained or evaluated, without a look at data."""
    network, problem, recipe = config.architecture, config.problem, config.train
    if not splits:
        raise ValueError("no split to evaluate; name one at least, such as val.")
    for split in ("train", "val", *splits):
        Samples.of(problem, split, config.resolution).check_inputs()
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
    if recipe.augmentation not in ("none", *problem.symmetries):
        known = ", ".join(("none", *problem.symmetries))
        raise ValueError(
            f"{problem.name} has no symmetry {recipe.augmentation!r}; use augmentation {known}."
        )
    devices, nodes = extent(config.hardware)
    check_batches(recipe, recipe.samples or problem.samples["train"], devices * nodes)


def refuse_moved_zero(recipe: Recipe, scaling: Normalization) -> None:
    """Refuse a symmetry that changes signs where zero is not scaled to where it takes it to be."""
    wanted = ZEROS.get(recipe.augmentation)
    if wanted is None:
        return
    for side in SIDES:
        zeros = [-low / (high - low) for low, high in scaling.constants(side)]
        if any(abs(zero - wanted) > MOVED_ZERO for zero in zeros):
            found = ", ".join(f"{zero:.3g}" for zero in zeros)
            others = [name for name in ZEROS if name != recipe.augmentation]
            raise ValueError(
                f"augmentation {recipe.augmentation!r} takes zero to be scaled to {wanted}, and it "
                f"is scaled to {found}; use augmentation {' or '.join([*others, 'none'])}, or "
                "another normalization."
            )


def refuse_foreign_fields(model: nn.Module, train: Fields, val: Fields) -> None:
    """Refuse sets that are not of one kind, or not of the network's."""
    config, grid = model.config, train.grid
    of_model = (config.in_channels, config.out_channels)  # type: ignore[union-attr]
    for which, fields in (("train", train), ("val", val)):
        channels = (fields.inputs.shape[1], fields.outputs.shape[1])
        if channels != of_model:
            raise ValueError(
                f"`{which}` has {channels[0]} input and {channels[1]} output channels, the network "
                f"{of_model[0]} and {of_model[1]}; build it with in_channels={channels[0]}, "
                f"out_channels={channels[1]}."
            )
    layout = getattr(config, "layout", grid.layout)
    if layout != grid.layout:
        raise ValueError(
            f"`train` lies on a {grid.layout} grid, and the network takes samples to be {layout}; "
            f"build it with layout={grid.layout!r}."
        )
    if (grid.layout, grid.extent) != (val.grid.layout, val.grid.extent):
        raise ValueError(
            f"`train` lies on a {grid.layout} grid of {grid.extent}, `val` on a {val.grid.layout} "
            f"one of {val.grid.extent}; give both the same layout and extent."
        )


def versions() -> dict[str, str]:
    """What a run was made with; Fabric comes by itself or as a part of Lightning."""
    fabric = ("lightning-fabric", "lightning", "pytorch-lightning")
    found = {"python": platform.python_version()}
    for name in ("torchcno", "torch", "numpy", *fabric, "safetensors"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
