"""What a run in training shows: what runs where, progress with the time left, and its errors."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torchcno.arithmetic import FIELDS, Precision
from torchcno.cli import DIVERGED, INTERRUPTED, Stop
from torchcno.cli.terminal import progress_bars, show_errors
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.operator import pick_device
from torchcno.runs.presets import model_class
from torchcno.runs.train import Watch
from torchcno.training import Diverged, Epoch, Interrupted
from torchcno.training.hardware import device_name, extent, is_captured, is_first_process
from torchcno.training.interruption import terminable
from torchcno.training.loop import choose_precision

ARITHMETIC: dict[Precision, str] = {
    "32": "float32",
    "tf32": "products in TF32",
    "fp16-mixed": "fields in float16",
    "bf16-mixed": "fields in bfloat16",
}


@contextmanager
def watch_training(config: RunConfig, go_on: str) -> Iterator[Watch]:
    """Say what runs, show its progress and, if it is interrupted, the command to `go_on` by."""
    speaks = is_first_process(config.hardware)  # of several processes, one
    try:
        with _progress(config) if speaks else nullcontext(Watch()) as watch:
            yield watch
    except Diverged as diverged:
        raise Stop(DIVERGED, str(diverged) if speaks else "") from diverged
    except (Interrupted, KeyboardInterrupt) as interrupted:
        words = f"interrupted; go on with: {go_on}" if speaks else ""
        raise Stop(INTERRUPTED, words) from interrupted


@contextmanager
def _progress(config: RunConfig) -> Iterator[Watch]:
    print(describe_run(config), file=sys.stderr)
    with progress_bars() as bar, terminable():
        data, training = bar("samples"), bar("epochs")

        def on_epoch(epoch: Epoch) -> None:
            errors = (epoch.validation_error, epoch.best_validation_error)
            val, best = ("–" if e is None else f"{100 * e:.3g} %" for e in errors)
            note = f", loss {epoch.train_loss:.3g}, error {val}, best {best}"
            training(epoch.epoch, config.train.epochs, note)

        yield Watch(data, on_epoch)


def describe_run(config: RunConfig) -> str:
    """What is trained, where and how, in a line."""
    recipe, device = config.train, pick_device(config.hardware.accelerator)
    devices, nodes = extent(config.hardware)
    many = f"{devices * nodes} × " if devices * nodes > 1 else ""
    how = "operation by operation"
    if is_captured(recipe, device, devices * nodes):
        compiled = "compiled, " if recipe.fast == "compiled" else ""
        how = f"fast, {compiled}a step is one CUDA graph (else: --train.fast off)"
    precision = choose_precision(recipe, model_class(config.model), device)
    if device.type == "cuda" or precision in FIELDS:
        how += f", {ARITHMETIC[precision]}"
    return f"{config.problem.name}, {config.model} on {many}{device_name(device)}: {how}"


def show_result(folder: Path, result: Mapping[str, Any] | None) -> None:
    """Print what a run came to; a run's further processes have nothing to say."""
    if not result:
        return
    show_errors(result["errors"])
    further = f"; further: cno evaluate {folder}, cno predict {folder} FILE"
    print(f"All of it is in {folder}{further if RunFolder(folder).weights.exists() else '.'}")
