"""Whether a network is being written down for programs that do not have this package."""

import torch


def is_traced() -> bool:
    """Whether `torch.export` or `torch.jit.trace` records what happens now.

    What they record is to run elsewhere: it holds PyTorch's own operators and real numbers alone.
    Before PyTorch 2.7 nobody can tell an export from a compilation, and both are taken for one.
    """
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return bool(torch.jit.is_tracing() or exporting())
