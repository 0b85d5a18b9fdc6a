"""The activation Σ = D ∘ σ ∘ U, which leaves no content beyond the band of its output grid."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators.boundary import Boundaries, boundary_of_axes
from torchcno.operators.filters import LowPass, WindowedSinc, fir_taps
from torchcno.operators.fused import choice
from torchcno.operators.fused.bands import FirBands, band
from torchcno.operators.fused.one_pass import activate_in_one_pass
from torchcno.operators.fused.recompute import recompute_channels
from torchcno.operators.resampling import Matrices, activation_matrices
from torchcno.operators.sigma import SIGMAS
from torchcno.selection import select

LARGEST_MATRIX = 1024  # points per axis beyond which matrices are not even made


def filtered_activation(
    x: Float[Tensor, "batch channel *space"],
    bias: Float[Tensor, " channel"],
    ups: Sequence[Float[Tensor, "_ _"]],
    downs: Sequence[Float[Tensor, "_ _"]],
    sigma: Callable[[Tensor], Tensor],
) -> Float[Tensor, "batch channel *out_space"]:
    """D σ(U (x + b)) with one matrix of U and of D per axis; in two dimensions

        Y = D_y σ(U_y (X + b) U_xᵀ) D_xᵀ

    This is the definition; `torchcno.operators.fused.kernels` computes the same in one pass.
    """
    return _activate(x, bias, Matrices(ups, downs), sigma)


def _activate(
    x: Tensor, bias: Tensor, way: Matrices | FirBands, sigma: Callable[[Tensor], Tensor]
) -> Tensor:
    def activate(x: Tensor, bias: Tensor) -> Tensor:
        return way.down(sigma(way.up(x + bias.view(-1, *[1] * (x.ndim - 2)))))

    return recompute_channels(activate, x, bias)


class Activation(nn.Module):
    """Σ f = D σ(U (f + b)) from fields of `size_in` to those of `size_out`, a bias b per channel.

    σ acts on a grid N_σ = `upsampling` times finer than the finer of the two (section 2).
    """

    def __init__(
        self,
        channels: int,
        size_in: tuple[int, ...],
        size_out: tuple[int, ...],
        sigma: str,
        filter: LowPass,
        boundary: Boundaries,
        upsampling: float | int,
    ) -> None:
        super().__init__()
        select(SIGMAS, sigma, "activation")
        self.sigma, self.boundaries = sigma, boundary_of_axes(boundary, len(size_in))
        self.size_in, self.size_out = tuple(size_in), tuple(size_out)
        self.bias = nn.Parameter(torch.zeros(channels))
        axes = list(zip(size_in, size_out, self.boundaries, strict=True))
        bands = [band(n, m, upsampling, filter, boundary) for n, m, boundary in axes]
        self.bands = [b for b in bands if b is not None] if all(bands) else None
        self.local = isinstance(filter, WindowedSinc)
        self.dense = self.bands is None or max(*size_in, *size_out) <= LARGEST_MATRIX
        self._exact: dict[str, Tensor] = {}
        for i, (n, m, edge) in enumerate(axes):
            if self.dense:
                up, down = activation_matrices(n, m, upsampling, filter, edge)
                self._exact |= {f"up_{i}": up, f"down_{i}": down}
            if self.bands is not None and isinstance(filter, WindowedSinc):
                up, _ = fir_taps(self.bands[i].up, filter, edge)
                _, down = fir_taps(self.bands[i].down, filter, edge)
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

    def _per_axis(self, name: str) -> list[Tensor]:
        return [getattr(self, f"{name}_{i}") for i in range(len(self.size_in))]

    @property
    def ups(self) -> list[Tensor]:
        """U, one matrix per axis."""
        return self._per_axis("up")

    @property
    def downs(self) -> list[Tensor]:
        """D, one matrix per axis."""
        return self._per_axis("down")

    def forward(
        self, x: Float[Tensor, "batch channel *space"], constant: Tensor | None = None
    ) -> Float[Tensor, "batch channel *out_space"]:
        """Σ x, or Σ(x + c) for a constant per channel: by whichever way is fastest."""
        if self.why_not_in_one_pass(x) is None:
            return self.in_one_pass(x, self._with(constant))
        return self.by_matrices(x, constant) if self.dense else self.by_bands(x, constant)

    def why_not_in_one_pass(self, x: Tensor) -> str | None:
        """Why Σ takes several passes over fields like x; None: it takes one."""
        if not self.dense:
            return "the grid is too large for matrices"
        return choice.why_not_in_one_pass(x, self.ups, self.downs, self.sigma, self.local)

    def in_one_pass(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """D σ(U (x + b)) for any bias, where nothing is against it; None: b = 0."""
        return activate_in_one_pass(x, bias, self.ups, self.downs, self.sigma)

    def _with(self, constant: Tensor | None) -> Tensor:
        return self.bias if constant is None else self.bias + constant

    def by_matrices(self, x: Tensor, constant: Tensor | None = None) -> Tensor:
        """Σ(x + c) by one matrix per axis."""
        return _activate(
            x, self._with(constant), Matrices(self.ups, self.downs), SIGMAS[self.sigma]
        )

    def by_bands(self, x: Tensor, constant: Tensor | None = None) -> Tensor:
        """Σ(x + c) by FIR filters."""
        if self.bands is None:
            raise ValueError(f"{self} has no FIR form; use `by_matrices`.")
        taps = self._per_axis("up_taps"), self._per_axis("down_taps")
        way = FirBands(self.bands, *taps, self.boundaries)
        return _activate(x, self._with(constant), way, SIGMAS[self.sigma])

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
        # The type of x stays: under autocast the bias has more digits.
        bias = self.bias.to(x.dtype).view(-1, *[1] * len(self.size_in))
        x = SIGMAS[self.sigma](x + bias)
        coarser = tuple(map(min, self.size_in, self.size_out))
        if coarser != self.size_in:
            x = F.interpolate(x, coarser, mode="area")
        if coarser != self.size_out:
            x = F.interpolate(x, self.size_out, mode="nearest-exact")
        return x

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{len(self.bias)}, {self.size_in} -> {self.sigma} -> {self.size_out}"
