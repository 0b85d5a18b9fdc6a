"""The fused activation is the definition in `activation.py`, outputs and gradients.

Without a GPU the Triton programs run in Triton's interpreter, one small case an option.
"""

import operator
import subprocess
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcno.operators.activation import SIGMAS, filtered_activation
from torchcno.operators.filters import Ideal, WindowedSinc
from torchcno.operators.fused import choice, kernels, row_plans
from torchcno.operators.fused.layout import memory_format
from torchcno.operators.fused.one_pass import activate_in_one_pass
from torchcno.operators.resampling import activation_matrices

CUDA = torch.cuda.is_available()  # without, `conftest.py` turns Triton's interpreter on

TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}
STORED = {"fp16": torch.float16, "bf16": torch.bfloat16}  # fields; others in float32
FILTER = WindowedSinc()

interpreted = pytest.mark.skipif(
    CUDA or not choice.HAS_TRITON, reason="needs Triton's interpreter, which needs to be alone"
)


@pytest.fixture(autouse=True)
def arithmetic_is_restored():
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


NEWER = """
import torch
from torchcno.operators.fused.choice import arithmetic_of

matmul = torch.backends.cuda.matmul
rounded = lambda x: x + (arithmetic_of(x) == "tf32")
compiled = torch.compile(rounded, backend="eager", fullgraph=True)
for precision in ("tf32", "ieee"):
    matmul.fp32_precision = precision
    for decide in (arithmetic_of, lambda x: "tf32" if compiled(x) else "fp32"):
        assert decide(torch.zeros(1)) == ("tf32" if precision == "tf32" else "fp32")
"""


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="of newer versions of PyTorch"
)
def test_the_newer_switch_of_pytorch_counts_as_the_older_one_does():
    # In a process of its own: the older one cannot be read there any more.
    subprocess.run([sys.executable, "-c", NEWER], check=True)


def matrices(
    size_in: tuple[int, ...],
    size_out: tuple[int, ...],
    boundary: str = "zero",
    upsampling: float = 2.0,
    filter: WindowedSinc | Ideal = FILTER,
) -> tuple[list[Tensor], list[Tensor]]:
    pairs = [
        activation_matrices(n, m, upsampling, filter, boundary)
        for n, m in zip(size_in, size_out, strict=True)
    ]
    return [up.float() for up, _ in pairs], [down.float() for _, down in pairs]


def fields(
    size: tuple[int, ...], batch: int = 2, channels: int = 4, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, *size, generator=generator)
    return x, torch.randn(channels, generator=generator)


def definition(
    x: Tensor,
    bias: Tensor,
    ups: list[Tensor],
    downs: list[Tensor],
    sigma: str,
    dy: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Y, a cotangent dY (noise unless given), and the gradients dX, db, from float64 arithmetic."""
    x, bias = x.double().requires_grad_(), bias.double().requires_grad_()
    y = filtered_activation(
        x, bias, [u.double() for u in ups], [d.double() for d in downs], SIGMAS[sigma]
    )
    if dy is None:
        generator = torch.Generator().manual_seed(1)
        dy = torch.randn(y.shape, dtype=torch.float64, generator=generator).to(y.device)
    return y.detach(), dy, *torch.autograd.grad(y, [x, bias], dy)


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.detach().double() - b).norm() / b.norm())


def check_launches(x, bias, ups, downs, sigma="leaky_relu", arithmetic="fp32"):
    """The programs themselves against the definition."""
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    x = x.to(STORED.get(arithmetic, torch.float32))
    y, dy, dx, dbias = definition(x, bias, ups, downs, sigma)
    fused = kernels.launch_forward(x, bias, ups, downs, sigma)
    gradients = kernels.launch_backward(dy.to(x.dtype), x, bias, ups, downs, sigma)
    # The interpreter cuts bfloat16 off where the hardware rounds.
    tolerance = TOLERANCE[arithmetic] * (2 if arithmetic == "bf16" else 1)
    for result, truth in zip((fused, *gradients), (y, dx, dbias), strict=True):
        assert distance(result, truth) < tolerance
    assert fused.dtype == gradients[0].dtype == x.dtype
    assert gradients[1].dtype == bias.dtype


@interpreted
@pytest.mark.parametrize("size", [(16,), (8, 8)], ids=["1d", "2d"])
@pytest.mark.parametrize("sigma", sorted(SIGMAS))
def test_every_sigma(sigma, size):
    check_launches(*fields(size), *matrices(size, size), sigma)


@interpreted
@pytest.mark.parametrize("boundary", ["zero", "odd"])
@pytest.mark.parametrize(
    ("size_in", "size_out"),
    [((16,), (8,)), ((10,), (20,)), ((16, 16), (8, 8)), ((8, 8), (16, 16)), ((16, 8), (12, 24))],
    ids=str,
)
def test_every_change_of_size(size_in, size_out, boundary):
    check_launches(*fields(size_in, batch=1), *matrices(size_in, size_out, boundary))


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("batch", "channels"), [(1, 1), (1, 3), (2, 6)], ids=str)
def test_any_number_of_planes_in_either_layout(batch, channels, layout):
    x, bias = fields((8, 8), batch, channels)
    ups, downs = matrices((8, 8), (8, 8))
    x = x.contiguous(memory_format=layout)
    check_launches(x, bias, ups, downs)
    assert kernels.launch_forward(x, bias, ups, downs, "relu").is_contiguous(memory_format=layout)


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("size", [(32, 32), (64, 40), (16, 128)], ids=str)
def test_planes_that_need_several_blocks(size, layout, monkeypatch):
    for largest in ("LARGEST_EXACT", "LARGEST_PREFERRED"):
        monkeypatch.setattr(choice, largest, choice.LARGEST)
    x, bias = fields(size, batch=1, channels=4)
    x = x.contiguous(memory_format=layout)
    check_launches(x, bias, *matrices(size, size))


@pytest.fixture
def streamed(monkeypatch):
    """Every plane row by row, also what fits on chip, and several strips."""
    for largest in ("LARGEST", "LARGEST_EXACT"):
        monkeypatch.setattr(choice, largest, {1: 256, 2: 0})
    for cuts in (row_plans.FORWARD, row_plans.BACKWARD):
        for tail, cut in cuts.items():
            monkeypatch.setitem(cuts, tail, replace(cut, strip=8))


# The interpreter takes seconds a case: each option is tried, not each pair of options.
@interpreted
@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize(
    ("size_in", "size_out", "boundary"),
    [
        ((16, 12), (16, 12), "zero"),
        ((16, 12), (16, 12), "even"),
        ((16, 16), (8, 8), "periodic"),
        ((12, 8), (24, 16), "zero"),
        ((12, 8), (24, 16), "odd"),
    ],
    ids=str,
)
def test_rows_one_after_the_other(size_in, size_out, boundary):
    check_launches(*fields(size_in, batch=1, channels=3), *matrices(size_in, size_out, boundary))


@interpreted
@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize(
    ("n_in", "n_out", "boundary", "layout"),
    [
        (80, 80, "zero", torch.contiguous_format),
        (80, 80, "periodic", torch.channels_last),
        (128, 64, "periodic", torch.contiguous_format),
        (64, 128, "zero", torch.channels_last),
    ],
    ids=str,
)
def test_rows_too_long_for_one_program(n_in, n_out, boundary, layout):
    x, bias = fields((8, n_in), batch=1, channels=3)
    ups, downs = matrices((8, n_in), (8, n_out), boundary)
    check_launches(x.contiguous(memory_format=layout), bias, ups, downs, "gelu")


@interpreted
def test_what_neither_fits_nor_can_be_streamed_is_matrix_products(monkeypatch):
    monkeypatch.setattr(choice, "LARGEST_EXACT", {1: 0, 2: 0})
    check_launches(*fields((8, 8)), *matrices((8, 8), (8, 8), "even", filter=Ideal()))
    check_launches(*fields((16,)), *matrices((16,), (16,)))


@interpreted
def test_large_planes_go_row_by_row_where_they_can(monkeypatch):
    monkeypatch.setattr(choice, "arithmetic_of", lambda x: "tf32")
    for size, filter, streams in (
        (64, WindowedSinc(), False),
        (128, WindowedSinc(), True),
        (128, Ideal(), False),  # it has no window
        (256, Ideal(), None),  # nor does it fit
    ):
        x, _ = fields((size, 8), batch=1, channels=1)
        both = matrices((size, 8), (size, 8), "even", filter=filter)
        local = isinstance(filter, WindowedSinc)
        assert choice.is_whole(x, *both, local) == (streams is False)
        launch = kernels.find_launch(x, *both, "relu", norm=None, backward=False)
        assert (launch is None) == (streams is None)
        if launch is not None:
            assert isinstance(launch.shape, row_plans.Walk) == streams
            assert ("tf32" if streams else "fp16") == launch.shape.ARITHMETIC


def test_a_plan_is_made_once_and_follows_changes_of_its_matrices():
    ups, downs = matrices((16, 16), (16, 16))
    plan = row_plans.find_plan(ups, downs, Tensor.float, backward=False)
    assert row_plans.find_plan(ups, downs, Tensor.float, backward=False) is plan
    ups[1].mul_(3)
    changed = row_plans.find_plan(ups, downs, Tensor.float, backward=False)
    assert torch.equal(changed.tables[2], 3 * plan.tables[2])
    assert torch.equal(changed.tables[0], plan.tables[0])


def test_a_plan_goes_with_its_matrices():
    (up, _), downs = matrices((16, 16), (16, 16))
    plan = row_plans.find_plan([up, up], downs, Tensor.float, backward=False)
    freed = [weakref.ref(tensor) for tensor in (up, downs[1], plan.tables[0])]
    del up, downs, plan
    assert [reference() for reference in freed] == [None] * 3


@pytest.fixture
def interpreter_with_bf16_products(monkeypatch):
    """Triton's interpreter holds bfloat16 as integers and would multiply those."""
    import triton.language as tl
    from triton.runtime import interpreter

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return product(self, widened(a), widened(b), *rest)

    product = interpreter.InterpreterBuilder.create_dot
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


@interpreted
@pytest.mark.usefixtures("interpreter_with_bf16_products")
@pytest.mark.parametrize("arithmetic", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize("size", [(16,), (16, 16)], ids=["1d", "2d"])
def test_rounded_arithmetic(size, arithmetic):
    check_launches(*fields(size), *matrices(size, size), "gelu", arithmetic)


def in_tf32(x, bias, ups, downs, sigma, dy) -> tuple[Tensor, Tensor]:
    """Y and dX with every factor of every product rounded to TF32, and nothing else."""

    def rounded(a: Tensor) -> Tensor:
        return kernels._to_tf32(a.float()).double()

    (up_r, up_c), (down_r, down_c) = map(rounded, ups), map(rounded, downs)
    z = (rounded(up_r @ rounded(x + bias[:, None, None])) @ up_c.T).requires_grad_()
    a = SIGMAS[sigma](z)
    slope = torch.autograd.grad(a.sum(), z)[0]
    y = down_r @ rounded(rounded(a.detach()) @ down_c.T)
    e = rounded(down_r.T @ rounded(dy)) @ down_c
    return y, up_r.T @ rounded(rounded(slope * e) @ up_c)


@interpreted
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("outlier", [1.0, 1e4])
@pytest.mark.parametrize(
    ("n", "sigma"), [(8, "leaky_relu"), (16, "gelu"), (32, "relu"), (64, "leaky_relu")], ids=str
)
def test_float16_is_as_accurate_as_tf32_at_any_scale(n, sigma, outlier, scale):
    torch.backends.cuda.matmul.allow_tf32 = True
    x, bias = (scale * t for t in fields((n, n), batch=1, channels=2))
    dy = scale * torch.randn_like(x)
    for field in (x, dy):
        field[0, 0, 0, 0] *= outlier
    ups, downs = matrices((n, n), (n, n))
    truth = definition(x, bias, ups, downs, sigma, dy.double())[::2]
    fused = kernels.launch_forward(x, bias, ups, downs, sigma)
    gradient, _ = kernels.launch_backward(dy, x, bias, ups, downs, sigma)
    for result, tf32, true in zip(
        (fused, gradient), in_tf32(x, bias, ups, downs, sigma, dy), truth, strict=True
    ):
        for part in (..., (..., slice(n // 2, None), slice(n // 2, None))):  # far from the outlier
            assert distance(result[part], true[part]) < 1.3 * distance(tf32[part], true[part])


@interpreted
@pytest.mark.parametrize("size", [(16,), (8, 8)], ids=["1d", "2d"])
@pytest.mark.parametrize("sigma", sorted(SIGMAS))
def test_scaled_products_of_every_sigma(sigma, size):
    check_launches(*fields(size), *matrices(size, size), sigma, "tf32")


@interpreted
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("n_in", "n_out"), [(8, 8), (16, 8), (8, 16), (32, 32)])
def test_fields_stored_in_float16(n_in, n_out, layout):
    x, bias = fields((n_in, n_in), batch=1)
    x = x.contiguous(memory_format=layout)
    check_launches(x, bias, *matrices((n_in, n_in), (n_out, n_out)), "gelu", "fp16")


@interpreted
@pytest.mark.parametrize("sigma", ["tanh", "polynomial"])
def test_what_cannot_be_scaled_reads_and_writes_float16_too(sigma):
    check_launches(*fields((8, 8)), *matrices((8, 8), (8, 8)), sigma, "fp16")


@interpreted
@pytest.mark.usefixtures("streamed")
def test_rows_one_after_the_other_in_float16():
    check_launches(*fields((8, 8), 1, 2), *matrices((8, 8), (8, 8)), "gelu", "fp16")


@interpreted
@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 2.0**10])
def test_float16_keeps_its_digits_over_its_range(scale):
    # A field and a gradient with it or against it: by the power of two a plane, nothing is lost.
    x, bias = fields((16, 16), batch=1)
    ups, downs = matrices((16, 16), (16, 16))
    x, dy, bias = (x * scale).half(), (x.flip(-1) / scale).half(), bias * scale
    y, _, dx, dbias = definition(x, bias, ups, downs, "gelu", dy.double())
    fused = kernels.launch_forward(x, bias, ups, downs, "gelu")
    gradients = kernels.launch_backward(dy, x, bias, ups, downs, "gelu")
    for result, truth in zip((fused, *gradients), (y, dx, dbias), strict=True):
        assert distance(result, truth) < TOLERANCE["fp16"]


@interpreted
def test_zeros_stay_zeros():
    torch.backends.cuda.matmul.allow_tf32 = True
    zeros, both = torch.zeros(1, 2, 8, 8), matrices((8, 8), (8, 8))
    bias = torch.zeros(2)
    y = kernels.launch_forward(zeros, bias, *both, "relu")
    dx, dbias = kernels.launch_backward(zeros, zeros, bias, *both, "relu")
    assert not any(t.any() for t in (y, dx, dbias))


@interpreted
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter's NumPy
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["x", "dy"])
def test_what_is_not_finite_shows_in_its_plane_and_nowhere_else(value, where):
    torch.backends.cuda.matmul.allow_tf32 = True
    (x, bias), both = fields((8, 8), batch=1, channels=4), matrices((8, 8), (8, 8))
    if where == "x":
        x[0, 1, 2, 3] = value
        result = kernels.launch_forward(x, bias, *both, "leaky_relu")
    else:
        dy = torch.ones_like(x)
        dy[0, 1, 2, 3] = value
        result, dbias = kernels.launch_backward(dy, x, bias, *both, "leaky_relu")
        assert dbias.isfinite().tolist() == [True, False, True, True]
    assert result.isfinite().flatten(2).any(2).tolist() == [[True, False, True, True]]


@interpreted
def test_any_matrices_will_do():
    check_launches(*fields((12, 10)), *matrices((12, 10), (12, 10), "even", 1.5, Ideal()))


@interpreted
def test_a_strided_field_is_read_by_its_strides():
    x, bias = fields((8, 8))
    ups, downs = matrices((8, 8), (8, 8))
    strided = x.transpose(-1, -2)
    contiguous = kernels.launch_forward(strided.contiguous(), bias, ups, downs, "tanh")
    assert torch.equal(kernels.launch_forward(strided, bias, ups, downs, "tanh"), contiguous)


def test_tf32_rounds_to_nearest_in_ten_bits():
    ulp = 2.0**-10
    x = torch.tensor([1.0, 1 + ulp, 1 + 0.49 * ulp, 1 + 0.51 * ulp, -1 - 0.51 * ulp, 0.0])
    assert kernels._to_tf32(x).tolist() == [1.0, 1 + ulp, 1.0, 1 + ulp, -1 - ulp, 0.0]


def test_an_operand_is_made_once_and_follows_changes_of_its_source():
    matrix = torch.ones(2, 3)
    operand = kernels._operand(matrix, (4, 4), "tf32")
    assert kernels._operand(matrix, (4, 4), "tf32") is operand
    assert operand.sum() == 6
    matrix.mul_(3)
    assert torch.equal(kernels._operand(matrix, (4, 4), "tf32")[:2, :3], matrix)


@pytest.mark.parametrize("size", [(16,), (8, 8), (4, 4, 4)], ids=["1d", "2d", "3d"])
def test_the_operator_is_the_definition_on_the_cpu(size):
    x, bias = fields(size)
    ups, downs = matrices(size, size)
    y, dy, dx, dbias = definition(x, bias, ups, downs, "silu")
    x.requires_grad_(), bias.requires_grad_()
    fused = activate_in_one_pass(x, bias, ups, downs, "silu")
    gradients = torch.autograd.grad(fused, [x, bias], dy.float())
    for result, truth in zip((fused, *gradients), (y, dx, dbias), strict=True):
        assert distance(result, truth) < 1e-6


@pytest.mark.parametrize("sigma", ["gelu", "relu"])  # by matrix products, and by loops
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_operator_keeps_the_contract_of_a_torch_operator(layout, sigma):
    x, bias = fields((8, 8))
    x = x.contiguous(memory_format=layout).requires_grad_()
    arguments = (x, bias.requires_grad_(), *matrices((8, 8), (4, 4)), sigma, True)
    torch.library.opcheck(torch.ops.torchcno.filtered_activation.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_autocast_leaves_the_type_of_the_field(dtype):
    x, bias = fields((8, 8))
    arguments = (x.to(dtype), bias, *matrices((8, 8), (8, 8)), "gelu")
    with torch.autocast("cpu", torch.bfloat16):
        y = activate_in_one_pass(*arguments)
    assert torch.equal(y, activate_in_one_pass(*arguments))


def test_export_sees_one_operator():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            (self.up,), (self.down,) = matrices((16,), (16,))
            self.bias = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return activate_in_one_pass(x, self.bias, [self.up], [self.down], "relu")

    program = torch.export.export(Model(), (torch.randn(2, 4, 16),))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert set(calls) == {torch.ops.torchcno.filtered_activation.default, operator.getitem}


class OutOfResources(Exception):  # noqa: N818 (Triton's name)
    """A program is larger than the chip."""


@pytest.mark.parametrize("error", [OutOfResources(), RuntimeError("Failed to find C compiler")])
def test_a_machine_without_the_kernel_has_matrix_products(error, monkeypatch):
    attempts = []

    def broken(*arguments):
        attempts.append(arguments)
        raise error

    monkeypatch.setattr(kernels, "_refused", set())
    x, bias = fields((8, 8))
    arguments = (x, bias, *matrices((8, 8), (8, 8)), "relu")
    with pytest.warns(UserWarning, match="no fused kernel"):
        first = kernels.or_dense(broken, kernels.dense_activation, *arguments)
    second = kernels.or_dense(broken, kernels.dense_activation, *arguments)
    assert len(attempts) == 1
    assert torch.equal(first, second)
    assert distance(first, definition(*arguments)[0]) < 1e-6


def test_a_fault_of_a_kernel_is_raised_every_time():
    def faulty(*arguments):
        raise RuntimeError("an illegal memory access was encountered")

    x, bias = fields((8, 8))
    arguments = (x, bias, *matrices((8, 8), (8, 8)), "relu")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            kernels.or_dense(faulty, kernels.dense_activation, *arguments)


def test_the_cpu_has_programs_for_local_filters_and_kinks_alone():
    x, _ = fields((8, 8))
    both = matrices((8, 8), (8, 8))
    assert choice.why_not_in_one_pass(x, *both, "relu", local=True) is None
    assert "full matrix" in choice.why_not_in_one_pass(x, *both, "relu", local=False)
    assert "two slopes" in choice.why_not_in_one_pass(x, *both, "gelu", local=True)
    assert "float32" in choice.why_not_in_one_pass(x.double(), *both, "relu", local=True)


def check_operator(x, bias, ups, downs, sigma="leaky_relu", arithmetic="tf32"):
    """The operator on the GPU, through autograd, against the definition in float64 there."""
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    x = x.to(STORED.get(arithmetic, torch.float32))
    layout = torch.channels_last if memory_format(x) == torch.channels_last else None
    x, bias = x.cuda(), bias.cuda().requires_grad_()
    x = (x.contiguous(memory_format=layout) if layout else x).requires_grad_()
    ups, downs = [u.cuda() for u in ups], [d.cuda() for d in downs]
    assert choice.why_not_in_one_pass(x, ups, downs, sigma, local=True) is None
    y, dy, dx, dbias = definition(x.detach(), bias.detach(), ups, downs, sigma)
    fused = activate_in_one_pass(x, bias, ups, downs, sigma)
    gradients = torch.autograd.grad(fused, [x, bias], dy.to(x.dtype))
    assert distance(fused, y) < TOLERANCE[arithmetic]
    for result, truth in zip(gradients, (dx, dbias), strict=True):
        assert distance(result, truth) < gradient_tolerance(sigma, arithmetic)
    assert not kernels._refused


def gradient_tolerance(sigma: str, arithmetic: str) -> float:
    """σ' jumps where σ has a kink: an error ε of its argument flips a share ~ ε of the fine points.

    Each flip is an error of order one, so that the gradient's is of order √ε in the mean square.
    """
    kinked = sigma in ("leaky_relu", "relu") and arithmetic != "fp32"
    return TOLERANCE[arithmetic] ** 0.5 / 4 if kinked else TOLERANCE[arithmetic]


# Every case is compiled, in seconds: the arithmetic of training in both layouts, the others in one.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("n_in", "n_out", "boundary", "arithmetic", "layout"),
    [
        (n_in, n_out, boundary, arithmetic, layout)
        for n_in, n_out, boundary in [
            (8, 8, "zero"),
            (16, 8, "zero"),
            (8, 16, "periodic"),
            (32, 32, "zero"),
            (64, 32, "periodic"),
            (32, 64, "zero"),
            (64, 64, "zero"),
            (64, 64, "periodic"),
        ]
        for arithmetic, layout in [
            ("tf32", torch.contiguous_format),
            ("tf32", torch.channels_last),
            ("fp32", torch.contiguous_format),
            ("fp16", torch.channels_last),
            ("bf16", torch.channels_last),
        ]
    ],
    ids=str,
)
def test_planes_on_the_gpu(n_in, n_out, boundary, arithmetic, layout):
    x, bias = fields((n_in, n_in), batch=4, channels=16)
    x = x.contiguous(memory_format=layout)
    ups, downs = matrices((n_in, n_in), (n_out, n_out), boundary)
    check_operator(x, bias, ups, downs, arithmetic=arithmetic)


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", ["tf32", "fp32"])
@pytest.mark.parametrize(
    ("n_in", "n_out", "boundary"),
    [(256, 256, "zero"), (256, 128, "periodic"), (512, 512, "odd"), (1024, 1024, "zero")],
)
def test_planes_beyond_the_chip_on_the_gpu(n_in, n_out, boundary, arithmetic):
    ups, downs = matrices((n_in, n_in), (n_out, n_out), boundary)
    check_operator(*fields((n_in, n_in), 1, 3), ups, downs, arithmetic=arithmetic)


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize("n_out", [64, 128])
def test_the_largest_planes_on_the_gpu(n_out, arithmetic):
    x, bias = fields((128, 128), batch=2, channels=3)
    ups, downs = matrices((128, 128), (n_out, n_out))
    check_operator(x, bias, ups, downs, arithmetic=arithmetic)


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", sorted(TOLERANCE))
@pytest.mark.parametrize("n", [20, 256])
def test_lines_on_the_gpu(n, arithmetic):
    check_operator(*fields((n,), 5, 7), *matrices((n,), (n // 2,)), arithmetic=arithmetic)


@pytest.mark.gpu
@pytest.mark.parametrize("sigma", sorted(SIGMAS))
def test_every_sigma_on_the_gpu(sigma):
    size = (24, 40)
    check_operator(*fields(size, 3, 5), *matrices(size, size, "even"), sigma, "fp32")


@pytest.mark.gpu
@pytest.mark.parametrize("n", [16, 64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_what_cannot_be_scaled_fits_on_the_gpu(layout, n):
    x, bias = fields((n, n), batch=2, channels=16)
    x = x.contiguous(memory_format=layout)
    check_operator(x, bias, *matrices((n, n), (n, n)), "tanh", "tf32")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_compiled_and_captured_on_the_gpu():
    x, bias = (t.cuda() for t in fields((32, 32), 4, 8))
    ups, downs = ([m.cuda() for m in pair] for pair in matrices((32, 32), (32, 32)))

    def loss(x: Tensor) -> Tensor:
        y = activate_in_one_pass(x * x, bias, ups, downs, "gelu")
        return (2 * y).square().mean()

    def gradient(function, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x), x)[0]

    expected = gradient(loss, x)
    compiled = torch.compile(loss, fullgraph=True)
    assert distance(gradient(compiled, x), expected.double()) < 1e-5

    graph, static = torch.cuda.CUDAGraph(), torch.zeros_like(x)
    gradient(loss, static)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = gradient(loss, static)
    static.copy_(x)
    graph.replay()
    assert torch.equal(out, expected)
