"""How CUDA multiplies float32, and what fields are stored as."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import torch

# "auto": fp16-mixed on CUDA for networks that say that they can have it, else tf32.
Precision = Literal["auto", "32", "tf32", "fp16-mixed", "bf16-mixed"]

# What fields are stored as by precision, where that is not float32.
FIELDS: dict[Precision, torch.dtype] = {
    "fp16-mixed": torch.float16,
    "bf16-mixed": torch.bfloat16,
}
# Float16 ends at 65504 and has all its bits from 2^-14 on. The gradient of a relative loss is of
# order 1/mean|v| in the last weights, up to 27 for our problems, and in the n values of a batch of
# order 1/n, in deep layers 2^-9/n. Both fit with this factor: at n = 2^17 the largest seen was
# 2^14.5, and no layer's gradient lost more than 0.3 % (validation/gradient_range.py).
LOSS_FACTORS: dict[Precision, float] = {"fp16-mixed": 2.0**10}
OF_CUDA = ("cuda.matmul", "cudnn.conv", "cudnn.rnn")  # in `torch.backends`


@contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """Within the context, CUDA multiplies float32 in full ("32") or as TF32 (the others)."""
    tf32, way_back = precision != "32", _way_back()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    for switch in _newer_switches(*OF_CUDA):
        switch.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        for restore in way_back:
            restore()


def _way_back() -> list[Callable[[], None]]:
    """What brings back the arithmetic that is set now.

    PyTorch has two generations of switches, and its compiler reads both. To set an older one sets
    the newer, but to read it is an error where a program has set the newer alone.
    """
    cudnn = torch.backends.cudnn
    way_back: list[Callable[[], None]] = []
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
        way_back.append(partial(torch.set_float32_matmul_precision, matmul))
    with suppress(RuntimeError):
        way_back.append(partial(setattr, cudnn, "allow_tf32", cudnn.allow_tf32))
    for switch in _newer_switches(*OF_CUDA, "mkldnn.matmul"):  # an older one is of both
        value = switch.fp32_precision
        # One that follows PyTorch's switch for everything shall follow it again.
        value = "none" if value == attrgetter("fp32_precision")(torch.backends) else value
        way_back.append(partial(setattr, switch, "fp32_precision", value))
    return way_back


def _newer_switches(*names: str) -> list[Any]:
    """Those of `torch.backends` with an `fp32_precision` of their own: none before PyTorch 2.9."""
    there = hasattr(torch.backends.cuda.matmul, "fp32_precision")
    return [attrgetter(name)(torch.backends) for name in names] if there else []
