"""What a training shows: what runs where, progress with the time left, and whether it learnt.

`torchcno.train` and the command line show the same.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from torchcno.arithmetic import FIELDS, Precision
from torchcno.data.normalization import Normalization, describe_scaling
from torchcno.runs.choose import describe_choice
from torchcno.runs.config import RunConfig
from torchcno.runs.own import OwnData
from torchcno.runs.presets import is_foreign, model_class, parameter_count
from torchcno.runs.progress import progress_bars
from torchcno.runs.verdict import Verdict
from torchcno.training import Epoch, EventFile
from torchcno.training.hardware import device_name, extent, is_captured, pick_device
from torchcno.training.interruption import terminable
from torchcno.training.loop import choose_precision

ARITHMETIC: dict[Precision, str] = {
    "32": "float32",
    "tf32": "products in TF32",
    "fp16-mixed": "fields in float16",
    "bf16-mixed": "fields in bfloat16",
}


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run; none by default."""

    data: Callable[[int, int], None] | None = None  # samples made, samples in all
    epoch: Callable[[Epoch], None] | None = None
    scaling: Callable[[Normalization], None] | None = None  # by which fields are scaled


NO_ONE = Watch()


@contextmanager
def show_training(config: RunConfig) -> Iterator[Watch]:
    """Say what runs, and show its progress."""
    print(describe_run(config), file=sys.stderr)
    is_own = isinstance(config.problem, OwnData)
    if is_own and not is_foreign(config.model):
        count = parameter_count(config.model, config.architecture).reals
        words = describe_choice(config.model, config.architecture, config.train, count)
        print(words, file=sys.stderr)
    with progress_bars() as bar, terminable():
        data, training = bar("samples"), bar("epochs")

        def on_scaling(scaling: Normalization) -> None:
            print(f"scaling: {'; '.join(describe_scaling(scaling))}", file=sys.stderr)

        def on_epoch(epoch: Epoch) -> None:
            errors = (epoch.validation_error, epoch.best_validation_error)
            val, best = ("–" if e is None else f"{100 * e:.3g} %" for e in errors)
            note = f", loss {epoch.train_loss:.3g}, error {val}, best {best}"
            training(epoch.epoch, config.train.epochs, note)

        yield Watch(data, on_epoch, on_scaling if is_own else None)


@contextmanager
def draw_curves(config: RunConfig, folder: Path, watch: Watch) -> Iterator[list[Watch]]:
    """`watch` for every member, with the curves of TensorBoard where they are asked for."""
    if not config.tensorboard:
        yield [watch] * config.members
        return
    places = [folder]
    if config.members > 1:  # TensorBoard takes each folder for a run
        places = [folder / str(number) for number in range(config.members)]

    def tell_both(draw: EventFile) -> Watch:
        def on_epoch(epoch: Epoch) -> None:
            for tell in (draw, watch.epoch):
                if tell is not None:
                    tell(epoch)

        return replace(watch, epoch=on_epoch)

    with ExitStack() as files:
        yield [tell_both(files.enter_context(closing(EventFile(place)))) for place in places]


def describe_run(config: RunConfig) -> str:
    """What is trained, where and how, in a line."""
    recipe, device = config.train, pick_device(config.hardware.accelerator)
    devices, nodes = extent(config.hardware)
    many = f"{devices * nodes} × " if devices * nodes > 1 else ""
    how = "operation by operation"
    if is_captured(recipe, device, devices * nodes):
        compiled = "compiled, " if recipe.fast == "compiled" else ""
        how = f"fast, {compiled}a step is one CUDA graph (else: --train.fast off)"
    network = nn.Module if is_foreign(config.model) else model_class(config.model)
    precision = choose_precision(recipe, network, device)
    if device.type == "cuda" or precision in FIELDS:
        how += f", {ARITHMETIC[precision]}"
    members = f"{config.members} members of " if config.members > 1 else ""
    return f"{config.problem.label}, {members}{config.model} on {many}{device_name(device)}: {how}"


def show_verdict(folder: Path, result: Mapping[str, Any], epochs: int) -> None:
    """Three lines: did it learn, where does it hold, and what to try."""
    if "verdict" in result:  # not in results of before
        print(*Verdict(**result["verdict"]).lines(str(folder), epochs), sep="\n")
