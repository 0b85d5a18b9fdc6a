"""Fourier Neural Operator (Li et al., 2021), section C.1 of the paper."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import check_fields, coordinates, plane
from torchcno.models.tables import SEARCH_TRAINING, table


@dataclass(frozen=True)
class FNOConfig:
    """Hyper-parameters of `FNO`; the paper's symbols beside them."""

    in_channels: int = 1
    out_channels: int = 1
    size: tuple[int, ...] = (64, 64)  # of the training grid; any other will do too
    layers: int = 5  # L
    width: int = 16  # d_v
    modes: int = 16  # k_max
    pad: int = 0  # zeros after the last point of an axis, in grid points of the input
    hidden_width: int = 128  # of the lifting and of the projection
    coordinates: bool = True  # whether the lifting sees (x, y) beside u

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", plane(self.size))


# fmt: off
PAPER = table(("pad", "modes", "width", "layers"), {
    #                           pad k_max d_v  L
    "poisson":                 (0,  16,   16,  5),
    "wave":                    (0,  20,   16,  4),
    "smooth-transport":        (4,  20,   32,  5),
    "discontinuous-transport": (4,  16,   32,  5),
    "allen-cahn":              (0,  20,   16,  3),
    "navier-stokes":           (0,  16,   128, 5),
    "darcy":                   (0,  24,   16,  2),
    "airfoil":                 (8,  24,   32,  3),
})
# fmt: on
PAPER_TRAINING: dict[str, dict[str, Any]] = {
    problem: dict(learning_rate=1e-3, gamma=0.98, weight_decay=1e-6, batch_size=32)
    for problem in PAPER
}


# The values of the paper's table: its text gives no ranges.
SEARCH: dict[str, tuple[Any, ...]] = {
    "layers": (2, 3, 4, 5),
    "width": (16, 32, 64, 128),
    "modes": (16, 20, 24),
    "pad": (0, 4, 8),
}


class SpectralConvolution(nn.Module):
    """A convolution given by its first Fourier coefficients.

        (K v)(x) = Σ_{|k_x|, |k_y| < k_max} P(k) v̂(k) e^{2πi k·x}

    P(k) is a complex matrix from the channels of v to those of K v. v is real, so half of the plane
    of modes is enough: 0 ≤ k_x < k_max with −k_max ≤ k_y < k_max. A grid that resolves fewer modes
    uses those it has.
    """

    def __init__(self, in_channels: int, out_channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        # Modes lead: the product below is one batched matrix product that moves no weights.
        shape = (2 * modes, modes, in_channels, out_channels)
        scale = 1 / (in_channels * out_channels)  # the initial values of Li et al.
        self.weight = nn.Parameter(scale * torch.rand(*shape, dtype=torch.complex64))

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch d y x"]:
        """K v on the grid of v."""
        n_y, n_x = v.shape[2:]
        k_y, k_x = min(self.modes, n_y // 2), min(self.modes, n_x // 2 + 1)
        weight = self.weight[:, :k_x]
        if k_y < self.modes:
            weight = torch.cat([weight[:k_y], weight[-k_y:]])

        # Along x first: only the k_x columns that are kept go through the transforms along y.
        real = v.to(torch.promote_types(v.dtype, torch.float32))  # no FFT in half precision
        columns = torch.fft.fft(torch.fft.rfft(real)[..., :k_x], dim=2)
        v_hat = torch.cat([columns[:, :, :k_y], columns[:, :, n_y - k_y :]], dim=2)
        product = v_hat.permute(2, 3, 0, 1) @ weight.to(v_hat.dtype)
        low, high = product.permute(2, 3, 0, 1).split(k_y, dim=2)
        gap = low.new_zeros(*low.shape[:2], n_y - 2 * k_y, k_x)
        columns = torch.fft.ifft(torch.cat([low, gap, high], dim=2), dim=2)
        return torch.fft.irfft(columns, n=n_x).to(v.dtype)


class Pointwise(nn.Linear):
    """v(x) ↦ W v(x) + b at every point x: a 1×1 convolution, as one batched matrix product.

    The product is two to six times faster than `nn.Conv2d` on a CPU.
    """

    def forward(self, v: Float[Tensor, "batch c *space"]) -> Float[Tensor, "batch d *space"]:
        """The same field in other channels."""
        weight = self.weight.expand(len(v), -1, -1)
        return torch.baddbmm(self.bias[:, None], weight, v.flatten(2)).unflatten(2, v.shape[2:])


class FourierLayer(nn.Module):
    """v ↦ σ(W v + b + K v), with the same weight W at every point."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.pointwise = Pointwise(width, width)
        self.spectral = SpectralConvolution(width, width, modes)

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch c y x"]:
        """The next layer's field."""
        return F.gelu(self.pointwise(v) + self.spectral(v))


class FNO(nn.Module):
    """G = Q ∘ L_L ∘ … ∘ L_1 ∘ R, with Fourier layers L_ℓ; runs on grids of any size.

    R lifts (u(x), x) and Q projects, both a network of one hidden layer at every point. The paper
    counts a complex weight once, and so does `Tensor.numel`.
    """

    Config = FNOConfig
    PAPER: ClassVar = PAPER
    PAPER_TRAINING: ClassVar = PAPER_TRAINING
    SEARCH: ClassVar = SEARCH
    SEARCH_TRAINING: ClassVar = SEARCH_TRAINING

    def __init__(self, config: FNOConfig) -> None:
        super().__init__()
        self.config = config
        lifted = config.in_channels + (2 if config.coordinates else 0)
        self.lift = pointwise_network(lifted, config.hidden_width, config.width)
        self.layers = nn.Sequential(
            *(FourierLayer(config.width, config.modes) for _ in range(config.layers))
        )
        self.project = pointwise_network(config.width, config.hidden_width, config.out_channels)

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"]
    ) -> Float[Tensor, "batch out_channels *space"]:
        """The output field on the grid of u."""
        check_fields(u, self.config.in_channels, least=2)
        n_y, n_x = u.shape[2:]
        if self.config.coordinates:
            u = torch.cat([u, coordinates(u).expand(len(u), -1, -1, -1)], dim=1)
        v = F.pad(self.lift(u), (0, self.config.pad, 0, self.config.pad))
        v = self.layers(v)[:, :, :n_y, :n_x]
        return self.project(v)


def pointwise_network(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """One hidden layer, applied at every point."""
    return nn.Sequential(Pointwise(in_channels, hidden), nn.GELU(), Pointwise(hidden, out_channels))
