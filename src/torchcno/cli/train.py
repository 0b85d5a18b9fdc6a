"""`cno train`: one model on one problem, into a run folder."""

import sys
import textwrap
from argparse import ArgumentParser as PlainParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from torchcno.arithmetic import FIELDS, Precision
from torchcno.cli import DIVERGED, INTERRUPTED, Stop
from torchcno.cli.arguments import add_fields, field_comments, leading_names, parse, parser_of
from torchcno.cli.terminal import error_table, progress_bars
from torchcno.models import MODELS
from torchcno.problems import PROBLEMS
from torchcno.runs.config import RunConfig, read_tree, section
from torchcno.runs.folder import RunFolder
from torchcno.runs.operator import pick_device
from torchcno.runs.plain import to_plain
from torchcno.runs.train import Watch, train_run
from torchcno.training import PRESETS, Diverged, Epoch, Interrupted
from torchcno.training.hardware import device_name, extent, is_captured, is_first_process
from torchcno.training.interruption import terminable

ARITHMETIC: dict[Precision, str] = {
    "32": "float32",
    "tf32": "products in TF32",
    "fp16-mixed": "fields in float16",
    "bf16-mixed": "fields in bfloat16",
}


def _listed(names: Iterable[str]) -> str:
    return textwrap.fill(
        ", ".join(names), width=90, subsequent_indent=12 * " ", break_on_hyphens=False
    )


DESCRIPTION = f"""\
Train a model on a problem, and evaluate it in and out of distribution.

  problems  {_listed(PROBLEMS)}
  models    {_listed(MODELS)}
  presets   {_listed(PRESETS)}

Every field of the problem, the model and the training recipe is an option. Defaults are the
paper's hyper-parameters for that model and problem, under the recipe of the preset; a
configuration file goes over the defaults, and options over the file."""
EXAMPLES = """
cno train poisson cno --help                      the options, with their defaults
cno train poisson cno --out runs/p1
cno train poisson cno --out runs/p2 --preset paper --seed 1 --device cuda
cno train poisson cno --out runs/p3 --problem.K 20 --model.width 16 --train.epochs 300
cno train --config runs/p3/config.yaml --out runs/p4 --seed 1
"""


def main(arguments: Sequence[str]) -> None:
    """Resolve the configuration, train, and print the errors."""
    config, out = resolve(arguments)
    if out is None:
        raise ValueError("say where the run shall lie: --out FOLDER.")
    with watched(config, go_on=f"cno resume {out}") as watch:
        result = train_run(config, out, watch)
    report(out, result)


def resolve(arguments: Sequence[str]) -> tuple[RunConfig, Path | None]:
    """The configuration that `arguments` amount to, and the folder of the run."""
    config, given = run_options("train", train_parser, arguments)
    return config, given.out


def run_options(
    verb: str, parser: Callable[[RunConfig | None], ArgumentParser], arguments: Sequence[str]
) -> tuple[RunConfig, Namespace]:
    """The configuration that the `arguments` of a verb amount to, and all that was given.

    Which options there are depends on problem and model, so that their names have to come first.
    """
    tree = early_tree(arguments)
    base = RunConfig.from_tree(tree) if {"problem", "model"} <= tree.keys() else None
    remedy = (
        f"name a problem and a model before all options: cno {verb} PROBLEM MODEL --out FOLDER."
    )
    if base is None and not {"-h", "--help"} & set(arguments):
        raise ValueError(remedy)
    given = parse(parser(base), arguments)
    assert base is not None  # or the help was shown
    if given.names != leading_names(arguments)[:2]:
        raise ValueError(f"{' '.join(given.names)} is not understood; {remedy}")
    return RunConfig.from_tree(with_options(tree, base, given)), given


def early_tree(arguments: Sequence[str]) -> dict[str, Any]:
    """What decides which options there are, and their defaults."""
    first = PlainParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--preset")
    first.add_argument("--resolution", type=int)
    early = vars(first.parse_known_args(list(arguments))[0])
    path = early.pop("config")
    tree = read_tree(path) if path else {}
    for key, name in zip(("problem", "model"), leading_names(arguments), strict=False):
        fields = section(tree, key)
        if fields.setdefault("name", name) != name:
            raise ValueError(f"{path} is of {key} {fields['name']}, not {name}; leave one out.")
        tree[key] = fields
    preset = early["preset"] or tree.get("preset")
    if tree.get("preset", preset) != preset:
        raise ValueError(
            f"{path} is of preset {tree['preset']}, not {preset}; leave --preset out, or name "
            "PROBLEM MODEL in place of the file."
        )
    if early["resolution"] not in (None, tree.get("resolution", early["resolution"])):
        # The file's network is of the file's grid: on another one it is made anew.
        tree["model"] = {k: v for k, v in section(tree, "model").items() if k != "size"}
    return {**tree, **{key: value for key, value in early.items() if value is not None}}


def train_parser(base: RunConfig | None) -> ArgumentParser:
    """The parser of `cno train`; the options of problem, model and recipe come with a `base`."""
    parser = parser_of(
        "train PROBLEM MODEL --out FOLDER [--preset PRESET] [--config FILE] [options]",
        DESCRIPTION,
        EXAMPLES,
    )
    add_run_options(parser, base)
    return parser


def add_run_options(parser: ArgumentParser, base: RunConfig | None) -> None:
    """What decides a run, as options; those of problem, model and recipe come with a `base`."""
    comments = field_comments(RunConfig)
    defaults = base or RunConfig.resolve("poisson", "cno")
    parser.add_argument("names", nargs="*", metavar="PROBLEM MODEL", help="what to train on what")
    parser.add_argument("--out", type=Path | None, help="the run's folder, a new one")
    parser.add_argument(
        "--config", type=Path | None, help="a YAML file, such as a run's config.yaml"
    )
    parser.add_argument("--preset", default=defaults.preset, help=f"{', '.join(PRESETS)}")
    parser.add_argument("--seed", type=int, default=defaults.seed, help=comments["seed"])
    parser.add_argument(
        "--resolution", type=int, default=defaults.resolution, help=comments["resolution"]
    )
    parser.add_argument("--data", type=Path | None, default=defaults.data, help=comments["data"])
    parser.add_argument("--device", default=defaults.hardware.accelerator, help="auto, cpu or cuda")
    parser.add_argument(
        "--devices", type=int, default=defaults.hardware.devices, help="devices a node"
    )
    parser.add_argument(
        "--nodes", type=int, default=defaults.hardware.nodes, help="nodes of the run"
    )
    parser.add_argument(
        "--strategy",
        default=defaults.hardware.strategy,
        help="of several devices: ddp, or fsdp, which divides the weights among them",
    )
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        default=defaults.tensorboard,
        help=comments["tensorboard"],
    )
    if base is not None:
        add_fields(parser, "problem", base.problem)
        add_fields(parser, "model", base.architecture)
        add_fields(parser, "train", base.train)


def with_options(tree: dict[str, Any], base: RunConfig, given: Namespace) -> dict[str, Any]:
    """`tree` with the options that differ from the values of the `base`."""
    there = base.to_tree()
    hardware = {
        "accelerator": given.device,
        **{name: given[name] for name in ("devices", "nodes", "strategy")},
    }
    options = {
        **{name: vars(given[name]) for name in ("problem", "model", "train")},
        "hardware": hardware,
    }
    merged = {**tree, **{key: given[key] for key in ("seed", "data", "tensorboard")}}
    for name, values in options.items():
        changed = {k: v for k, v in values.items() if to_plain(v) != there[name][k]}
        merged[name] = {**section(merged, name), **changed}
    return merged


@contextmanager
def watched(config: RunConfig, go_on: str) -> Iterator[Watch]:
    """What runs, progress bars for it, and where it is interrupted the command to `go_on` by."""
    if not is_first_process(config.hardware):  # of several: one of them speaks
        try:
            yield Watch()
        except Diverged as diverged:
            raise SystemExit(DIVERGED) from diverged
        except (Interrupted, KeyboardInterrupt) as interrupted:
            raise SystemExit(INTERRUPTED) from interrupted
        return
    print(opening(config), file=sys.stderr)
    with progress_bars() as bar:
        data, training = bar("samples"), bar("epochs")

        def on_epoch(epoch: Epoch) -> None:
            errors = (epoch.validation_error, epoch.best_validation_error)
            val, best = ("–" if e is None else f"{100 * e:.3g} %" for e in errors)
            training(
                epoch.epoch,
                config.train.epochs,
                f", loss {epoch.train_loss:.3g}, error {val}, best {best}",
            )

        try:
            with terminable():
                yield Watch(data, on_epoch)
        except Diverged as diverged:
            raise Stop(DIVERGED, str(diverged)) from diverged
        except (Interrupted, KeyboardInterrupt) as interrupted:
            raise Stop(INTERRUPTED, f"interrupted; go on with: {go_on}") from interrupted


def opening(config: RunConfig) -> str:
    """What is trained, where and how, in a line."""
    recipe, device = config.train, pick_device(config.hardware.accelerator)
    devices, nodes = extent(config.hardware)
    many = f"{devices * nodes} × " if devices * nodes > 1 else ""
    how = "operation by operation"
    if is_captured(recipe, device, devices * nodes):
        compiled = "compiled, " if recipe.fast == "compiled" else ""
        how = f"fast, {compiled}a step is one CUDA graph (else: --train.fast off)"
    if device.type == "cuda" or recipe.precision in FIELDS:
        how += f", {ARITHMETIC[recipe.precision]}"
    return f"{config.problem.name}, {config.model} on {many}{device_name(device)}: {how}"


def report(folder: Path, result: Mapping[str, Any]) -> None:
    """Print what a run came to; a run's further processes have nothing to say."""
    if not result:
        return
    Console().print(error_table(result["errors"]))
    further = f"; further: cno evaluate {folder}, cno predict {folder} FILE"
    print(f"All of it is in {folder}{further if RunFolder(folder).weights.exists() else '.'}")
