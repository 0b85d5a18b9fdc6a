import numpy as np
import pytest
import torch

from torchcno.evaluation.memory import with_peak_memory

MIB = 2**20


def test_the_peak_counts_what_was_held_at_once_and_freed_since():
    def work() -> str:
        for _ in range(3):  # one after the other: 40 MiB at most
            np.ones(40 * MIB, dtype=np.uint8)
        return "done"

    result, peak = with_peak_memory(work, torch.device("cpu"))
    assert result == "done"
    assert peak == pytest.approx(40 * MIB, rel=0.1)


def test_what_was_in_use_or_free_before_does_not_count():
    kept = np.ones(60 * MIB, dtype=np.uint8)
    freed = [np.ones(MIB // 16, dtype=np.uint8) for _ in range(500)]  # by the allocator, kept
    del freed
    _, peak = with_peak_memory(lambda: np.ones(20 * MIB, dtype=np.uint8), torch.device("cpu"))
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
