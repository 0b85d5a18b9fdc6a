"""Pairs that stay on a disk and come into memory a window at a time, while a network learns."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from torchcno.data.stored import StoredFields
from torchcno.training.pairs import OfSamples, Pairs

WINDOW_BYTES = 2**28  # of samples in memory at a time, unless the recipe says how many


@dataclass
class StreamedPairs(OfSamples):
    """As `Pairs`, of a set that need not fit into memory.

    An epoch goes through the set in windows. The set is cut into chunks of neighbours, which files
    read fast; an epoch draws an order of the chunks, fills windows with them, and draws an order of
    the samples within each window. While one window is learnt from, a thread reads the next. All of
    it follows from (seed, epoch), so that a run goes on in the middle of an epoch as if it had not
    stopped. A window that holds the whole set is read once, and training is that of `Pairs`.
    `first` makes one ready to use.
    """

    stored: StoredFields
    scale: Callable[[StoredFields, Tensor], Pairs]  # some samples, by number, as networks see them
    window: int  # samples in memory at a time
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tensors: tuple[Tensor, ...] = ()  # the window in memory, in one place from first to last
    inputs: Tensor = field(default_factory=lambda: torch.empty(0))  # the first ones, which stay
    _windows: list[Tensor] = field(default_factory=list)  # of the epoch: numbers of samples
    _steps: int = 0  # in a window
    _there: Tensor | None = None  # the numbers of the samples in memory
    _next: tuple[int, "Future[Pairs]"] | None = None  # the window that is being read
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __len__(self) -> int:
        return len(self.stored)

    def first(self, count: int | None) -> "StreamedPairs":
        """The first `count` samples alone, with a window in memory; None: all of them."""
        stored = self.stored if count is None else self.stored[:count]
        window = min(self.window, len(stored))
        there = in_order(stored, window)[:window]
        start = self.scale(stored, there)
        return replace(
            self,
            stored=stored,
            window=window,
            tensors=start.tensors,
            inputs=start.inputs,
            _there=there,
        )

    def to(self, device: torch.device) -> "StreamedPairs":
        """The same, with a window of its own on `device`."""
        tensors = tuple(tensor.to(device, copy=True) for tensor in self.tensors)
        return replace(self, device=device, tensors=tensors, inputs=self.inputs.to(device))

    def draw(self, generator: Generator, steps: int, size: int) -> Int[Tensor, "step sample"]:
        """Where in the window the batches of a new epoch lie; `load` brings the window there."""
        if size > self.window:
            raise ValueError(
                f"a window of {self.window} samples holds no batch of {size}; use window {size} or "
                "more, or a smaller batch_size."
            )
        numbers = in_order(self.stored, self.window)
        if self.window >= len(self):  # all of it, read once and never moved
            self._windows, self._steps = [numbers], steps
            order = torch.randperm(len(self), generator=generator)
            return order[: steps * size].view(steps, size)
        chunk = max(1, min(self.stored.chunk, self.window // 4))
        chunks = numbers.split(chunk)
        order = torch.randperm(len(chunks), generator=generator)
        scattered = torch.cat([chunks[i] for i in order.tolist()])[: steps * size]
        self._steps = self.window // size
        self._windows = [
            part[torch.randperm(len(part), generator=generator)]
            for part in scattered.split(self._steps * size)
        ]
        self._next = None
        rows = torch.arange(steps).remainder(self._steps) * size
        return rows[:, None] + torch.arange(size)

    def load(self, step: int) -> None:
        """Have the window that a step of the epoch reads in memory, and the next one on its way."""
        number = step // self._steps
        wanted = self._windows[number]
        if self._there is None or not torch.equal(self._there, wanted):
            self._put(self._take(number))
            self._there = wanted
        following = number + 1
        if following < len(self._windows) and (self._next is None or self._next[0] != following):
            self._next = following, self._reader.submit(self._read, self._windows[following])

    def _take(self, number: int) -> Pairs:
        """A window of the epoch, from the thread that read it where there is one."""
        if self._next is not None and self._next[0] == number:
            pairs = self._next[1].result()
            self._next = None
            return pairs
        return self._read(self._windows[number])

    def _read(self, numbers: Tensor) -> Pairs:
        pairs = self.scale(self.stored, numbers)
        if self.device.type == "cuda":  # from where copies need not be waited for
            return Pairs(*(tensor.contiguous().pin_memory() for tensor in pairs.tensors))
        return pairs

    def _put(self, pairs: Pairs) -> None:
        for buffer, tensor in zip(self.tensors, pairs.tensors, strict=True):
            buffer[: len(tensor)].copy_(tensor, non_blocking=True)


def in_order(stored: StoredFields, window: int) -> Tensor:
    """The samples by number: in their own order where all are in memory, else as they lie."""
    numbers = stored.all_numbers
    return numbers if window >= len(stored) else numbers.sort().values


def window_of(stored: StoredFields, window: int | None) -> int:
    """How many samples are in memory at a time: as many as said, or 256 MB of them."""
    by_size = max(1, WINDOW_BYTES // stored.sample_bytes)
    return min(len(stored), by_size if window is None else window)
