"""How much memory something needs."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def with_peak_memory(work: Callable[[], T], device: torch.device) -> tuple[T, int | None]:
    """What `work` returns, and by how many bytes the memory in use grew at most meanwhile.

    On CUDA the tensors' bytes. On a CPU those of the process, on Linux; None elsewhere.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = work()
        return result, torch.cuda.max_memory_allocated(device) - before
    if not (_STATUS.exists() and _CLEAR.exists()):
        return work(), None
    _give_back_unused()
    _CLEAR.write_text("5")  # the peak starts again from what is in use now
    before = _process_bytes("VmRSS")
    result = work()
    return result, _process_bytes("VmHWM") - before


def _process_bytes(key: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _give_back_unused() -> None:
    """Freed memory that the allocator keeps would hide as much of what `work` takes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the C library of GNU has it
    if trim is not None:
        trim(0)
