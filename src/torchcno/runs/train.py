"""Runs: one model trained on one set of fields, kept in a `RunFolder`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.data.stored import StoredFields
from torchcno.data.trajectories import Trajectories
from torchcno.metrics import Mask
from torchcno.models import MODELS
from torchcno.models.ensemble import Ensemble
from torchcno.runs.checks import (
    check_arguments,
    check_sets,
    refuse_foreign_fields,
    refuse_large_network,
    refuse_misfits,
    refuse_unlike,
)
from torchcno.runs.config import RunConfig, write_tree
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.fitting import train_tasks
from torchcno.runs.folder import Mode, RunFolder
from torchcno.runs.loading import load_split, load_training
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.own import (
    OwnData,
    OwnSet,
    hash_fields,
    keep_fields,
    open_splits,
    present_splits,
)
from torchcno.runs.presets import is_foreign
from torchcno.runs.task import Loss, build_network, make_operator, make_task
from torchcno.runs.watching import NO_ONE, Watch, draw_curves, show_training, show_verdict
from torchcno.training import PRESETS, Diverged, Epoch, Hardware, Recipe, save_tensors
from torchcno.training.hardware import is_first_process, pick_device


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
            watches.append(opened.enter_context(draw_curves(one, folder.curves, watch)))
            results.append(opened.enter_context(folder.open(one, mode)))
        todo = [i for i, result in enumerate(results) if result is None]
        is_first = is_first_process(config.hardware)
        for i in todo if is_first else ():
            # Also of a run that goes on: whoever evaluates it reads there where the data are now.
            write_tree(configs[i].to_tree(), folders[i].config_file)
        if todo:
            where = pick_device(config.hardware.accelerator)
            making: dict[str, Any] = {"device": where, "progress": watch.data}
            # Also what is evaluated later: data that cannot be made shall not spoil a trained run.
            fields: dict[str, OwnSet] = {
                split: load_split(config, split, **making)
                for split in dict.fromkeys(("val", *splits))
            }
            fields["train"] = load_training(config, **making)
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
    folder = RunFolder(out)
    fields = check_sets({"train": train, "val": val, "test": test, "ood": ood})
    if mask is not None and isinstance(train, Trajectories):
        raise ValueError("`mask` is for pairs of fields; all points of trajectories count.")
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
            task = replace(task, config=config)
            (result,) = train_tasks([task], [folder], splits, [told] * members, resume)
            if isinstance(result, Diverged):
                raise result
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
    """The same run, which knows by hash what a user's data are now."""
    data = config.problem
    if not isinstance(data, OwnData) or data.hashes:
        return config
    hashes = {split: hash_fields(fields) for split, fields in open_splits(data).items()}
    return replace(config, problem=replace(data, hashes=hashes))


def keep_data(data: OwnData, fields: Mapping[str, OwnSet], folder: RunFolder) -> OwnData:
    """The same data, with a copy in the run's folder unless one is there."""
    if folder.data_file.exists():
        return replace(data, source={"kept": str(folder.data_file.absolute())})
    return replace(data, source=keep_fields(fields, folder.data_file))
