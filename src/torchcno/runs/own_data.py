"""Training on fields that the user brings: a network and two sets in, a trained operator out."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from torchcno.data.dataset import Fields, Normalization
from torchcno.disk import read_json, write_json
from torchcno.metrics import Mask
from torchcno.models import MODELS
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.plain import from_plain, to_plain
from torchcno.runs.train import claimed, pairs, versions
from torchcno.training import PRESETS, Epoch, Hardware, Recipe, fit
from torchcno.training.run_folder import RunFolder

SAME = "give the same to go on, or start a new run in another folder."


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
    normalization: Normalization | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    resume: bool = False,
) -> TrainedOperator:
    """Train a network of this package on any fields, into the folder `out`, which `load` opens.

    Fields are scaled to [0, 1] by the extremes of `train`, unless `normalization` says otherwise
    (`Normalization.identity()`: not at all), and the weights that do best on `val` are kept, as for
    the benchmarks; the rest is as in `training.fit`. `name` is what the operator calls its problem.
    The initial weights are those of `model`: seed torch before it is built, and
    an interrupted run goes on to the end that it would have come to with `resume=True`.

    >>> train = Fields(inputs[:800], outputs[:800], Grid((48, 64), "periodic"))
    >>> val = Fields(inputs[800:], outputs[800:], Grid((48, 64), "periodic"))
    >>> model = CNO(CNOConfig(size=(48, 64), levels=3, layout="periodic", boundary="periodic"))
    >>> operator = train_on(model, train, val, "runs/mine")
    """
    kind, folder = _name_of(model), Path(out)
    _refuse_misfits(model, train, val)
    train, val = _in_float32(train), _in_float32(val)
    normalization = normalization or Normalization.fit(train)
    operator = TrainedOperator(model, normalization, train.grid, kind, name)
    with claimed(folder, hardware) as is_first:
        if is_first:
            if not resume:
                if RunFolder(folder).has_begun:
                    raise ValueError(f"{folder} holds a run; choose another, or give resume=True.")
                RunFolder(folder).refuse_weights()
            described = folder / "model.json"
            if resume and described.exists():
                _refuse_another(operator, described)
            else:
                write_json({**operator.description(), "versions": versions()}, described)
        fit(
            model,
            pairs(train, normalization, mask),
            pairs(val, normalization, mask),
            recipe,
            folder,
            seed=seed,
            hardware=hardware,
            on_epoch=on_epoch,
            resume=resume,
        )
    return operator.eval()


def _name_of(model: nn.Module) -> str:
    """What `MODELS` calls the class of `model`: the name by which `load` builds it again."""
    for name, kind in MODELS.items():
        if type(model) is kind:
            return name
    raise ValueError(
        f"{type(model).__name__} is no network of this package, so that no folder of it could be "
        "loaded; torchcno.training.fit takes any module."
    )


def _refuse_another(operator: TrainedOperator, path: Path) -> None:
    """Refuse to go on with another network, scaling or grid than `path` says of the weights."""
    there = read_json(path)
    if there["model"] != operator.model:
        raise ValueError(f"{path} is of the model {there['model']}, not {operator.model}; {SAME}")
    given = {
        "config": operator.network.config,
        "normalization": operator.normalization,
        "grid": operator.grid,
    }
    for part, value in given.items():
        before, now = to_plain(from_plain(type(value), there[part], part)), to_plain(value)
        changed = [f"{key} {before[key]}, not {now[key]}" for key in now if before[key] != now[key]]
        if changed:
            raise ValueError(f"{path} has another {part}: {', '.join(changed)}; {SAME}")


def _in_float32(fields: Fields) -> Fields:
    """What networks compute in; NumPy's arrays are of float64 unless said otherwise."""
    return Fields(fields.inputs.float(), fields.outputs.float(), fields.grid)


def _refuse_misfits(model: nn.Module, train: Fields, val: Fields) -> None:
    """Refuse sets that are not of one kind, or not of the network's."""
    config = model.config
    of_model = (config.in_channels, config.out_channels)  # type: ignore[union-attr]
    for which, fields in (("train", train), ("val", val)):
        channels = (fields.inputs.shape[1], fields.outputs.shape[1])
        if channels != of_model:
            raise ValueError(
                f"`{which}` has {channels[0]} input and {channels[1]} output channels, the network "
                f"{of_model[0]} and {of_model[1]}; build it with in_channels={channels[0]}, "
                f"out_channels={channels[1]}."
            )
    layout = getattr(config, "layout", train.grid.layout)
    if layout != train.grid.layout:
        raise ValueError(
            f"`train` lies on a {train.grid.layout} grid, and the network takes samples to be "
            f"{layout}; build it with layout={train.grid.layout!r}."
        )
    if train.grid.layout != val.grid.layout or train.grid.extent != val.grid.extent:
        raise ValueError(
            f"`train` lies on a {train.grid.layout} grid of {train.grid.extent}, `val` on a "
            f"{val.grid.layout} one of {val.grid.extent}; give both the same layout and extent."
        )
