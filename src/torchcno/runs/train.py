"""A run: one model trained on one set of fields, kept in a `RunFolder`."""

import copy
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcno.arithmetic import arithmetic
from torchcno.data.fields import Fields
from torchcno.data.normalization import SIDES, Normalization
from torchcno.data.samples import Samples
from torchcno.data.statistics import OddData, fields_statistics, find_oddities
from torchcno.data.stored import StoredFields, in_memory
from torchcno.data.trajectories import Trajectories
from torchcno.disk import write_json
from torchcno.evaluation.errors import channel_errors, sample_errors, summary
from torchcno.evaluation.mean_field import mean_field
from torchcno.evaluation.resolution import Evaluation
from torchcno.evaluation.timing import inference_time
from torchcno.grids import Grid
from torchcno.metrics import Mask
from torchcno.models import MODELS, count_parameters
from torchcno.models.ensemble import Ensemble, members_of
from torchcno.operators.conditioning import conditioning_of
from torchcno.runs.choose import count_windows, refuse_time_training
from torchcno.runs.config import RunConfig, differences, write_tree
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.evolve import (
    EvolutionTask,
    as_states,
    check_trajectories,
    load_evolution,
    make_evolution_operator,
)
from torchcno.runs.folder import Mode, RunFolder, load
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import (
    OwnData,
    OwnSet,
    hash_data,
    keep_fields,
    load_split,
    load_training,
    present_splits,
)
from torchcno.runs.physics import ScaledEquation, refuse_without_equation
from torchcno.runs.presets import is_foreign, model_class, parameter_count
from torchcno.runs.ranges import TrainingRange
from torchcno.runs.rollout import EvolutionOperator
from torchcno.runs.trust import Trust, measure_trust
from torchcno.runs.verdict import judge
from torchcno.runs.watching import NO_ONE, Watch, show_training, show_verdict
from torchcno.sizes import refuse_without_memory
from torchcno.training import (
    PRESETS,
    Diverged,
    Epoch,
    EventFile,
    Fit,
    Hardware,
    Member,
    Pairs,
    Recipe,
    fit_together,
    load_into,
    load_tensors,
    save_tensors,
)
from torchcno.training.augmentation import ZEROS, contradiction
from torchcno.training.hardware import device_name, extent, is_first_process, pick_device
from torchcno.training.loop import check_batches
from torchcno.training.pairs import refuse_zeros
from torchcno.training.streaming import StreamedPairs, window_of

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (prediction, target) of a batch
RANGE_BLOCK = 64  # samples whose range is taken at a time
MOVED_ZERO = 0.1  # how far from its place a scaled zero is taken to be moved: extremes are sampled


@dataclass(frozen=True)
class Task:
    """What is to be learnt, and how."""

    operator: TrainedOperator  # to be trained: network, scaling, grid and names
    # "train", "val", and what is to be evaluated, in physical values; "train" may stay on a disk.
    fields: Mapping[str, Fields | StoredFields]
    config: RunConfig
    mask: Mask | None = None  # of physical inputs: where outputs count
    loss: Loss | None = None  # the user's; None: the recipe's

    def load(self, split: str) -> Fields:
        """The fields of a split, in memory."""
        return in_memory(self.fields[split])

    def supply(self) -> Pairs | StreamedPairs:
        """The training set as the network sees it, in memory or from the disk."""
        fields = self.fields["train"]
        if isinstance(fields, Fields):
            return replace(self.scale(fields), equation=self.equation)
        return StreamedPairs(
            fields,
            lambda stored, numbers: self.scale(stored.read(numbers)),
            window_of(fields, self.config.train.window),
        )

    @property
    def equation(self) -> ScaledEquation | None:
        """The problem's equation, where the recipe asks for it."""
        problem = self.config.problem
        if not self.config.train.physics or isinstance(problem, OwnData):
            return None
        return ScaledEquation(problem, self.operator.normalization)

    def scale(self, fields: Fields) -> Pairs:
        """Fields as the network sees them."""
        scaling = self.operator.normalization
        # Scaled first and rounded then: of 101325 ± 1 Pa in float64, float32 alone keeps little.
        scaled = Pairs(
            scaling.normalize_inputs(fields.inputs).float(),
            scaling.normalize_outputs(fields.outputs).float(),
        )
        fill = 1.0 if fields.mask is None else 0.0  # as in `sample_errors`
        return scaled.masked(lambda inputs: fields.counts(self.mask), fields.inputs, fill)

    @property
    def known(self) -> Fields | StoredFields:
        """The training set."""
        return self.fields["train"]

    @property
    def evaluated(self) -> TrainedOperator:
        """The operator whose errors a result has."""
        return self.operator

    def judged(self) -> Pairs:
        """What the network is judged by while it learns."""
        return self.scale(self.load("val"))

    def predict(self, split: str) -> torch.Tensor:
        """The outputs of a split, physical."""
        return self.operator.apply_to(self.load(split).inputs)

    def measure_trust(self) -> Trust:
        """How far to trust the operator's predictions."""
        return measure_trust(self.operator, self.known, self.load("val"), self.mask)

    def check(self) -> None:
        """Refuse, before anything is written, what no training would take."""
        wanted, there = self.config.train.samples, len(self.fields["train"])
        if wanted is not None and wanted > there:
            raise ValueError(f"samples is {wanted}, and there are {there}; use at most those.")
        refuse_zeros(self.judged(), "validation")


def train_task(
    task: Task | EvolutionTask,
    folder: RunFolder,
    splits: Sequence[str],
    watch: Watch = NO_ONE,
    resume: bool = False,
) -> dict[str, Any]:
    """Fit the operator of `task`, evaluate it on `splits`, and keep all of it in `folder`.

    Returns what result.json says; nothing in further processes of the run.
    Whoever calls has opened the folder.
    """
    watches = [watch] * task.config.members
    (result,) = train_tasks([task], [folder], splits, watches, resume)
    if isinstance(result, Diverged):
        raise result
    return result


def train_tasks(
    tasks: Sequence[Task | EvolutionTask],
    folders: Sequence[RunFolder],
    splits: Sequence[str],
    watches: Sequence[Watch],
    resume: bool = False,
) -> list[dict[str, Any] | Diverged]:
    """`train_task` for tasks that differ in their seeds alone: all members of all are fit together.

    `watches` has one for each member. A task of which a member diverges has that for a result.
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
    task: Task | EvolutionTask, folder: RunFolder, splits: Sequence[str], fits: Sequence[Fit]
) -> dict[str, Any]:
    """Evaluate a fitted operator on `splits`, and keep what it came to in `folder`."""
    operator, config = task.operator, task.config
    recipe, hardware = config.train, config.hardware
    if config.members > 1:
        save_tensors(folder.weights, operator.network.state_dict())
    device = pick_device(hardware.accelerator)
    operator.to(device)
    known, scaling, evaluations = task.known, operator.error_scaling, []
    with arithmetic(recipe.precision):  # as for the validation error
        for split in splits:
            fields = task.load(split)
            prediction = task.predict(split)
            errors = sample_errors(prediction, fields, scaling, task.mask)
            evaluations.append(Evaluation(fields, prediction, errors, split))
        evaluated = task.evaluated
        inference = inference_time(evaluated, evaluations[0].fields.inputs, repeats=5)
        ood = next((one for one in evaluations if one.split == "ood"), None)
        verdict = judge(evaluated, known, task.load("val"), evaluations[0], ood, task.mask)
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
    result["verdict"] = asdict(verdict)
    if config.members > 1:
        result["members"] = describe_members(task, evaluations, fits)
    write_json(result, folder.result_file)
    return result


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
    task: Task | EvolutionTask, evaluations: Sequence[Evaluation], fits: Sequence[Fit]
) -> list[dict[str, Any]]:
    """What each member of an ensemble came to by itself."""
    whole: Any = task  # whichever kind it is, its operators are of that kind
    scaling, described = task.operator.error_scaling, []
    for member, alone, fit in zip(task.operator.members(), task.config.alone, fits, strict=True):
        own = replace(whole, operator=member)
        with arithmetic(task.config.train.precision):
            errors = {
                one.split: summary(
                    sample_errors(own.predict(one.split), one.fields, scaling, task.mask)
                )
                for one in evaluations
            }
        described.append({"seed": alone.seed, **asdict(fit), "errors": errors})
    return described


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
    (result,) = train_runs_together([config], [out], watch, splits, mode)
    if isinstance(result, Diverged):
        raise result
    return result


def train_runs_together(
    configs: Sequence[RunConfig],
    outs: Sequence[str | Path],
    watch: Watch = NO_ONE,
    splits: Sequence[str] = EVALUATED,
    mode: Mode = "new",
) -> list[dict[str, Any] | Diverged]:
    """`train_run` for runs that differ in their seeds alone, trained together: a folder each.

    Each ends as if it had been trained by itself. On CUDA the steps of all are one graph. A run
    that diverges has that for a result, and the others go on.

    >>> config = RunConfig.resolve("poisson", "cno")
    >>> configs = [replace(config, seed=seed) for seed in range(3)]
    >>> train_runs_together(configs, ["runs/p0", "runs/p1", "runs/p2"])
    """
    refuse_unlike(configs)
    config, folders = configs[0], [RunFolder(out) for out in outs]
    problem = config.problem
    splits = present_splits(problem, tuple(splits))
    # Before there is a folder, and before the data, which may take hours.
    if not all(folder.result_file.exists() for folder in folders):
        refuse_misfits(config, splits)
    with ExitStack() as opened:
        watches, results = list[list[Watch]](), list[dict[str, Any] | Diverged | None]()
        for one, folder in zip(configs, folders, strict=True):
            watches.append(opened.enter_context(draw_curves(one, folder, watch)))
            results.append(opened.enter_context(folder.open(one, mode)))
        todo = [i for i, result in enumerate(results) if result is None]
        is_first = is_first_process(config.hardware)
        for i in todo if is_first else ():
            # Also of a run that goes on: whoever evaluates it reads there where the data are now.
            write_tree(configs[i].to_tree(), folders[i].config_file)
        if todo:
            making = {"device": pick_device(config.hardware.accelerator), "progress": watch.data}
            # Also what is evaluated later: data that cannot be made shall not spoil a trained run.
            fields = load_sets(config, tuple(dict.fromkeys(("val", *splits))), making)
            networks = [build_network(configs[i], folders[i]) for i in todo]
            operator = make_operator(config, fields["train"], networks[0])
            tasks = [
                make_task(operator.with_network(network), fields, configs[i], problem.mask)
                for i, network in zip(todo, networks, strict=True)
            ]
            for i, task in zip(todo, tasks, strict=True):
                if mode == "resume" and is_first and folders[i].model_file.exists():
                    folders[i].refuse_another_operator(task.operator)
            told = [one for i in todo for one in watches[i]]
            found = train_tasks(tasks, [folders[i] for i in todo], splits, told, mode != "new")
            results = [found.pop(0) if result is None else result for result in results]
    return [result for result in results if result is not None]


def refuse_unlike(configs: Sequence[RunConfig]) -> None:
    """Refuse runs that differ in more than their seeds: they have no steps in common."""
    for other in configs[1:]:
        changed = differences(configs[0], replace(other, seed=configs[0].seed))
        if changed:
            name, (a, b) = next(iter(changed.items()))
            raise ValueError(
                f"runs that are trained together differ in their seeds alone, and {name} is {a} "
                f"and {b}; train them one after the other."
            )


def load_sets(
    config: RunConfig, splits: Sequence[str], making: Mapping[str, Any]
) -> dict[str, OwnSet]:
    """The fields or trajectories of `splits` and of `train`."""
    samples, resolution = config.train.samples, config.resolution
    if config.times:
        return {
            split: load_evolution(config, split, samples if split == "train" else None, **making)
            for split in (*splits, "train")
        }
    how = {"folder": config.data, "resolution": resolution, **making}
    fields: dict[str, OwnSet] = {
        split: load_split(config.problem, split, **how) for split in splits
    }
    fields["train"] = load_training(config.problem, samples=samples, **how)
    return fields


def make_task(
    operator: TrainedOperator,
    fields: Mapping[str, Any],
    config: RunConfig,
    mask: Mask | None = None,
    loss: Loss | None = None,
) -> Task | EvolutionTask:
    """What is to be learnt from fields, or from trajectories."""
    if isinstance(operator, EvolutionOperator):
        return EvolutionTask(operator, fields, config, loss)
    return Task(operator, fields, config, mask, loss)


@contextmanager
def draw_curves(config: RunConfig, folder: RunFolder, watch: Watch) -> Iterator[list[Watch]]:
    """`watch` for every member, with the curves of TensorBoard where they are asked for."""
    if not config.tensorboard:
        yield [watch] * config.members
        return
    places = [folder.curves]
    if config.members > 1:  # TensorBoard takes each folder for a run
        places = [folder.curves / str(number) for number in range(config.members)]

    def tell_both(draw: EventFile) -> Watch:
        def on_epoch(epoch: Epoch) -> None:
            for tell in (draw, watch.epoch):
                if tell is not None:
                    tell(epoch)

        return replace(watch, epoch=on_epoch)

    with ExitStack() as files:
        yield [tell_both(files.enter_context(closing(EventFile(place)))) for place in places]


def build_network(config: RunConfig, folder: RunFolder) -> nn.Module:
    """The network before its training: by the seed, or with the weights that it came with."""
    if config.own_loss is not None:
        raise ValueError(
            f"the run was trained with the loss {config.own_loss}, which only Python can give "
            "again: torchcno.train(..., loss=..., resume=True)."
        )
    if config.members > 1:
        return Ensemble(build_network(alone, folder) for alone in config.alone)
    torch.manual_seed(config.seed)  # the initial weights
    network: nn.Module = model_class(config.model)(config.architecture)
    if folder.start_file.exists():
        load_into(network, load_tensors(folder.start_file)[0], folder.start_file)
    elif config.start is not None:
        weights = RunFolder(config.start).weights
        load_into(network, load_tensors(RunFolder(config.start).existing(weights))[0], weights)
    return network


def make_operator(
    config: RunConfig,
    train: OwnSet,
    network: nn.Module,
    normalization: Normalization | str | None = None,
) -> TrainedOperator:
    """`network` between the scaling that is given, or the recipe's, or its start's, or the rule's.

    A benchmark is scaled as published and own data by `auto`, unless the recipe says otherwise.
    Benchmarks' errors are always of fields as they are scaled by the published protocol.
    """
    if isinstance(train, Trajectories):
        base = make_operator(config, as_states(train), network, normalization)
        return make_evolution_operator(base, train, config.train)
    problem, recipe = config.problem, config.train
    is_own = isinstance(problem, OwnData)
    published, statistics = None, fields_statistics(train)
    if not is_own:
        name = "unit" if problem.normalized else "none"
        published = Normalization.of_statistics(*statistics, name)
    for oddity in find_oddities(*statistics) if is_own else ():
        warnings.warn(oddity, OddData, stacklevel=3)
    chosen = normalization or recipe.normalization
    if chosen is None and config.start is not None:
        chosen = load(config.start, network=copy.deepcopy(network)).normalization
    chosen = chosen or published or "auto"
    scaling = chosen
    if not isinstance(scaling, Normalization):
        scaling = Normalization.of_statistics(*statistics, scaling)
    refuse_moved_zero(recipe, scaling)
    label = problem.label if isinstance(problem, OwnData) else problem.name
    inputs = (block.inputs for block in train.blocks(RANGE_BLOCK))
    seen = TrainingRange.of(inputs, train.grid.shape)
    return TrainedOperator(
        network, scaling, train.grid, config.model, label, published, recipe.group, seen
    )


def resume_run(
    folder: str | Path,
    watch: Watch = NO_ONE,
    hardware: Hardware | None = None,
    data: str | Path | None = None,
    epochs: int | None = None,
) -> dict[str, Any]:
    """Go on with the interrupted run in `folder`, to the end that it would have come to.

    On its devices, or on other `hardware`; with its data in the folder `data`, if given. A finished
    run is left as it is, with or without its checkpoint and weights, unless it is to have more
    `epochs` in all: then it goes on from its last state, by the learning rate that the longer run
    has there.
    """
    run = RunFolder(folder)
    is_left = run.result_file.exists() and epochs is None
    config = run.config() if is_left else run.config_here(data)
    config = replace(config, hardware=hardware or config.hardware)
    if epochs is not None and epochs != config.train.epochs:
        config = prolong(run, config, epochs)
    return train_run(config, folder, watch, mode="resume")


def prolong(run: RunFolder, config: RunConfig, epochs: int) -> RunConfig:
    """Open a run again, to have `epochs` in all; its configuration then."""
    done = max((row["epoch"] for row in run.rows()), default=0)
    longer = replace(config, train=replace(config.train, epochs=epochs))
    if epochs <= done or epochs < config.train.epochs:
        least = max(done + 1, config.train.epochs)
        raise ValueError(
            f"{run.path} has {done} epochs already, not {epochs}; use {least} or more."
        )
    if done and not run.has_checkpoint:
        raise ValueError(
            f"{run.checkpoint} is not there to go on from; start a new run with these weights: "
            f"cno train ... --from {run.path}"
        )
    with run.lock(config.hardware) as is_first:
        if is_first:
            run.result_file.unlink(missing_ok=True)  # what it says is no longer of the run
            write_tree(longer.to_tree(), run.config_file)
    return longer


def train(
    model: str | nn.Module,
    train: OwnSet,
    val: OwnSet,
    out: str | Path,
    *,
    test: OwnSet | None = None,
    ood: OwnSet | None = None,
    recipe: Recipe | str | None = None,
    loss: Loss | None = None,
    name: str = "own data",
    seed: int = 0,
    members: int = 1,
    hardware: Hardware = Hardware(),  # noqa: B008
    mask: Mask | None = None,
    normalization: Normalization | str | None = None,
    start: str | Path | None = None,
    watch: Watch | None = None,
    resume: bool = False,
    **network: Any,
) -> TrainedOperator:
    """Train a network on any fields, into the run folder `out`; the operator that it became.

    train   `Fields` in memory, or fields of `open_stored`, which are read from the disk while they
            are learnt. Other sets have to fit into memory. Or `Trajectories`, of which an
            evolution in time is learnt, by `lead_times`, `unroll` and so on of the recipe: an
            `EvolutionOperator`, whose `rollout` goes on to any time.
    model   a name of `MODELS`: a network that fits the data is built (`choose_network`), whose
            fields may be given as further arguments, such as width=16. Or any `nn.Module`.
    recipe  a `Recipe`, a preset's name, or None: chosen by the number of samples
            (`choose_recipe`).
    loss    a function of (prediction, target) of a batch, in place of the recipe's.
    test    evaluated at the end, and so is `ood`, a set out of distribution; without them `val` is.
    mask    a function of physical inputs: True where outputs count.
    members networks that are trained together from different seeds. The operator predicts their
            mean, and `spread` has their standard deviation.
    start   a run folder whose weights and scaling to begin with: fine-tuning.
    resume  go on with a run that was interrupted, by the same arguments.
    watch   callbacks; None: progress and the verdict are shown on the terminal.

    Fields are scaled channel by channel: `normalization` has the constants or the name of a rule
    (`NORMALIZATIONS`), else the recipe names one, else it is `auto`: each channel is divided by its
    largest magnitude, or, where it stays far from zero, has its mean taken off and is divided by
    its deviation. The weights that do best on `val` are kept. `name` is what the operator calls its
    problem. The folder is that of any run: `cno resume`, `evaluate`, `audit`, `export` and
    `predict` take it.

    >>> fields = Fields.open("mine.nc", inputs="a", outputs="u")
    >>> train, val, test = fields.split(800, 100, 100)
    >>> operator = torchcno.train("cno", train, val, "runs/mine", test=test)
    """
    check_arguments(out, recipe, loss, mask, hardware)
    folder, fields = (
        RunFolder(out),
        check_sets({"train": train, "val": val, "test": test, "ood": ood}),
    )
    data = OwnData.of(fields, name, {})
    config = own_config(data, model, recipe, network, seed=seed, hardware=hardware, members=members)
    if start is not None:
        config = start_from(config, start, network)
    refuse_large_network(config)
    built = model if isinstance(model, nn.Module) else build_network(config, folder)
    if loss is not None:
        config = replace(config, own_loss=name_of(loss))
    if loss is not None or is_foreign(config.model):  # whether a graph can hold them, nobody knows
        config = replace(config, train=replace(config.train, fast="off"))
    refuse_foreign_fields(built, fields)
    splits = present_splits(data, EVALUATED)
    refuse_misfits(config, splits)
    operator = make_operator(config, fields["train"], built, normalization)
    task = make_task(operator, fields, config, mask, loss)
    task.check()
    shown = nullcontext(watch) if watch is not None else show_training(config)
    mode: Mode = "either" if resume else "new"
    if resume and folder.model_file.exists() and not folder.config_file.exists():
        mode = "resume"  # of before such runs had a configuration
    with shown as told, folder.open(config, mode) as finished:
        is_first = is_first_process(hardware)
        if is_first and folder.model_file.exists():
            folder.refuse_another_operator(operator)
        if finished is None:
            if is_first:
                config = replace(config, problem=keep_data(data, fields, folder))
                write_tree(config.to_tree(), folder.config_file)
                if isinstance(model, nn.Module) and not folder.has_checkpoint:
                    save_tensors(folder.start_file, model.state_dict())
            train_task(replace(task, config=config), folder, splits, told, resume=resume)
    if finished is not None:
        operator = folder.operator(network=built)
    if watch is None and is_first_process(hardware):
        show_verdict(folder.path, folder.result() or {}, config.train.epochs)
    return operator.eval()


_train = train  # whose fields have its name in what follows


def train_on(
    model: nn.Module,
    train: Fields | StoredFields,
    val: Fields | StoredFields,
    out: str | Path,
    *,
    recipe: Recipe = PRESETS["best"],
    on_epoch: Callable[[Epoch], None] | None = None,
    **arguments: Any,
) -> TrainedOperator:
    """`train` by the preset `best` unless a recipe is given, and without a word.

    >>> model = CNO(CNOConfig(size=(48, 64), levels=3, layout="periodic", boundary="periodic"))
    >>> operator = train_on(model, train, val, "runs/mine")
    """
    watch = Watch(epoch=on_epoch)
    return _train(model, train, val, out, recipe=recipe, watch=watch, **arguments)


def check_sets(sets: Mapping[str, Any]) -> dict[str, OwnSet]:
    """The sets that are given, if they are fields or trajectories; all but `train` in memory."""
    if isinstance(sets["train"], Trajectories):
        return check_trajectories(sets)
    for which, fields in sets.items():
        optional = which in ("test", "ood")
        if not (isinstance(fields, Fields | StoredFields) or (fields is None and optional)):
            raise ValueError(
                f"`{which}` is a {type(fields).__name__}; give Fields, such as "
                "Fields.open(FILE_OR_ARRAYS_OR_LOADER, inputs=..., outputs=...)."
            )
    return {
        which: fields if which == "train" else in_memory(fields)
        for which, fields in sets.items()
        if fields is not None
    }


def check_arguments(out: Any, recipe: Any, loss: Any, mask: Any, hardware: Any) -> None:
    """Refuse arguments of other types, with what to give."""
    if not isinstance(out, str | Path) or not str(out):
        raise ValueError(f"`out` is {out!r}; give a folder for the run, such as 'runs/mine'.")
    if not (recipe is None or isinstance(recipe, Recipe | str)):
        raise ValueError(
            f"`recipe` is a {type(recipe).__name__}; give Recipe(...), a preset's name "
            f"({', '.join(PRESETS)}), or None."
        )
    if not (mask is None or callable(mask)):
        raise ValueError(
            f"`mask` is a {type(mask).__name__}; give a function of the inputs that returns True "
            "where outputs count, or put the array into Fields(..., mask=...)."
        )
    if not (loss is None or callable(loss)):
        raise ValueError(
            f"`loss` is a {type(loss).__name__}; give a function of (prediction, target), or name "
            "one in the recipe: Recipe(loss=...)."
        )
    if not isinstance(hardware, Hardware):
        raise ValueError(
            f"`hardware` is a {type(hardware).__name__}; give Hardware(accelerator='cpu')."
        )


def name_of(thing: Any) -> str:
    """Where a class or a function was defined, as far as it says."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def own_config(
    data: OwnData,
    model: Any,
    recipe: Recipe | str | None,
    network: Mapping[str, Any],
    **settings: Any,
) -> RunConfig:
    """The configuration of a run on `data`; what is not said is chosen."""
    if not isinstance(model, str | nn.Module):
        raise ValueError(
            f"`model` is a {type(model).__name__}; give a name ({', '.join(MODELS)}) or a network."
        )
    if isinstance(model, nn.Module) and network:
        raise ValueError(
            f"{', '.join(network)} is for a network that is built here; build yours with it."
        )
    if isinstance(model, nn.Module) and settings.get("members", 1) > 1:
        raise ValueError(
            "members are networks that are built here, each by its own seed; give the name of a "
            f"model ({', '.join(MODELS)}), or train your network alone."
        )
    preset = recipe if isinstance(recipe, str) else "best"
    kind = model if isinstance(model, str) else kind_of(model)
    windows = {}
    if isinstance(recipe, Recipe):  # which decide what the network is told
        windows = {name: getattr(recipe, name) for name in ("lead_times", "unroll")}
    config = RunConfig.for_fields(data, kind, preset, network, windows, **settings)
    if isinstance(recipe, Recipe):
        config = replace(config, train=recipe)
    if isinstance(model, nn.Module):
        config = replace(config, architecture=getattr(model, "config", config.architecture))
    return config


def start_from(config: RunConfig, start: str | Path, network: Mapping[str, Any] = {}) -> RunConfig:
    """The same run, with the network of the run `start`, its weights and its scaling."""
    there = RunFolder(start).operator()
    if isinstance(there.network, Ensemble):
        raise ValueError(
            f"{start} is an ensemble of {len(there.members())} networks; start from the run of one."
        )
    if there.model != config.model:
        raise ValueError(f"{start} holds a {there.model}, not a {config.model}; name that model.")
    if network:
        raise ValueError(
            f"the network of {start} stays as it is; leave {', '.join(network)} out, or train anew."
        )
    return replace(config, start=Path(start).absolute(), architecture=there.network.config)


def kind_of(model: nn.Module) -> str:
    """The name of a network of this package, or of the class of another."""
    names = (name for name, model_type in MODELS.items() if type(model) is model_type)
    return next(names, None) or name_of(type(model))


def with_hashes(config: RunConfig) -> RunConfig:
    """The same run, which knows by hash what a user's data are."""
    if not isinstance(config.problem, OwnData) or config.problem.hashes:
        return config
    return replace(config, problem=hash_data(config.problem))


def keep_data(data: OwnData, fields: Mapping[str, OwnSet], folder: RunFolder) -> OwnData:
    """The same data, with a copy in the run's folder unless one is there."""
    if folder.data_file.exists():
        return replace(data, source={"kept": str(folder.data_file.absolute())})
    return replace(data, source=keep_fields(fields, folder.data_file))


def refuse_misfits(config: RunConfig, splits: Sequence[str]) -> None:
    """Refuse what cannot be trained or evaluated, without a look at data."""
    network, problem, recipe = config.architecture, config.problem, config.train
    if not splits:
        raise ValueError("no split to evaluate; name one at least, such as val.")
    if isinstance(problem, OwnData):
        refuse_another_grid(network, problem.domain)
    else:
        for split in ("train", "val", *splits):
            Samples.of(problem, split, config.resolution, times=config.times).check_inputs()
    if not config.times:
        refuse_time_training(recipe)
    refuse_large_network(config)
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
    refuse_symmetry(config)
    refuse_without_equation(config)
    devices, nodes = extent(config.hardware)
    samples = recipe.samples or problem.samples["train"]
    check_batches(recipe, count_windows(samples, config.times, recipe), devices * nodes)


def refuse_another_grid(network: Any, grid: Grid) -> None:
    """Refuse a network of another dimension, or for samples that lie elsewhere."""
    if len(network.size) != len(grid.shape):
        raise ValueError(
            f"the network is for {len(network.size)} axes (size {network.size}), and the data have "
            f"{len(grid.shape)}; leave size out."
        )
    layout = getattr(network, "layout", grid.layout)
    if layout != grid.layout:
        raise ValueError(
            f"`train` lies on a {grid.layout} grid, and the network takes samples to be {layout}; "
            f"build it with layout={grid.layout!r}."
        )


def refuse_large_network(config: RunConfig) -> None:
    """Refuse weights that do not fit into memory: with gradients and moments four times."""
    if is_foreign(config.model):
        return
    count = config.members * parameter_count(config.model, config.architecture).reals
    remedy = "use a smaller width, or fewer layers or levels"
    refuse_without_memory(4 * 4 * count, f"a network of {count:,} parameters in training", remedy)


def refuse_symmetry(config: RunConfig) -> None:
    """Refuse an augmentation that the problem has not, or that grid and dimension contradict."""
    name, problem = config.train.augmentation, config.problem
    if name in ("none", *problem.symmetries):
        return
    known = ", ".join(("none", *problem.symmetries))
    why = f"{problem.name} has no symmetry {name!r}"
    if isinstance(problem, OwnData):
        reason = contradiction(name, problem.domain, problem.channels)
        why = f"augmentation {name!r} does not fit: {reason}"
    raise ValueError(f"{why}; use augmentation {known}.")


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


def refuse_foreign_fields(model: nn.Module, given: Mapping[str, OwnSet]) -> None:
    """Refuse sets that are not of one kind, or not of the network's."""
    sets: dict[str, Fields | StoredFields] = {
        which: one.as_fields() if isinstance(one, Trajectories) else one
        for which, one in given.items()
    }
    train = sets["train"]
    config, grid = getattr(model, "config", None), train.grid
    of_data = train.channels
    of_model = tuple(
        getattr(config, f"{side}_channels", n)
        for side, n in zip(("in", "out"), of_data, strict=True)
    )
    for which, fields in sets.items():
        channels = fields.channels
        if channels != of_model:
            raise ValueError(
                f"`{which}` has {channels[0]} input and {channels[1]} output channels, the network "
                f"{of_model[0]} and {of_model[1]}; build it with in_channels={channels[0]}, "
                f"out_channels={channels[1]}."
            )
    for which, fields in sets.items():
        other = fields.grid
        if (grid.layout, grid.extent) != (other.layout, other.extent):
            raise ValueError(
                f"`train` lies on a {grid.layout} grid of {grid.extent}, `{which}` on a "
                f"{other.layout} one of {other.extent}; give both the same layout and extent."
            )
    probe_network(model, in_memory(train[:2]))


def probe_network(model: nn.Module, some: Fields) -> None:
    """Refuse a network that does not map the inputs to fields like the outputs."""
    was_training, u, v = model.training, some.inputs, some.outputs
    device = next((p.device for p in model.parameters()), None)
    if device is None:
        raise ValueError(f"{type(model).__name__} has no weights to train; give another network.")
    if device.type == "meta":
        raise ValueError(
            f"{type(model).__name__} lies on the device meta, without values; build it on the CPU."
        )
    try:
        names = conditioning_of(model)
        told = [torch.zeros(len(u), len(names), device=device)] if names else []
        with torch.no_grad():
            found = model.eval()(u.float().to(device), *told)
    except Exception as error:  # whatever a network raises is its reason
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{type(model).__name__} does not take inputs of shape {tuple(u.shape)}: "
            f"{words.rstrip('.')}; build it for these fields."
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(found, torch.Tensor) or found.shape != v.shape or found.is_complex():
        got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise ValueError(
            f"{type(model).__name__} maps inputs of shape {tuple(u.shape)} to {got}, and the "
            f"outputs have {tuple(v.shape)}; give a network that returns real fields like them."
        )


def versions() -> dict[str, str]:
    """What a run was made with; Fabric comes by itself or as a part of Lightning."""
    fabric = ("lightning-fabric", "lightning", "pytorch-lightning")
    found = {"python": platform.python_version()}
    for name in ("torchcno", "torch", "numpy", *fabric, "safetensors"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
