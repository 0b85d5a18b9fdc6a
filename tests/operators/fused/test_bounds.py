"""No program reads or writes beyond the tensors that it is given.

A read a little too far goes unseen wherever memory happens to go on, and is a fault elsewhere. In
Triton's interpreter addresses are numbers, and every one of them is looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcno.operators.filters import WindowedSinc
from torchcno.operators.fused import batch_norm, choice, convolution, few, kernels, row_plans
from torchcno.operators.fused.kernels import Normalisation
from torchcno.operators.resampling import activation_matrices

pytestmark = [
    pytest.mark.skipif(
        torch.cuda.is_available() or not choice.HAS_TRITON,
        reason="needs Triton's interpreter, which needs to be alone",
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy: memory is not initialised
]


@dataclass(frozen=True)
class Extent:
    """The bytes of a tensor."""

    start: int
    end: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Extent":
        steps = ((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        start, last = tensor.data_ptr(), sum(steps)
        return cls(start, start + (last + 1) * tensor.element_size())

    def holds(self, addresses: np.ndarray, size: int) -> np.ndarray:
        return (addresses >= self.start) & (addresses + size <= self.end)


@pytest.fixture
def launched(monkeypatch) -> Iterator[list[str]]:
    """The names of the programs that were launched, every access of which has been checked."""
    from triton.runtime import interpreter

    names: list[str] = []
    extents: list[Extent] = []

    def execute(self, *arguments, **constants):
        names.append(self.fn.__name__)
        extents[:] = [Extent.of(given) for given in arguments if isinstance(given, Tensor)]
        execute_unchecked(self, *arguments, **constants)

    def check(pointers, mask) -> None:
        size = pointers.get_element_ty().primitive_bitwidth // 8
        addresses = pointers.data[mask.data]
        inside = np.logical_or.reduce([extent.holds(addresses, size) for extent in extents])
        assert inside.all(), f"{names[-1]}: {np.sum(~inside)} of {inside.size} are out of bounds"

    def load(self, pointers, mask, *rest):
        check(pointers, mask)
        return load_unchecked(self, pointers, mask, *rest)

    def store(self, pointers, values, mask, *rest):
        check(pointers, mask)
        return store_unchecked(self, pointers, values, mask, *rest)

    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    execute_unchecked = executor.__call__
    load_unchecked, store_unchecked = builder.create_masked_load, builder.create_masked_store
    monkeypatch.setattr(executor, "__call__", execute)
    monkeypatch.setattr(builder, "create_masked_load", load)
    monkeypatch.setattr(builder, "create_masked_store", store)
    before = torch.backends.cuda.matmul.allow_tf32
    yield names
    torch.backends.cuda.matmul.allow_tf32 = before


@dataclass(frozen=True)
class Case:
    """A field, and what is made of it."""

    batch: int
    channels: int
    size_in: tuple[int, ...]
    size_out: tuple[int, ...]
    boundary: str = "zero"
    layout: torch.memory_format = torch.contiguous_format
    dtype: torch.dtype = torch.float32

    def launch(self, norm: bool = False) -> None:
        """Forward and backward; fields are zeros, of which the interpreter makes short work."""
        axes = zip(self.size_in, self.size_out, strict=True)
        pairs = [activation_matrices(*axis, 2.0, WindowedSinc(), self.boundary) for axis in axes]
        both = [up.float() for up, _ in pairs], [down.float() for _, down in pairs]
        zero = torch.zeros((), dtype=self.dtype)
        x = zero.repeat(self.batch, self.channels, *self.size_in).contiguous(
            memory_format=self.layout
        )
        dy = zero.expand(self.batch, self.channels, *self.size_out)  # one number, as that of a sum
        bias = torch.ones(1).expand(self.channels)  # one for all channels
        statistics = Normalisation(bias, bias, bias, bias, eps=1e-5, share=0.1) if norm else None
        kernels.launch_forward(x, bias, *both, "relu", statistics)
        kernels.launch_backward(dy, x, bias, *both, "relu", statistics)


LAST, HALF, BRAIN = torch.channels_last, torch.float16, torch.bfloat16


@pytest.mark.parametrize(("rounded", "norm"), [(True, True), (False, False)])  # either table
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 1, (2, 2), (2, 2)),
        Case(1, 1, (4, 4), (2, 2), layout=LAST),
        Case(1, 2, (8, 8), (4, 4), layout=LAST),
        Case(2, 3, (7, 9), (9, 7), layout=LAST, dtype=HALF),
        Case(3, 5, (5, 16), (16, 5), "periodic", dtype=BRAIN),
        Case(1, 16, (8, 8), (16, 16), layout=LAST),
        Case(1, 16, (16, 16), (8, 8), "periodic", LAST),
        Case(1, 3, (17, 16), (16, 17), "odd"),
        Case(1, 4, (32, 32), (16, 32), layout=LAST),
        Case(2, 1, (20, 31), (31, 20), "even"),
    ],
    ids=str,
)
def test_whole_planes(case, rounded, norm, launched):
    torch.backends.cuda.matmul.allow_tf32 = rounded
    case.launch(norm)
    assert launched == ["forward_2d", "backward_2d", *["normalisation_backward"] * norm]


@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 1, (2,), (4,)),
        Case(3, 5, (9,), (20,), dtype=HALF),
        Case(2, 16, (33,), (16,), "even"),
        Case(11, 3, (16,), (7,), "periodic", dtype=BRAIN),
    ],
    ids=str,
)
def test_lines(case, rounded, launched):
    torch.backends.cuda.matmul.allow_tf32 = rounded
    case.launch()
    assert launched == ["forward_1d", "backward_1d"]


# Rows and columns so few that halos reach as far beyond the edges as they can; the last in tiles.
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 17, (9, 9), (9, 9), "periodic", LAST, HALF),
        Case(1, 2, (10, 20), (20, 10), "odd", LAST, BRAIN),
        Case(1, 3, (9, 66), (9, 66), "zero"),
    ],
    ids=str,
)
def test_rows(case, launched, monkeypatch):
    for largest in ("LARGEST", "LARGEST_EXACT"):
        monkeypatch.setattr(choice, largest, {2: 0})
    for cuts in (row_plans.FORWARD, row_plans.BACKWARD):
        for tail, cut in cuts.items():
            monkeypatch.setitem(cuts, tail, replace(cut, strip=8))
    case.launch()
    assert launched == ["forward", "backward"]


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 20, 9, 9), (3, 130, 7, 6)], ids=str)
def test_batch_norm(shape, launched):
    x = torch.randn(shape).contiguous(memory_format=LAST).requires_grad_()
    batch_norm.normalise(x, torch.nn.BatchNorm2d(shape[1])).square().sum().backward()
    assert launched == [
        *("moments", "join_moments", "normalise"),
        *("gradient_sums", "normalisation_backward"),
    ]


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("channels", [(1, 1), (1, 20), (17, 2)])
def test_gradients_of_weights(channels, margin, launched):
    outputs, inputs = channels
    weight, x = torch.zeros(outputs, inputs, 3, 3), torch.zeros(2, inputs, 11, 9)
    dy = torch.zeros(2, outputs, 9 + 2 * margin, 7 + 2 * margin)
    convolution.by_windows(dy, x, weight, margin)
    assert launched == ["products_with_windows"]


@pytest.mark.parametrize("boundaries", [("zero", "periodic"), ("periodic", "zero")])
@pytest.mark.parametrize(("channels", "program"), [((20, 1), "spread"), ((2, 130), "gather")])
def test_few_channels(channels, program, boundaries, launched):
    weight, bias = torch.zeros(*channels, 3, 3).contiguous(memory_format=LAST), torch.zeros(130)
    x = torch.zeros(2, channels[1], 7, 9)
    few.launch(x, weight, bias[: channels[0]], boundaries, torch.float16, False)
    assert launched == [program]


def test_a_single_number_too_far_is_seen(launched):
    x, ones = torch.zeros(1, 1, 4, 4), torch.ones(1)
    norm, sums = Normalisation(ones, ones, ones, ones, eps=0.0, share=0.0), torch.ones(2, 1, 1)
    kernels.launch_normalisation_backward(*[torch.zeros(16)] * 2, x, sums, norm)
    with pytest.raises(Exception, match="1 of 16 are out of bounds"):
        kernels.launch_normalisation_backward(*[torch.zeros(15)] * 2, x, sums, norm)
