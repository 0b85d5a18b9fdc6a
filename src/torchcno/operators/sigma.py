"""The activation functions σ: `SIGMAS` is the list of their names.

A new σ is one entry: its value is enough. The fused programs know a σ by what else its entry says,
and where they do not know it, matrix products and PyTorch's own functions do the same.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

tl: Any = None  # triton.language, from when `triton_activation` compiles the functions at the end


@dataclass(frozen=True)
class Sigma:
    """One σ: its value by PyTorch, whose autograd knows the slope, and what fused programs need."""

    value: Callable[[Tensor], Tensor]
    # (a⁺, a⁻) where σ(t) = a⁺ t for t > 0 and a⁻ t otherwise: then there is a program for the CPU.
    slopes: tuple[float, float] | None = None
    on_chip: bool = False  # `value_on_chip` and `slope_on_chip` have it: then there is one for CUDA
    # Whether values are as large as their arguments, and may be scaled with them: not so where they
    # are bounded, as those of tanh, or squares.
    scales: bool = False

    def __call__(self, t: Tensor) -> Tensor:
        """σ(t)."""
        return self.value(t)


def leaky_relu(t: Tensor) -> Tensor:
    """√2 t where t > 0, else 0.2 √2 t: the authors' slope, and the gain that keeps a variance."""
    return math.sqrt(2) * F.leaky_relu(t, 0.2)


def polynomial(t: Tensor) -> Tensor:
    """t/2 + (1 + t²)/√(8π): the quadratic nearest to ReLU under the normal distribution.

    Squaring doubles a band and no more, so that N_σ = 2 is exactly alias-free.
    """
    return 0.5 * t + (1 + t * t) / math.sqrt(8 * math.pi)


def rational(t: Tensor) -> Tensor:
    """t/2 + 1.758 − 1.666/(1 + 0.317 t²): the nearest to ReLU of t/2 + (a + bt²)/(1 + ct²).

    Nearest under the normal distribution, three times as near as the quadratic, and no larger than
    its argument far out. Its poles lie off the real axis: the spectrum of σ(f) falls exponentially,
    and with N_σ so does aliasing, but it is never zero (SM, remark on rational activations).
    """
    return 0.5 * t + 1.7579503 - 1.6655597 / (1 + 0.31727447 * t * t)


GAIN = math.sqrt(2)
SIGMAS: dict[str, Sigma] = {
    "leaky_relu": Sigma(leaky_relu, slopes=(GAIN, 0.2 * GAIN), on_chip=True, scales=True),
    "relu": Sigma(F.relu, slopes=(1.0, 0.0), on_chip=True, scales=True),
    "gelu": Sigma(F.gelu, on_chip=True, scales=True),
    "silu": Sigma(F.silu, on_chip=True, scales=True),
    "tanh": Sigma(torch.tanh, on_chip=True),
    "polynomial": Sigma(polynomial, on_chip=True),
    "rational": Sigma(rational, on_chip=True),
}


# Triton reads the source of what follows; nothing else calls it. S.SIGMA is the name of σ.


def value_on_chip(z, S: "tl.constexpr"):
    """σ(z)."""
    if S.SIGMA == "leaky_relu":
        y = tl.where(z > 0, 1.4142135623730951, 0.28284271247461906) * z
    elif S.SIGMA == "relu":
        y = tl.maximum(z, 0.0)
    elif S.SIGMA == "gelu":
        y = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    elif S.SIGMA == "silu":
        y = z * tl.sigmoid(z)
    elif S.SIGMA == "tanh":
        y = 2.0 * tl.sigmoid(2.0 * z) - 1.0
    elif S.SIGMA == "rational":
        y = 0.5 * z + 1.7579503 - 1.6655597 / (1.0 + 0.31727447 * z * z)
    else:
        tl.static_assert(S.SIGMA == "polynomial")
        y = 0.5 * z + 0.19947114020071635 * (1.0 + z * z)
    return y


def slope_on_chip(z, S: "tl.constexpr"):
    """σ'(z)."""
    if S.SIGMA == "leaky_relu":
        y = tl.where(z > 0, 1.4142135623730951, 0.28284271247461906)
    elif S.SIGMA == "relu":
        y = tl.where(z > 0, 1.0, 0.0)
    elif S.SIGMA == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
        y = 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    elif S.SIGMA == "silu":
        s = tl.sigmoid(z)
        y = s * (1.0 + z * (1.0 - s))
    elif S.SIGMA == "tanh":
        t = 2.0 * tl.sigmoid(2.0 * z) - 1.0
        y = 1.0 - t * t
    elif S.SIGMA == "rational":
        q = 1.0 + 0.31727447 * z * z
        y = 0.5 + 1.0568791 * z / (q * q)
    else:
        tl.static_assert(S.SIGMA == "polynomial")
        y = 0.5 + 0.3989422804014327 * z
    return y
