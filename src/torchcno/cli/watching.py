"""What a run in training shows: what runs where, progress with the time left, and its errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torchcno.cli import DIVERGED, INTERRUPTED, Stop
from torchcno.cli.terminal import show_errors
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.watching import Watch, show_training, show_verdict
from torchcno.training import Diverged, Interrupted
from torchcno.training.hardware import is_first_process


@contextmanager
def watch_training(config: RunConfig, go_on: str) -> Iterator[Watch]:
    """Say what runs, show its progress and, if it is interrupted, the command to `go_on` by."""
    speaks = is_first_process(config.hardware)  # of several processes, one
    try:
        with show_training(config) if speaks else nullcontext(Watch()) as watch:
            yield watch
    except Diverged as diverged:
        raise Stop(DIVERGED, str(diverged) if speaks else "") from diverged
    except (Interrupted, KeyboardInterrupt) as interrupted:
        words = f"interrupted; go on with: {go_on}" if speaks else ""
        raise Stop(INTERRUPTED, words) from interrupted


def show_result(folder: Path, result: Mapping[str, Any] | None, epochs: int) -> None:
    """Print what a run of `epochs` came to; its further processes have nothing to say."""
    if not result:
        return
    channels = {
        f"{split}, channel {c}": summary
        for split, summaries in result.get("channel_errors", {}).items()
        for c, summary in enumerate(summaries)
    }
    show_errors({**result["errors"], **channels})
    show_verdict(folder, result, epochs)
    further = f"; further: cno evaluate {folder}, cno predict {folder} FILE"
    print(f"All of it is in {folder}{further if RunFolder(folder).weights.exists() else '.'}")
