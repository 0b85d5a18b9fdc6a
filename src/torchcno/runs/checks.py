"""What cannot be trained is refused, with what to do, before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcno.data.fields import Fields
from torchcno.data.normalization import SIDES, Normalization
from torchcno.data.samples import Samples
from torchcno.data.stored import StoredFields, in_memory
from torchcno.data.trajectories import Trajectories
from torchcno.grids import Grid
from torchcno.operators.conditioning import conditioning_of
from torchcno.runs.choose import count_windows
from torchcno.runs.config import RunConfig, differences
from torchcno.runs.own import OwnData, OwnSet
from torchcno.runs.physics import refuse_without_equation
from torchcno.runs.presets import is_foreign, parameter_count
from torchcno.sizes import refuse_without_memory
from torchcno.training import PRESETS, Hardware, Recipe
from torchcno.training.augmentation import ZEROS, contradiction
from torchcno.training.hardware import extent
from torchcno.training.loop import check_batches
from torchcno.training.windows import parameter_names

MOVED_ZERO = 0.1  # how far from its place a scaled zero is taken to be moved: extremes are sampled
# The fields of a recipe that are of trajectories alone.
OF_TIME = ("lead_times", "unroll", "unroll_gradients", "noise", "residual", "time_weights")


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


def refuse_time_training(recipe: Recipe) -> None:
    """Refuse a recipe for trajectories where there are pairs of fields."""
    usual = {field.name: field.default for field in fields_of(Recipe)}
    given = [name for name in OF_TIME if getattr(recipe, name) != usual[name]]
    if given:
        raise ValueError(
            f"{', '.join(given)} is for trajectories, and the data are pairs of fields; leave it "
            "out, or give trajectories: Trajectories in Python, --times for a problem, --time for "
            "a file."
        )


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


def check_trajectories(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The sets that are given, if all of them are trajectories of one kind."""
    given = {which: one for which, one in sets.items() if one is not None}
    train = given["train"]
    for which, one in given.items():
        if not isinstance(one, Trajectories):
            raise ValueError(
                f"`train` is Trajectories, and `{which}` is a {type(one).__name__}; give "
                "Trajectories for both."
            )
        if parameter_names(one) != parameter_names(train):
            raise ValueError(
                f"the trajectories of `train` have the parameters {parameter_names(train)}, those "
                f"of `{which}` {parameter_names(one)}; give the same."
            )
    return given


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
