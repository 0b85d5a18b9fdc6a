"""CUDA graphs, captured so that a failure leaves nothing behind."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

PRIORITY = -1  # of the stream that is captured: what is forked from it takes what it leaves


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
    """Within the context, what is launched becomes `graph` and does not run.

    A capture that fails raises `RuntimeError`, and the work can go on without a graph. By itself
    PyTorch would leave the graph's stream current, and the device's generator marked as being
    captured, so that whoever draws random numbers is refused from then on. What was captured before
    keeps the generator of before: capture it anew.
    """
    here = torch.cuda.current_stream()
    captured = torch.cuda.graph(graph, pool=pool, stream=_chain(here.device_index))
    try:
        with torch.cuda.stream(here), _no_collection(), captured:
            yield
    except BaseException:
        generator = torch.cuda.default_generators[here.device_index]
        generator.graphsafe_set_state(generator.clone_state())  # a clone is in no capture
        raise


@cache
def _chain(device: int) -> torch.cuda.Stream:
    """The stream that captures on a device use, so that they can share memory."""
    return torch.cuda.Stream(device, priority=PRIORITY)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Within the context Python frees no cycles, among which may be an earlier graph.

    To free one is forbidden while another is captured, and ends the capture.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def reason(error: BaseException) -> BaseException:
    """Why a capture failed: what comes after that fails, too, up to the end of the capture."""
    return error if error.__context__ is None else reason(error.__context__)
