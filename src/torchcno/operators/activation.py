"""The activation Σ = D ∘ σ ∘ U, which leaves no content beyond the band of its output grid."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators import kernels
from torchcno.operators.bands import Bands, band, fir_taps
from torchcno.operators.filters import Boundary, LowPass, WindowedSinc
from torchcno.operators.resampling import Matrices, activation_matrices, fine_rate
from torchcno.selection import select


@dataclass(frozen=True)
class Sigma:
    """σ(t) = gain · function(t)."""

    function: Callable[[Tensor], Tensor]
    gain: float = 1.0
    # The function and its derivative times g in the memory of t and g, where torch has them: on a
    # CPU fresh memory for a fine grid costs several times the arithmetic.
    overwrite: Callable[[Tensor], Tensor] | None = None
    overwrite_gradient: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, t: Tensor) -> Tensor:
        """σ(t)."""
        return self.function(t) if self.gain == 1 else self.gain * self.function(t)

    def gradient(self, g: Tensor, t: Tensor) -> Tensor:
        """g · function'(t); g may be overwritten."""
        if self.overwrite_gradient is not None:
            return self.overwrite_gradient(g, t)
        product: Tensor = torch.func.vjp(self.function, t)[1](g)[0]
        return product


def _leaky_relu_gradient(g: Tensor, t: Tensor) -> Tensor:
    return torch.ops.aten.leaky_relu_backward.grad_input(g, t, 0.2, False, grad_input=g)


def _polynomial(t: Tensor) -> Tensor:
    return 0.5 * t + (1 + t * t) / math.sqrt(8 * math.pi)


# `leaky_relu` has the authors' slope, and the gain that keeps a variance. `polynomial` is the
# quadratic nearest to ReLU under the normal distribution: squaring doubles a band and no more, so
# that N_σ = 2 is exactly alias-free.
SIGMAS: dict[str, Sigma] = {
    "leaky_relu": Sigma(
        partial(F.leaky_relu, negative_slope=0.2),
        gain=math.sqrt(2),
        overwrite=partial(F.leaky_relu, negative_slope=0.2, inplace=True),
        overwrite_gradient=_leaky_relu_gradient,
    ),
    "relu": Sigma(F.relu, overwrite=torch.relu_),
    "gelu": Sigma(F.gelu),
    "silu": Sigma(F.silu, overwrite=partial(F.silu, inplace=True)),
    "tanh": Sigma(torch.tanh, overwrite=torch.tanh_),
    "polynomial": Sigma(_polynomial),
}

BANDED_FROM = 32  # points an axis where FIR filters overtake matrices on a CPU, in float32
LARGEST_MATRIX = 1024  # points an axis beyond which matrices are not even made
PART = 2**20  # fine samples at a time on a CPU: what its caches hold


def filtered_activation(
    x: Float[Tensor, "batch channel *space"],
    bias: Float[Tensor, " channel"],
    ups: Sequence[Float[Tensor, "_ _"]],
    downs: Sequence[Float[Tensor, "_ _"]],
    sigma: Sigma,
) -> Float[Tensor, "batch channel *out_space"]:
    """D σ(U (x + b)) with one matrix of U and of D an axis; in two dimensions

        Y = D_y σ(U_y (X + b) U_xᵀ) D_xᵀ

    This is the definition; `torchcno.operators.kernels` computes the same in one pass on CUDA.
    """
    return _activate(x, bias, Matrices(ups, downs), sigma)


def _activate(x: Tensor, bias: Tensor, way: Matrices | Bands, sigma: Sigma) -> Tensor:
    fine = way.up(x + bias.view(-1, *[1] * (x.ndim - 2)))
    y = way.down(sigma.function(fine))
    return y if sigma.gain == 1 else sigma.gain * y  # linear: cheaper here than on the fine grid


class _InParts(torch.autograd.Function):
    """Σ a few samples at a time, so that a CPU's caches hold their fine grids.

    Nothing of the fine grids is kept: fresh memory for them costs more than making them again.
    """

    @staticmethod
    def forward(
        x: Tensor, bias: Tensor, way: Matrices | Bands, sigma: Sigma, samples: int
    ) -> Tensor:
        """Σ x."""
        overwriting = replace(sigma, function=sigma.overwrite or sigma.function)
        return torch.cat([_activate(part, bias, way, overwriting) for part in x.split(samples)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the coarse field alone."""
        x, bias, ctx.way, ctx.sigma, ctx.samples = inputs
        ctx.save_for_backward(x, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        way, sigma = ctx.way, ctx.sigma
        if torch.is_grad_enabled():  # to be differentiated again: nothing may be overwritten
            sigma = replace(sigma, overwrite_gradient=None)
        dx = []
        for part, dy_part in zip(x.split(ctx.samples), dy.split(ctx.samples), strict=True):
            fine = way.up(part + bias.view(-1, *[1] * (x.ndim - 2)))
            dfine = way.down_adjoint(dy_part if sigma.gain == 1 else sigma.gain * dy_part)
            dx.append(way.up_adjoint(sigma.gradient(dfine, fine)))
        gradient = torch.cat(dx)
        return gradient, gradient.sum((0, *range(2, x.ndim))), None, None, None


class Activation(nn.Module):
    """Σ f = D σ(U (f + b)) on fields of `size_in` to fields of `size_out`, with a bias b a channel.

    σ acts on a grid N_σ = `upsampling` times finer than the finer of the two (section 2).
    """

    def __init__(
        self,
        channels: int,
        size_in: tuple[int, ...],
        size_out: tuple[int, ...],
        sigma: str,
        filter: LowPass,
        boundary: Boundary,
        upsampling: float | int,
    ) -> None:
        super().__init__()
        select(SIGMAS, sigma, "activation")
        self.sigma, self.boundary = sigma, boundary
        self.size_in, self.size_out = tuple(size_in), tuple(size_out)
        self.bias = nn.Parameter(torch.zeros(channels))
        axes = list(zip(size_in, size_out, strict=True))
        self.fine_points = math.prod(fine_rate(max(axis), upsampling) for axis in axes)
        bands = [band(*axis, upsampling, filter, boundary) for axis in axes]
        self.bands = [b for b in bands if b is not None] if all(bands) else None
        self.dense = self.bands is None or max(*size_in, *size_out) <= LARGEST_MATRIX
        self._exact: dict[str, Tensor] = {}
        for i, axis in enumerate(axes):
            if self.dense:
                up, down = activation_matrices(*axis, upsampling, filter, boundary)
                self._exact |= {f"up_{i}": up, f"down_{i}": down}
            if self.bands is not None and isinstance(filter, WindowedSinc):
                up, _ = fir_taps(self.bands[i].up, filter, boundary)
                _, down = fir_taps(self.bands[i].down, filter, boundary)
                self._exact |= {f"up_taps_{i}": up, f"down_taps_{i}": down}
        for name in self._exact:
            self.register_buffer(name, None, persistent=False)
        self._cast()

    def _cast(self) -> None:
        for name, values in self._exact.items():
            setattr(self, name, values.to(self.bias))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Activation":
        # A cast starts from the exact numbers: `.double()` must not keep float32's rounding.
        super()._apply(fn, recurse)
        self._cast()
        return self

    def _an_axis(self, name: str) -> list[Tensor]:
        return [getattr(self, f"{name}_{i}") for i in range(len(self.size_in))]

    @property
    def ups(self) -> list[Tensor]:
        """U, one matrix an axis."""
        return self._an_axis("up")

    @property
    def downs(self) -> list[Tensor]:
        """D, one matrix an axis."""
        return self._an_axis("down")

    def forward(
        self, x: Float[Tensor, "batch channel *space"]
    ) -> Float[Tensor, "batch channel *out_space"]:
        """Σ x, the same numbers by whichever way is fastest."""
        if not self.dense or self._prefers_bands(x):
            return self._through(self._by_bands(), x)
        if kernels.is_supported(x, self.ups, self.downs, self.sigma):
            return kernels.fused_activation(x, self.bias, self.ups, self.downs, self.sigma)
        return self._through(Matrices(self.ups, self.downs), x)

    def by_matrices(self, x: Tensor) -> Tensor:
        """Σ x by one matrix an axis."""
        return self._through(Matrices(self.ups, self.downs), x)

    def by_bands(self, x: Tensor) -> Tensor:
        """Σ x by FIR filters."""
        return self._through(self._by_bands(), x)

    def _by_bands(self) -> Bands:
        if self.bands is None:
            raise ValueError(f"{self} has no FIR form; use `by_matrices`.")
        return Bands(
            self.bands, self._an_axis("up_taps"), self._an_axis("down_taps"), self.boundary
        )

    def _prefers_bands(self, x: Tensor) -> bool:
        # Single-channel convolutions are fast on the CPU in float32 only.
        fast = x.device.type == "cpu" and x.dtype is torch.float32
        return fast and self.bands is not None and max(self.size_in + self.size_out) >= BANDED_FROM

    def _through(self, way: Matrices | Bands, x: Tensor) -> Tensor:
        # A tracer wants one graph, and autocast is off when a backward pass makes the grid again.
        plain = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
        if plain or x.device.type != "cpu":
            return _activate(x, self.bias, way, SIGMAS[self.sigma])
        samples = max(1, PART // (len(self.bias) * self.fine_points))
        y: Tensor = _InParts.apply(x, self.bias, way, SIGMAS[self.sigma], samples)
        return y

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{len(self.bias)}, {self.size_in} -> {self.sigma} -> {self.size_out}"


class PointwiseActivation(nn.Module):
    """σ(f + b) on the samples themselves, then average pooling or nearest upsampling to `size_out`.

    What a plain convolutional network does, aliasing included (the ablation "CNO w/o Filters").
    """

    def __init__(
        self, channels: int, size_in: tuple[int, ...], size_out: tuple[int, ...], sigma: str
    ) -> None:
        super().__init__()
        self.sigma = sigma
        select(SIGMAS, sigma, "activation")
        self.size_in, self.size_out = size_in, size_out
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self, x: Float[Tensor, "batch channel *space"]
    ) -> Float[Tensor, "batch channel *out_space"]:
        """σ(x + b), pooled or repeated."""
        x = SIGMAS[self.sigma](x + self.bias.view(-1, *[1] * len(self.size_in)))
        coarser = tuple(map(min, self.size_in, self.size_out))
        if coarser != self.size_in:
            x = F.interpolate(x, coarser, mode="area")
        if coarser != self.size_out:
            x = F.interpolate(x, self.size_out, mode="nearest-exact")
        return x

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{len(self.bias)}, {self.size_in} -> {self.sigma} -> {self.size_out}"
