"""The filtered activation in one pass: bias, upsampling, σ and downsampling, all on chip.

    Y = D_r σ(U_r (X + b) U_cᵀ) D_cᵀ     for every channel of every sample, and the same on lines

This is `torchcno.operators.activation.filtered_activation` as one operator,
`torch.ops.torchcno.filtered_activation`, so that autograd, torch.compile and CUDA graphs see a
single node. Nothing of the fine grid leaves the chip: the backward pass makes it
again. On CUDA, planes that fit on chip are taken whole (`triton_activation.py`), others row by row
(`triton_rows.py`); on a CPU the compiled loops of `cpu_activation.py` run. What none of them
covers is matrix products.
"""

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcno.constants import remember
from torchcno.operators.activation import filtered_activation
from torchcno.operators.fused import choice, row_plans
from torchcno.operators.fused.choice import Arithmetic, PerAxis
from torchcno.operators.fused.layout import memory_format
from torchcno.operators.fused.row_plans import power_of_two
from torchcno.operators.sigma import SIGMAS


class Normalisation(NamedTuple):
    """x ↦ γ (x − μ) / √(v + ε) + β, a channel."""

    mean: Tensor  # μ
    variance: Tensor  # v
    weight: Tensor  # γ
    shift: Tensor  # β
    eps: float  # ε
    share: float  # 1/n, if μ and v are those of the n values of x; 0, if they do not depend on x


# Defined and implemented one by one: the first call of a `torch.library.custom_op` would import
# PyTorch's compiler, which takes seconds.
FORWARD, BACKWARD = "torchcno::filtered_activation", "torchcno::filtered_activation_backward"
torch.library.define(
    FORWARD,
    "(Tensor x, Tensor bias, Tensor[] ups, Tensor[] downs, str sigma, bool keep) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    BACKWARD,
    "(Tensor dy, Tensor x, Tensor bias, Tensor signs, Tensor[] ups, Tensor[] downs, str sigma) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl(FORWARD, "default")
def _forward(
    x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, keep: bool
) -> tuple[Tensor, Tensor]:
    """D σ(U (x + b)) with one matrix of U and of D per axis; σ by its name.

    x (batch, channel, *space) float32, float16 or bfloat16, in either memory format; the result
    keeps both. U: (n_fine, n_in), D: (n_out, n_fine) in float32, constants. Products of float16,
    and of float32 where `torch.backends.cuda.matmul.allow_tf32` says so, have factors of 11 bits:
    TF32, or float16 with a power of two for its range, which is faster. Else those of float32 are
    right to its last bits but one (three TF32 products each). Those of bfloat16 stay so. All
    accumulate in float32. The second result is what a gradient can use, if it is to be kept.
    """
    if not choice.runs_on_cpu(x, sigma):
        return dense_activation(x, bias, ups, downs, sigma), _nothing(x)
    from torchcno.operators.fused import cpu_activation

    return cpu_activation.launch_forward(x, bias, ups, downs, sigma, keep)


@torch.library.impl(BACKWARD, "default")
def _backward(
    dy: Tensor, x: Tensor, bias: Tensor, signs: Tensor, ups: PerAxis, downs: PerAxis, sigma: str
) -> tuple[Tensor, Tensor]:
    if not choice.runs_on_cpu(x, sigma):
        return dense_backward(dy, x, bias, ups, downs, sigma)
    from torchcno.operators.fused import cpu_activation

    dx = cpu_activation.launch_backward(dy, x, signs, ups, downs, sigma)
    return dx, cpu_activation.bias_gradient(dx)


def _nothing(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, bias, ups, downs, sigma, _ = inputs
    ctx.save_for_backward(x, bias, output[1], *ups, *downs)
    ctx.dimension, ctx.sigma = len(ups), sigma
    ctx.set_materialize_grads(False)  # that of the second result would be as large as it is


def _differentiate(ctx: Any, dy: Tensor, _: None) -> tuple[Any, ...]:
    x, bias, signs, *matrices = ctx.saved_tensors
    ups, downs = matrices[: ctx.dimension], matrices[ctx.dimension :]
    # A gradient that is to be differentiated again is made of operations that can be.
    if torch.is_grad_enabled():
        dx, dbias = dense_backward(dy, x, bias, ups, downs, ctx.sigma)
    else:
        backward = torch.ops.torchcno.filtered_activation_backward
        dx, dbias = backward(dy, x, bias, signs, ups, downs, ctx.sigma)
    return dx, dbias, [None] * ctx.dimension, [None] * ctx.dimension, None, None


torch.library.register_autograd(FORWARD, _differentiate, setup_context=_save)


def dense_activation(x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str) -> Tensor:
    """The same by products with whole matrices."""
    ups, downs = [up.to(x.dtype) for up in ups], [down.to(x.dtype) for down in downs]
    with torch.autocast(x.device.type, enabled=False):  # the result has the type of x
        y = filtered_activation(x, bias.to(x.dtype), ups, downs, SIGMAS[sigma])
    return y.contiguous(memory_format=memory_format(x))


def dense_backward(
    dy: Tensor, x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str
) -> tuple[Tensor, Tensor]:
    """(dX, db) by products with whole matrices."""
    vjp = torch.func.vjp(lambda x, bias: dense_activation(x, bias, ups, downs, sigma), x, bias)[1]
    dx, dbias = vjp(dy)
    return dx.contiguous(memory_format=memory_format(x)), dbias.contiguous()


def _empty_output(x: Tensor, downs: PerAxis) -> Tensor:
    shape = (*x.shape[:2], *(down.shape[0] for down in downs))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(x))


# Why a machine may have no program for some shapes: by the class of the error, or by what it says
# where Triton raises a general one. Any other error is a fault, and is raised.
REASONS = {
    "OutOfResources": "it needs more registers or shared memory than this GPU has",
    "PTXASError": "NVIDIA's assembler refuses it",
    "CompilationError": "this version of Triton cannot compile it",
    "PassManager::run failed": "this version of Triton cannot compile it",
    "CalledProcessError": "the C compiler that Triton calls fails",
    "Failed to find C compiler": "Triton finds no C compiler; install gcc",
    "Cannot find ptxas": "Triton finds no assembler; install the CUDA toolkit",
    "libcuda.so cannot found": "Triton finds no libcuda.so; run ldconfig",
}
_refused: set[tuple[Any, ...]] = set()


def _reason(error: Exception) -> str | None:
    """Why there is no program, in plain words; None for an error that is not one of `REASONS`."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    said = (why for name, why in REASONS.items() if name in kinds or name in str(error))
    return next(said, None)


def _signature(argument: Any) -> Any:
    """What programs are compiled for."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape
    return tuple(map(_signature, argument)) if isinstance(argument, list | tuple) else argument


def or_dense(launch: Callable[..., Any], dense: Callable[..., Any], *arguments: Any) -> Any:
    """`launch`, or `dense` from the first time on that these shapes have no program here."""
    x = arguments[0]
    key = (launch, *map(_signature, arguments))
    if key in _refused:
        return dense(*arguments)
    try:
        with torch.cuda.device_of(x):  # Triton launches on the current device
            return launch(*arguments)
    except Exception as error:  # a compiler of many layers: its failures have no type in common
        reason = _reason(error)
        if reason is None:
            raise
        _refused.add(key)
        warnings.warn(
            f"no fused kernel for {tuple(x.shape)} {x.dtype}: {reason} "
            f"({type(error).__name__}: {error}). Using matrix products, which are slower.",
            stacklevel=2,
        )
        return dense(*arguments)


@torch.library.impl(FORWARD, "cuda")
def _forward_on_cuda(
    x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, keep: bool
) -> tuple[Tensor, Tensor]:
    y = or_dense(launch_forward, dense_activation, x, bias, ups, downs, sigma)
    return y, _nothing(x)


@torch.library.impl(BACKWARD, "cuda")
def _backward_on_cuda(
    dy: Tensor, x: Tensor, bias: Tensor, signs: Tensor, ups: PerAxis, downs: PerAxis, sigma: str
) -> tuple[Tensor, Tensor]:
    dx, dbias = or_dense(launch_backward, dense_backward, dy, x, bias, ups, downs, sigma)
    return dx, dbias


@torch.library.register_fake(FORWARD)
def _forward_of_shapes(
    x: Tensor, bias: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, keep: bool
) -> tuple[Tensor, Tensor]:
    signs = _nothing(x)
    if choice.runs_on_cpu(x, sigma):
        from torchcno.operators.fused import cpu_activation

        signs = signs.new_empty(cpu_activation.signs_shape(x, ups, downs, keep))
    return _empty_output(x, downs), signs


torch.library.register_fake(
    BACKWARD,
    lambda dy, x, bias, *_: (
        torch.empty_like(x, memory_format=memory_format(x)),
        torch.empty_like(bias),
    ),
)


@dataclass(frozen=True)
class Blocks:
    """How a program is cut."""

    planes: int  # P, planes a program, at most
    fine_rows: int  # rows of the fine grid at a time
    fine_columns: int  # columns of the fine grid at a time
    warps: int
    stages: int = 2  # loads of matrices in flight
    registers: int | None = None  # of a thread, at most: fewer let more programs run at once

    @property
    def options(self) -> dict[str, int]:
        """What Triton compiles with."""
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "num_stages": self.stages, **limit}


Table = dict[tuple[int, bool], tuple[Blocks, Blocks]]

# (forward, backward) by the widest block of a plane, channels first (False) or last (True), for
# factors of four bytes: the fastest on an H200 over the activations of the 64² network, with
# products in TF32; at 128 what compiles without spills.
WIDE_BLOCKS: Table = {
    (16, False): (Blocks(4, 16, 64, 4), Blocks(4, 16, 64, 4)),
    (32, False): (Blocks(4, 32, 32, 4), Blocks(4, 32, 32, 4)),
    (64, False): (Blocks(2, 32, 32, 4), Blocks(4, 32, 16, 8)),
    (128, False): (Blocks(1, 32, 32, 8), Blocks(1, 32, 32, 8, stages=1)),
    (16, True): (Blocks(8, 16, 32, 4), Blocks(4, 16, 64, 4)),
    (32, True): (Blocks(4, 32, 32, 4), Blocks(4, 32, 32, 4)),
    (64, True): (Blocks(4, 16, 32, 4), Blocks(4, 32, 16, 8)),
    (128, True): (Blocks(1, 32, 32, 8), Blocks(1, 32, 32, 8, stages=1)),
}
# For factors of two bytes: the same with products in float16, as measured in
# results/bench-activation-cuts-h200.json; 128 is not. With wider factors some of these do not fit
# on chip, and some spill.
BLOCKS: Table = WIDE_BLOCKS | {
    (16, False): (Blocks(4, 16, 64, 4), Blocks(4, 32, 32, 4, stages=3)),
    (32, False): (
        Blocks(2, 32, 32, 4, stages=3, registers=128),
        Blocks(2, 32, 32, 4, registers=128),
    ),
    (64, False): (Blocks(1, 64, 32, 4, stages=3, registers=128), Blocks(1, 64, 64, 4, stages=3)),
    (16, True): (Blocks(16, 16, 32, 8, registers=128), Blocks(16, 16, 32, 8, registers=128)),
    (32, True): (Blocks(4, 32, 64, 4, stages=3), Blocks(4, 32, 32, 4, stages=3)),
    (64, True): (Blocks(2, 64, 32, 4), Blocks(4, 32, 64, 8, stages=3)),
}
LINES = Blocks(planes=32, fine_rows=1, fine_columns=32, warps=4)


@dataclass(frozen=True)
class Side:
    """A grid, and the blocks that hold it, or parts of it."""

    H: int
    W: int
    BH: int
    BW: int


@dataclass(frozen=True)
class Planes:
    """What a program for whole planes, or lines, is compiled for."""

    C: int  # channels
    P: int  # planes a program
    LAST: bool  # channels last in memory
    X: Side
    Y: Side
    FINE: Side  # in whole blocks
    SIGMA: str
    ARITHMETIC: Arithmetic
    SCALED: bool  # σ is to see what it would without the power of two that a plane comes with
    HELD: bool  # the gradient goes back through a norm whose statistics do not depend on x


class Launch(NamedTuple):
    """A program for all planes, and what it is given besides the fields and the bias."""

    program: Callable[..., object]
    tables: tuple[Any, ...]  # after what it reads
    planes: tuple[int, ...]  # after what it writes: their number, where it is asked for
    shape: Planes | row_plans.Walk  # that it is compiled for
    options: dict[str, int]  # of the compiler
    parts: int = 1  # that a plane's sums come in

    def run(self, read: tuple[Tensor, ...], written: tuple[Tensor, ...]) -> None:
        """The program on all planes."""
        from torchcno.operators.fused.triton_activation import as_constants

        given = (*read, *self.tables, *written, *self.planes)
        self.program(*given, S=as_constants(self.shape), **self.options)


def find_launch(
    x: Tensor, ups: PerAxis, downs: PerAxis, sigma: str, norm: Normalisation | None, backward: bool
) -> Launch | None:
    """The program for fields x; None: they neither fit on chip nor can go row by row."""
    from torchcno.operators.fused import triton_activation, triton_rows

    direction = "backward" if backward else "forward"
    planes = x.shape[0] * x.shape[1]
    arithmetic, plan = choice.arithmetic_of(x), None
    if norm is None and not choice.is_whole(x, ups, downs, local=True):
        plan = row_plans.find_plan(ups, downs, ROUNDINGS[arithmetic], backward)
    if plan is not None:
        program = getattr(triton_rows, direction)[plan.grid(planes)]
        walk = replace(
            plan.walk, C=x.shape[1], LAST=_is_last(x), SIGMA=sigma, ARITHMETIC=arithmetic
        )
        parts = plan.strips * plan.tiles
        return Launch(program, plan.tables, (planes,), walk, plan.options, parts)
    if not choice.fits_on_chip(x, ups, downs):
        return None
    if arithmetic == "tf32" and SIGMAS[sigma].scales:
        arithmetic = "fp16"  # programs that hold all of a plane know its largest value
    held = backward and norm is not None and norm.share == 0
    shape, options = _cut(x, ups, downs, sigma, arithmetic, backward, held)
    matrices = _operands(ups, downs, shape)
    grid = (-(-planes // shape.P),)
    program = getattr(triton_activation, f"{direction}_{len(ups)}d")[grid]
    if len(ups) == 1:
        return Launch(program, matrices, (planes,), shape, options)
    return Launch(program, (*_normalisation(norm), *matrices), (), shape, options)


def launch_forward(
    x: Tensor,
    bias: Tensor,
    ups: PerAxis,
    downs: PerAxis,
    sigma: str,
    norm: Normalisation | None = None,
) -> Tensor:
    """Y by a Triton program, on CUDA (or on the CPU where TRITON_INTERPRET=1 is set).

    `norm` comes before the bias; only planes that fit on chip can have it.
    """
    x, bias = x.contiguous(memory_format=memory_format(x)), bias.contiguous()
    launch = find_launch(x, ups, downs, sigma, norm, backward=False)
    if launch is None:
        return dense_activation(x, bias, ups, downs, sigma)
    y = _empty_output(x, downs)
    launch.run((x, bias), (y,))
    return y


def launch_backward(
    dy: Tensor,
    x: Tensor,
    bias: Tensor,
    ups: PerAxis,
    downs: PerAxis,
    sigma: str,
    norm: Normalisation | None = None,
) -> tuple[Tensor, ...]:
    """(dX, db) by a Triton program; with a `norm` (dX, db, dγ, dβ), where dβ is db once more."""
    x, bias = x.contiguous(memory_format=memory_format(x)), bias.contiguous()
    dy = dy.contiguous(memory_format=memory_format(x))
    launch = find_launch(x, ups, downs, sigma, norm, backward=True)
    if launch is None:
        return dense_backward(dy, x, bias, ups, downs, sigma)
    dx = torch.empty_like(x)
    # Sums of parts of planes instead of atomic additions: the same result every time.
    kinds = 1 if norm is None else 2
    sums = torch.empty(kinds, launch.parts, *x.shape[:2], dtype=torch.float32, device=x.device)
    launch.run((dy, x, bias), (dx, sums))
    if norm is None:
        return dx, *sums.sum((1, 2)).to(bias.dtype)
    totals: Iterable[Tensor]
    if norm.share:
        totals = launch_normalisation_backward(dx, dx, x, sums[:, 0], norm)
    else:
        dshift, dweight = sums.sum((1, 2))
        totals = dshift, dweight, dshift
    return dx, *(total.to(bias.dtype) for total in totals)


PROGRAMS = 256  # among which the points of a batch are divided: about two a multiprocessor
ENTRIES = 8192  # of a field that one of them takes, at most


def rows_of_a_program(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the block of a matrix that one program works on."""
    column_block = min(power_of_two(columns), 128)
    blocks = -(-columns // column_block)
    row_block = power_of_two(-(-rows * blocks // PROGRAMS))
    return min(row_block, ENTRIES // column_block), column_block


def launch_normalisation_backward(
    g: Tensor, dx: Tensor, x: Tensor, sums: Tensor, norm: Normalisation
) -> Tensor:
    """Fill dX from the gradient G of what leaves `norm`; (dβ, dγ, dβ) from parts, (2, part, C).

    Every program adds up the parts of its channels by itself, which is a kernel less. dX may take
    the place of G. Two parameters that have dβ as their gradient get one each: autograd copies what
    it is given twice.
    """
    from torchcno.operators.fused import triton_sums

    mean, variance, weight, _, eps = _normalisation(norm)
    (batch, channels), points, last = x.shape[:2], math.prod(x.shape[2:]), _is_last(x)
    rows, columns = (batch * points, channels) if last else (batch * channels, points)
    row_block, column_block = rows_of_a_program(rows, columns)
    totals = sums.new_empty(3, channels)
    triton_sums.normalisation_backward[(-(-rows // row_block), -(-columns // column_block))](
        g, dx, x, sums, totals, mean, variance, weight, eps, norm.share, rows, columns,
        sums.shape[1],
        C=channels, LAST=last, NB=32, RB=row_block, CB=column_block, num_warps=8,
    )  # fmt: skip
    return totals


def _normalisation(norm: Normalisation | None) -> tuple[Tensor | float | None, ...]:
    """The arguments of a program: μ, v, γ, β and ε."""
    if norm is None:
        return None, None, None, None, 0.0
    return *(vector.contiguous() for vector in norm[:4]), norm.eps


def _is_last(x: Tensor) -> bool:
    return memory_format(x) == torch.channels_last


def _cut(
    x: Tensor,
    ups: PerAxis,
    downs: PerAxis,
    sigma: str,
    arithmetic: Arithmetic,
    backward: bool,
    held: bool,
) -> tuple[Planes, dict[str, int]]:
    """What a program for whole planes, or lines, is compiled for, and the compiler's options."""
    x_side, y_side = (_side(sizes) for sizes in (x.shape[2:], map(len, downs)))
    h_fine, w_fine = [1, *map(len, ups)][-2:]
    blocks, planes, last = LINES, LINES.planes, _is_last(x)
    if len(ups) == 2:
        table = BLOCKS if arithmetic in ("fp16", "bf16") else WIDE_BLOCKS
        edge = max(x_side.BH, x_side.BW, y_side.BH, y_side.BW)
        blocks = table[edge, last][backward]
        most = max(1, blocks.planes // 2) if arithmetic == "fp32" else blocks.planes
        # With channels last a program's planes are neighbouring channels: P divides their number.
        planes = math.gcd(most, x.shape[1] if last else x.shape[0] * x.shape[1])
    rows = min(blocks.fine_rows, power_of_two(h_fine))
    columns = min(blocks.fine_columns, power_of_two(w_fine))
    fine = Side(_multiple(h_fine, rows), _multiple(w_fine, columns), rows, columns)
    scaled = arithmetic == "fp16" and SIGMAS[sigma].slopes is None
    compiled_for = (x_side, y_side, fine, sigma, arithmetic, scaled, held)
    shape = Planes(x.shape[1], planes, last, *compiled_for)
    return shape, blocks.options


def _side(sizes: Iterable[int]) -> Side:
    """The grid of a plane, or of a line as a plane of one row, and the blocks that hold it."""
    h, w = [1, *sizes][-2:]
    return Side(h, w, power_of_two(h), power_of_two(w))


def _multiple(n: int, block: int) -> int:
    """The least multiple of `block` that holds n."""
    return -(-n // block) * block


def _operands(ups: PerAxis, downs: PerAxis, shape: Planes) -> tuple[Tensor, ...]:
    """The matrices as the programs read them: whole blocks."""
    x, y, fine = shape.X, shape.Y, shape.FINE
    blocks = [[(fine.H, x.BH), (fine.W, x.BW)], [(y.BH, fine.H), (y.BW, fine.W)]]
    both = [*zip(ups, blocks[0][-len(ups) :], strict=True)]
    both += zip(downs, blocks[1][-len(ups) :], strict=True)
    return tuple(_operand(matrix, block, shape.ARITHMETIC) for matrix, block in both)


def _operand(matrix: Tensor, shape: tuple[int, int], arithmetic: Arithmetic) -> Tensor:
    """`matrix` with zeros up to `shape`, rounded for the arithmetic."""

    def make() -> Tensor:
        rows, columns = (n - m for n, m in zip(shape, matrix.shape, strict=True))
        return ROUNDINGS[arithmetic](F.pad(matrix.detach(), (0, columns, 0, rows)).contiguous())

    return remember(make, (shape, arithmetic), matrix)


def _to_tf32(matrix: Tensor) -> Tensor:
    """Rounded to the 10 bits of mantissa that the matrix units read."""
    return ((matrix.float().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


ROUNDINGS: dict[Arithmetic, Callable[[Tensor], Tensor]] = {
    "fp32": Tensor.float,
    "tf32": _to_tf32,
    "fp16": Tensor.half,
    "bf16": Tensor.bfloat16,
}
