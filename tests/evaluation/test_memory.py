from collections.abc import Callable

import numpy as np
import pytest
import torch

from torchcno.evaluation.memory import with_peak_memory

MIB = 2**20


def least_peak(work: Callable[[], object]) -> int:
    """Of three times: what threads of other tests take meanwhile only adds."""
    peaks = [with_peak_memory(work, torch.device("cpu"))[1] for _ in range(3)]
    return min(peak for peak in peaks if peak is not None)


def test_the_peak_counts_what_was_held_at_once_and_freed_since():
    def work() -> None:
        for _ in range(3):  # one after the other: 40 MiB at most
            np.ones(40 * MIB, dtype=np.uint8)

    assert least_peak(work) == pytest.approx(40 * MIB, rel=0.1)


def test_what_the_work_returns_comes_back():
    assert with_peak_memory(lambda: "done", torch.device("cpu"))[0] == "done"


def test_what_was_in_use_or_free_before_does_not_count():
    kept = np.ones(60 * MIB, dtype=np.uint8)
    freed = [np.ones(MIB // 16, dtype=np.uint8) for _ in range(500)]  # by the allocator, kept
    del freed
    peak = least_peak(lambda: np.ones(20 * MIB, dtype=np.uint8))
    assert peak == pytest.approx(20 * MIB, rel=0.1)
    assert kept.all()


@pytest.mark.gpu
def test_on_cuda_it_counts_tensors():
    device = torch.device("cuda")
    kept = torch.ones(8 * MIB, device=device)

    def work() -> None:
        torch.ones(4 * MIB, device=device)  # float32, and gone at once
        torch.ones(2 * MIB, device=device)

    assert with_peak_memory(work, device)[1] == 16 * MIB
    assert kept.is_cuda
