"""Galerkin transformer (Cao, 2021), section C.1 of the paper.

It is trained with the loss `weighted-l2` and the schedule `one-cycle`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.fno import Pointwise, SpectralConvolution
from torchcno.models.inputs import PlaneConfig, check_fields, coordinates, join_conditions
from torchcno.selection import option


@dataclass(frozen=True)
class GalerkinTransformerConfig(PlaneConfig):
    """Hyper-parameters of `GalerkinTransformer`; it runs on any grid of 4 points per axis or more.

    The width is at least three: down-scaling divides it by three.
    """

    blocks: int = option(4, "attention blocks (n)", least=1)
    heads: int = option(4, "heads of the attention (h)", least=1)
    width: int = option(64, "features of the attention, a multiple of the heads (d)", least=3)
    decoder_layers: int = option(2, "Fourier layers of the decoder (L)", least=1)
    decoder_width: int = option(64, "channels of the decoder (d_v)", least=1)
    modes: int = option(16, "Fourier modes of the decoder, kept per axis (k_max)", least=1)
    feed_forward: int = option(128, "hidden neurons of a block's network (g)", least=1)
    coarsening: float = option(2.0, "grid points per point that the attention sees", least=1)
    dropout: float = option(0.05, "dropout in the encoder and the attention")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not divisible by heads = {self.heads}; "
                f"use width={self.heads * max(1, self.width // self.heads)}."
            )


class GalerkinTransformer(nn.Module):
    """Down to a coarse grid by convolutions, n attention blocks there, up, a spectral decoder.

    Runs on any grid of at least 4 points an axis. The paper counts real numbers here: two for a
    complex weight of the decoder.
    """

    Config = GalerkinTransformerConfig

    def __init__(self, config: GalerkinTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.down = DownScaler(config)
        self.blocks = nn.Sequential(*(GalerkinBlock(config) for _ in range(config.blocks)))
        self.up = nn.Conv2d(config.width, config.width, 3, padding=1, bias=False)
        self.decoder = SpectralDecoder(config)

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config, least=4)
        middle, coarse = scaled_sizes(u, self.config.coarsening)
        joined = join_conditions(u, conditions, self.config)
        v = self.blocks(self.down(joined, middle, coarse))
        v = F.silu(self.up(interpolate(v, middle)))
        return self.decoder(interpolate(v, u.shape[2:]))


class DownScaler(nn.Module):
    """Four convolutions with ReLU; interpolation to a coarser grid after the first and the last.

    The last three hand on their channels side by side: a third of the width each.
    """

    def __init__(self, config: GalerkinTransformerConfig) -> None:
        super().__init__()
        d, third = config.width, config.width // 3
        self.first = nn.Conv2d(config.fields_and_scalars, d, 3, padding=1, bias=False)
        self.chain = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False)
            for a, b in [(d, third), (third, third), (third, d - 2 * third)]
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, u: Float[Tensor, "batch c y x"], middle: tuple[int, int], coarse: tuple[int, int]
    ) -> Float[Tensor, "batch d y_coarse x_coarse"]:
        v = interpolate(F.relu(self.dropout(self.first(u))), middle)
        features = []
        for convolution in self.chain:
            v = F.relu(self.dropout(convolution(v)))
            features.append(v)
        return interpolate(torch.cat(features, dim=1), coarse)


class GalerkinBlock(nn.Module):
    """y ↦ z + g(z), z = y + Attn(y), with a network g of one hidden layer (section C.1)."""

    def __init__(self, config: GalerkinTransformerConfig) -> None:
        super().__init__()
        self.attention = GalerkinAttention(config.width, config.heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, config.feed_forward),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.feed_forward, config.width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, v: Float[Tensor, "batch d y x"]) -> Float[Tensor, "batch d y x"]:
        positions = coordinates(v).flatten(1).T
        y = v.flatten(2).mT
        z = y + self.dropout(self.attention(y, positions))
        z = z + self.dropout(self.feed_forward(z))
        return z.mT.unflatten(2, v.shape[2:])


class GalerkinAttention(nn.Module):
    """Attention without softmax, linear in the number of points n:

        Attn(y) = Q (K̃ᵀ Ṽ) / n

    for each head, with K̃ and Ṽ normalised by `HeadNorm` and the positions (x, y) joined to Q, K̃
    and Ṽ; then a linear layer mixes the heads. K̃ᵀ Ṽ / n is a quadrature of the inner products of
    the functions in the columns of K̃ and Ṽ: a Galerkin projection.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (scaled_linear(width) for _ in range(3))
        self.key_norm, self.value_norm = (HeadNorm(heads, width // heads) for _ in range(2))
        self.mix = nn.Linear(width + 2 * heads, width)

    def forward(
        self, y: Float[Tensor, "batch n d"], positions: Float[Tensor, "n 2"]
    ) -> Float[Tensor, "batch n d"]:
        q, k, v = self.queries_keys_values(y, positions)
        attended = q @ (k.mT @ v / y.shape[1])
        return self.mix(attended.transpose(1, 2).flatten(2))

    def queries_keys_values(
        self, y: Float[Tensor, "batch n d"], positions: Float[Tensor, "n 2"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K̃ and Ṽ of every head: (batch, heads, n, d / heads + 2) each."""
        parts = (
            in_heads(self.query(y), self.heads),
            self.key_norm(self.key(y)),
            self.value_norm(self.value(y)),
        )
        encoding = positions.expand(y.shape[0], self.heads, -1, -1)
        q, k, v = (torch.cat([encoding, part], dim=-1) for part in parts)
        return q, k, v


class HeadNorm(nn.Module):
    """Layer norm of each head's features z, with a scale and shift of its own.

        z ↦ weight (z − mean z) / √(var z + ε) + bias,   ε = 1e-5

    ε is not small beside what a new network hands over: keys and values come out of layers near
    0.01 times the identity (`scaled_linear`), with about 1e-4 of the variance that goes in. Where
    that is 0.01, K̃ and Ṽ have a deviation of a few tenths at first, and near 1 only once these
    layers have grown.
    """

    def __init__(self, heads: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads, 1, features))
        self.bias = nn.Parameter(torch.zeros(heads, 1, features))

    def forward(self, z: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch heads n f"]:
        z = in_heads(z, len(self.weight))
        return F.layer_norm(z, z.shape[-1:], eps=1e-5) * self.weight + self.bias


def in_heads(z: Float[Tensor, "batch n d"], heads: int) -> Float[Tensor, "batch heads n f"]:
    """The d features of a point, divided among the heads."""
    return z.unflatten(2, (heads, -1)).transpose(1, 2)


class SpectralDecoder(nn.Module):
    """A linear layer on (v, x, y), L Fourier layers with SiLU, a hidden layer at every point."""

    def __init__(self, config: GalerkinTransformerConfig) -> None:
        super().__init__()
        d, layers = config.decoder_width, range(config.decoder_layers)
        self.lift = Pointwise(config.width + 2, d)
        self.pointwise = nn.ModuleList(Pointwise(d, d) for _ in layers)
        self.spectral = nn.ModuleList(
            SpectralConvolution(d, d, config.modes, config.size) for _ in layers
        )
        self.project = nn.Sequential(
            Pointwise(d, 4 * d), nn.SiLU(), Pointwise(4 * d, config.out_channels)
        )

    def forward(self, v: Float[Tensor, "batch d y x"]) -> Float[Tensor, "batch out y x"]:
        v = self.lift(torch.cat([v, coordinates(v).expand(v.shape[0], -1, -1, -1)], dim=1))
        for pointwise, spectral in zip(self.pointwise, self.spectral, strict=True):
            v = F.silu(pointwise(v) + spectral(v))
        return self.project(v)


def scaled_linear(width: int) -> nn.Linear:
    """A linear layer that starts near 0.01 times the identity, as Cao's attention does."""
    layer = nn.Linear(width, width)
    nn.init.xavier_uniform_(layer.weight, gain=1e-2)
    nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layer.weight += 1e-2 * torch.eye(width)
    return layer


def scaled_sizes(u: Tensor, coarsening: float) -> tuple[tuple[int, int], tuple[int, int]]:
    """A grid halfway (in the logarithm of the spacing) to that of the attention, and the latter."""
    n_y, n_x = u.shape[2:]
    middle, coarse = (
        (math.ceil(n_y / factor), math.ceil(n_x / factor))
        for factor in (math.sqrt(coarsening), coarsening)
    )
    return middle, coarse


def interpolate(v: Float[Tensor, "batch c y x"], size: tuple[int, ...]) -> Tensor:
    """Linear interpolation along each axis, the ends of both grids being the same points.

    As matrix products, whose gradient is products again: the same every time, on a GPU too.
    """
    hats_y, hats_x = (hat_functions(*axis, v) for axis in zip(v.shape[2:], size, strict=True))
    return hats_y @ (v @ hats_x.T)


def hat_functions(n_in: int, n_out: int, like: Tensor) -> Float[Tensor, "n_out n_in"]:
    """max(0, 1 − |x_i − j|): the hat of each of `n_in` points at `n_out` positions x_i.

    The positions go from the first point to the last; type and device are those of `like`.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)  # half precision has no fine positions
    x = torch.linspace(0, n_in - 1, n_out, dtype=dtype, device=like.device)
    j = torch.arange(n_in, dtype=dtype, device=like.device)
    return F.relu(1 - (x[:, None] - j).abs()).to(like.dtype)
