"""SIGINT and SIGTERM as a question the loop asks between two steps."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(RuntimeError):  # noqa: N818
    """A signal asked the run to stop, and its state is saved."""


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """A function that is true once SIGINT or SIGTERM came; a second signal raises.

    A signal that raised at once could leave a step half done. One that the body does not answer by
    `Interrupted`, since its work was done, say, is sent again in the end: whoever has called shall
    not begin the next thing. Outside the main thread, where Python delivers no signals, the
    function stays false.
    """
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = {s: signal.signal(s, receive) for s in (signal.SIGINT, signal.SIGTERM)}
    answered = False
    try:
        yield lambda: bool(received)
    except (Interrupted, KeyboardInterrupt):
        answered = True
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if received and not answered:
            signal.raise_signal(received[0])


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM, by which batch systems end a job, as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
