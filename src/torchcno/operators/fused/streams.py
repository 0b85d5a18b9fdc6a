"""Work beside other work on a CUDA device, in a graph.

A kernel of a small layer leaves most of a large device idle. A graph that is captured from several
streams knows what depends on what, and runs what does not depend on each other side by side.
Outside a capture, where launching is what takes the time, everything stays in its order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_ASIDE: ContextVar[torch.cuda.Stream | None] = ContextVar("aside", default=None)


class Branch:
    """The layers on x, begun now, and waited for where the `result` is asked for.

    Gradients take the same ways: autograd runs them on the streams of the forward pass.
    """

    def __init__(self, x: Tensor, *layers: Callable[[Tensor], Tensor]) -> None:
        self._stream = _forked() if is_captured(x) else None
        with put_aside(self._stream, x):
            for layer in layers:
                x = layer(x)
        self._result = x

    def result(self) -> Tensor:
        """What came of it."""
        if self._stream is not None:
            current = torch.cuda.current_stream()
            current.wait_stream(self._stream)
            self._result.record_stream(current)
        return self._result


@contextmanager
def aside() -> Iterator[None]:
    """Within the context, what `put_aside` is given runs on one stream of its own.

    It is waited for at the end of the context. Only then are its results to be read.
    """
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    stream = _forked() if capturing else None
    token = _ASIDE.set(stream)
    try:
        yield
    finally:
        _ASIDE.reset(token)
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)


def current_aside() -> torch.cuda.Stream | None:
    """The stream of the context `aside`; None: there is none, and everything stays in order."""
    return None if torch.compiler.is_compiling() else _ASIDE.get()


@contextmanager
def put_aside(stream: torch.cuda.Stream | None, *read: Tensor) -> Iterator[None]:
    """Work on `stream` within the context, after everything so far; `read` is what it reads.

    None: in its order, as ever.
    """
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    for x in read:
        x.record_stream(stream)  # its memory is no one else's before the stream is done with it
    with torch.cuda.stream(stream):
        yield


def is_captured(x: Tensor) -> bool:
    """Whether what happens to x now becomes a part of a CUDA graph."""
    return (
        x.is_cuda and not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing()
    )


def _forked() -> torch.cuda.Stream:
    """A stream that goes on from here."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return stream
