"""The activation Σ = D ∘ σ ∘ U, which leaves no content beyond the band of its output grid."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators import kernels
from torchcno.operators.filters import Boundary, LowPass
from torchcno.operators.resampling import activation_matrices, along
from torchcno.selection import select

Sigma = Callable[[Tensor], Tensor]


def leaky_relu(t: Tensor) -> Tensor:
    """√2 t where t > 0, else 0.2 √2 t: the authors' slope, and the gain that keeps a variance."""
    return math.sqrt(2) * F.leaky_relu(t, 0.2)


def polynomial(t: Tensor) -> Tensor:
    """t/2 + (1 + t²)/√(8π): the quadratic nearest to ReLU under the normal distribution.

    Squaring doubles a band and no more, so N_σ = 2 is exactly alias-free (remark on equivariance).
    """
    return 0.5 * t + (1 + t * t) / math.sqrt(8 * math.pi)


SIGMAS: dict[str, Sigma] = {
    "leaky_relu": leaky_relu,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "polynomial": polynomial,
}


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
    axes = range(-len(ups), 0)
    x = x + bias.view(-1, *[1] * len(ups))
    for up, axis in zip(reversed(ups), reversed(axes), strict=True):
        x = along(up, x, axis)
    x = sigma(x)
    for down, axis in zip(downs, axes, strict=True):
        x = along(down, x, axis)
    return x


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
        upsampling: float,
    ) -> None:
        super().__init__()
        self.sigma = sigma
        select(SIGMAS, sigma, "activation")
        self.bias = nn.Parameter(torch.zeros(channels))
        self._exact = [
            activation_matrices(n_in, n_out, upsampling, filter, boundary)
            for n_in, n_out in zip(size_in, size_out, strict=True)
        ]
        for axis in range(len(self._exact)):
            self.register_buffer(f"up_{axis}", None, persistent=False)
            self.register_buffer(f"down_{axis}", None, persistent=False)
        self._cast_matrices()

    def _cast_matrices(self) -> None:
        for axis, (up, down) in enumerate(self._exact):
            setattr(self, f"up_{axis}", up.to(self.bias))
            setattr(self, f"down_{axis}", down.to(self.bias))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Activation":
        # A cast starts from the exact matrices: `.double()` must not keep float32's rounding.
        super()._apply(fn, recurse)
        self._cast_matrices()
        return self

    @property
    def ups(self) -> list[Tensor]:
        """U, one matrix an axis."""
        return [getattr(self, f"up_{axis}") for axis in range(len(self._exact))]

    @property
    def downs(self) -> list[Tensor]:
        """D, one matrix an axis."""
        return [getattr(self, f"down_{axis}") for axis in range(len(self._exact))]

    def forward(
        self, x: Float[Tensor, "batch channel *space"]
    ) -> Float[Tensor, "batch channel *out_space"]:
        """Σ x."""
        if kernels.is_supported(x, self.ups, self.downs, self.sigma):
            return kernels.fused_activation(x, self.bias, self.ups, self.downs, self.sigma)
        return filtered_activation(x, self.bias, self.ups, self.downs, SIGMAS[self.sigma])

    def extra_repr(self) -> str:
        """What `print` shows."""
        fine = tuple(len(up) for up, _ in self._exact)
        size_in = tuple(up.shape[1] for up, _ in self._exact)
        size_out = tuple(len(down) for _, down in self._exact)
        return f"{len(self.bias)}, {size_in} -> {fine} -> {self.sigma} -> {size_out}"


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
