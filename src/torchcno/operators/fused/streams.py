"""Work beside other work on a CUDA device, in a graph.

A kernel of a small layer leaves most of a large device idle. A graph that is captured from several
streams knows what depends on what, and runs what does not depend on each other side by side.
Outside a capture, where launching is what takes the time, everything stays in its order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor, nn

from torchcno.operators.fused.weights import Copies, copy_weights

T = TypeVar("T")
STREAMS = 32  # that PyTorch has of one priority: it gives them out in turn
# For gradients of weights, which fill a device only together. One stream of them alone comes to its
# end long after the chain of a step does.
SIDES = 3


@dataclass
class Aside:
    """Streams for what no one in the chain of a step waits for, and what is done in its end.

    Many small things of one kind are one kernel there.
    """

    streams: Sequence[torch.cuda.Stream]  # none: everything stays in its order
    weights: Sequence[Tensor]  # of convolutions, which are copied together
    gradients: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)
    untouched: list[nn.Parameter] = field(default_factory=list)  # whose gradient is zero
    counted: list[Tensor] = field(default_factory=list)  # to which one is added
    told: list[tuple[Tensor, Tensor, float]] = field(default_factory=list)  # a, b, c: a ← a + cb
    _copies: Copies | None = None
    _turns: Iterator[int] = field(default_factory=count)

    def next_stream(self) -> torch.cuda.Stream | None:
        """The stream whose turn it is."""
        return self.streams[next(self._turns) % len(self.streams)] if self.streams else None

    def copies(self, dtype: torch.dtype) -> Copies:
        """The weights as `dtype`, and turned; the first call of a step copies all of them."""
        if self._copies is None:
            self._copies = copy_weights(self.weights, dtype)
        return self._copies

    @torch.no_grad()
    def close(self) -> None:
        """Wait for the streams, and do what was left for the end."""
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        if self.untouched:
            sizes = [parameter.numel() for parameter in self.untouched]
            zeros = self.untouched[0].new_zeros(sum(sizes)).split(sizes)
            for parameter, zero in zip(self.untouched, zeros, strict=True):
                _add_gradient(parameter, zero.view_as(parameter))
        alike = list[tuple[nn.Parameter, Tensor]]()
        for parameter, gradient in self.gradients:
            if gradient.stride() != parameter.stride():
                gradient = torch.empty_like(parameter).copy_(gradient)
            if gradient.dtype == parameter.dtype:
                _add_gradient(parameter, gradient)
            else:
                alike.append((parameter, gradient))
        if alike:
            wide = [torch.empty_like(parameter) for parameter, _ in alike]
            torch._foreach_copy_(wide, [gradient for _, gradient in alike])
            for (parameter, _), gradient in zip(alike, wide, strict=True):
                _add_gradient(parameter, gradient)
        for counted in _apart([(counter,) for counter in self.counted]):
            torch._foreach_add_([counter for (counter,) in counted], 1)
        for factor in dict.fromkeys(factor for *_, factor in self.told):
            for those in _apart([(a, b) for a, b, c in self.told if c == factor]):
                torch._foreach_add_([a for a, _ in those], [b for _, b in those], alpha=factor)


_ASIDE: ContextVar[Aside | None] = ContextVar("aside", default=None)


class Lane:
    """Streams of one piece of work, which no other piece beside it uses."""

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self.stream, *self._sides = streams
        self._turns = count()

    def next_side(self) -> torch.cuda.Stream:
        """A stream for a part of the work: each in turn."""
        return self._sides[next(self._turns) % len(self._sides)]


_LANE: ContextVar[Lane | None] = ContextVar("lane", default=None)


def side_by_side(works: Sequence[Callable[[], T]]) -> list[T]:
    """What comes of pieces of work that know nothing of each other.

    In a graph each has streams of its own, from here and back to here: also for its branches, and
    for what it puts aside. Two that shared one would wait for each other. Elsewhere, and within
    such a piece of work, they are done in their order.
    """
    capturing = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    if len(works) == 1 or _LANE.get() is not None or not capturing:
        return [work() for work in works]
    here, lanes, results = torch.cuda.current_stream(), _make_lanes(len(works)), []
    for number, work in enumerate(works):
        lane = lanes[number % len(lanes)]
        lane.stream.wait_stream(here)
        token = _LANE.set(lane)
        try:
            with torch.cuda.stream(lane.stream):
                results.append(work())
        finally:
            _LANE.reset(token)
    for lane in lanes:
        here.wait_stream(lane.stream)
    return results


def _make_lanes(number: int) -> list[Lane]:
    """As many lanes as there are streams for, two a lane at least; none has the current stream."""
    every = {stream.cuda_stream: stream for stream in (torch.cuda.Stream() for _ in range(STREAMS))}
    every.pop(torch.cuda.current_stream().cuda_stream, None)
    streams = list(every.values())
    number = min(number, len(streams) // 2)
    return [Lane(streams[first::number]) for first in range(number)]


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
def aside(model: nn.Module) -> Iterator[None]:
    """Within the context, layers leave what the chain does not wait for to `current_aside()`.

    It is done at the end of the context. Only then are its results to be read: gradients of
    weights, counters and running means of batch norms. In a graph it runs on streams of its own.
    """
    capturing = torch.cuda.is_current_stream_capturing()
    weights = [w for w in model.parameters() if w.ndim > 2 and w.is_floating_point()]
    beside = Aside([_forked() for _ in range(SIDES if capturing else 0)], weights)
    token = _ASIDE.set(beside)
    try:
        yield
    finally:
        _ASIDE.reset(token)
    beside.close()


def current_aside() -> Aside | None:
    """The one of the context `aside`; None: there is none, and everything stays in order."""
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


def _add_gradient(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.requires_grad:
        before = parameter.grad
        parameter.grad = gradient if before is None else before + gradient


def _apart(entries: Sequence[tuple[Tensor, ...]]) -> list[list[tuple[Tensor, ...]]]:
    """The entries in as few lists as it takes to have no first tensor twice in one of them.

    A network that is called several times in a step tells of its tensors as often, and one kernel
    that changes a tensor in two places would lose one of the changes.
    """
    rounds: list[list[tuple[Tensor, ...]]] = []
    seen: dict[int, int] = {}
    for entry in entries:
        number = seen[id(entry[0])] = seen.get(id(entry[0]), -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(entry)
    return rounds


def _forked() -> torch.cuda.Stream:
    """A stream that goes on from here."""
    lane = _LANE.get()
    stream = torch.cuda.Stream() if lane is None else lane.next_side()
    stream.wait_stream(torch.cuda.current_stream())
    return stream
