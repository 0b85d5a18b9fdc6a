import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from torchcno.evaluation import timing
from torchcno.evaluation.timing import BLOCK, Stopwatch, inference_time, median_seconds


class Sleeper(nn.Module):
    """Takes 2 ms, and 1 ms a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.batches: list[int] = []

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        assert not self.training
        assert torch.is_inference_mode_enabled()
        self.batches.append(len(u))
        time.sleep(0.002 + 0.001 * len(u))
        return u


def test_latency_is_of_one_sample_and_throughput_of_batches():
    model = Sleeper()
    result = inference_time(model, torch.zeros(3, 1, 4, 4), batch_size=8, repeats=3)
    assert model.batches == [1] * 5 + [8] * 5
    assert 0.003 <= result.latency_seconds < 0.3
    assert 8 / 0.6 < result.samples_per_second <= 8 / 0.010
    assert result.batch_size == 8


def test_the_median_leaves_out_warm_up_and_outliers():
    durations = iter([0.2, 0.2, 0.01, 0.15, 0.01])
    seconds = median_seconds(lambda: time.sleep(next(durations)), torch.device("cpu"), repeats=3)
    assert 0.01 <= seconds < 0.1


def test_a_block_has_enough_calls_for_the_clock(monkeypatch):
    count = 0

    def work() -> None:
        nonlocal count
        count += 1

    clock = SimpleNamespace(perf_counter=lambda: 0.001 * count)  # a call takes a millisecond
    monkeypatch.setattr(timing, "time", clock)
    watch = Stopwatch(work, torch.device("cpu"))
    watch.measure()
    assert watch.calls * watch.blocks[0] >= BLOCK / 2
    assert watch.seconds == pytest.approx(0.001)
    before = count
    watch.measure()
    assert count == before + watch.calls
    assert len(watch.blocks) == 2


def test_a_ratio_does_not_see_the_drift_that_two_share():
    drift = [1.0, 1.7, 5.0, 0.6, 2.2]
    one, other = (
        Stopwatch(lambda: None, torch.device("cpu"), [seconds * d for d in drift])
        for seconds in (0.3, 0.2)
    )
    assert one.over(other) == pytest.approx(1.5)
    assert one.seconds == pytest.approx(0.3 * 1.7)
    assert one.spread == pytest.approx((0.3, 0.66))
