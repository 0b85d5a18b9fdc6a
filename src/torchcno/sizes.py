"""Whether there is room in memory, asked before it is taken.

A machine that runs out of memory stops everything on it; a question beforehand costs nothing.
"""

import resource
from contextlib import suppress
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """The bytes that this process may still take; None where nobody says."""
    limits = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        limits.append(1024 * int(line.split()[1]))
    with suppress(OSError, ValueError):  # of a container; "max" is no number
        most, used = ((_GROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        limits.append(int(most) - int(used))
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limits.append(allowed - pages * resource.getpagesize())
    return max(0, min(limits)) if limits else None


def refuse_without_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse `what`, which takes `needed` bytes, where there are not so many."""
    free = available_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} would take {readable_bytes(needed)} of memory, and {readable_bytes(free)} are "
            f"free; {remedy}."
        )


def readable_bytes(count: float) -> str:
    """A number of bytes as one reads it: 1.5 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"
