"""Progress bars on the terminal; rich is imported when something is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Move = Callable[..., None]  # (done, total, note="")


@contextmanager
def progress_bars() -> Iterator[Callable[[str], Move]]:
    """A maker of bars with the time left: `bar = make("epochs")`, then `bar(3, 100)`.

    A bar shows from its first move on. Its note is shown by its `str`, asked for twice a second.
    On standard error, so that output can be piped.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as progress:

        def make(label: str) -> Move:
            task = progress.add_task(label, visible=False, note="")

            def move(done: int, total: int, note: object = "") -> None:
                progress.update(task, completed=done, total=total, note=note, visible=True)

            return move

        yield make
