import gc
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from torchcno import capture
from torchcno.capture import capturing, reason


class StandIn:
    """A generator, as far as captures concern it."""

    def __init__(self, captured: bool = False) -> None:
        self.captured = captured

    def clone_state(self) -> "StandIn":
        return StandIn()

    def graphsafe_set_state(self, other: "StandIn") -> None:
        self.captured = other.captured


def fail_twice() -> None:
    try:
        raise RuntimeError("it waits for the device")
    finally:
        raise RuntimeError("nor does what comes after it work")


def stand_in_for_cuda(monkeypatch, graph, generator):
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "default_generators", (StandIn(), generator))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(device_index=1))
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(capture, "_chain", lambda device: None)


def test_a_capture_that_fails_gives_its_reason_and_frees_the_generator(monkeypatch):
    generator = StandIn()

    @contextmanager
    def graph(_, pool, stream):
        """As PyTorch's: its end fails too, and comes before the generator is let go."""
        generator.captured = True
        try:
            yield
        finally:
            raise RuntimeError("capture invalidated")

    stand_in_for_cuda(monkeypatch, graph, generator)
    with pytest.raises(RuntimeError, match="invalidated") as failed, capturing(None):
        fail_twice()
    assert str(reason(failed.value)) == "it waits for the device"
    assert not generator.captured


@pytest.mark.parametrize("collects", [True, False])
def test_python_frees_no_cycles_from_the_begin_to_the_end_of_a_capture(monkeypatch, collects):
    seen = []

    @contextmanager
    def graph(_, pool, stream):
        seen.append(gc.isenabled())
        yield
        seen.append(gc.isenabled())

    stand_in_for_cuda(monkeypatch, graph, StandIn())
    (gc.enable if collects else gc.disable)()
    try:
        with capturing(None):
            seen.append(gc.isenabled())
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert seen == [False] * 3


@pytest.mark.gpu
def test_a_capture_that_fails_leaves_stream_and_random_numbers_as_they_were():
    torch.cuda.manual_seed(7)
    expected = torch.rand(5, device="cuda")
    torch.cuda.manual_seed(7)
    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError), capturing(torch.cuda.CUDAGraph()):
        torch.rand(3, device="cuda").sum().item()
    assert torch.cuda.current_stream() == stream
    assert torch.equal(torch.rand(5, device="cuda"), expected)
