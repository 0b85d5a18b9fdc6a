"""Feed-forward network with residual blocks on the point values, section C.1 of the paper."""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import PlaneConfig, check_fields, check_size, join_conditions
from torchcno.selection import option


@dataclass(frozen=True)
class FFNNConfig(PlaneConfig):
    """Hyper-parameters of `FFNN`; its weights belong to the one grid of `size`."""

    layers: int = option(10, "layers (L)", least=1)
    width: int = option(512, "neurons per layer (d)", least=1)
    norm_behind: bool = option(False, "batch norm behind the activation in an odd last layer")


class FFNN(nn.Module):
    """G(u) = C_L ∘ σ ∘ … ∘ σ ∘ C_1 (u(x_1), …, u(x_m)), with a shortcut over every second layer.

    Its weights belong to the m = s² points of one grid, `size`; other grids are refused.
    """

    Config = FFNNConfig

    def __init__(self, config: FFNNConfig) -> None:
        super().__init__()
        self.config = config
        d, points = config.width, math.prod(config.size)
        blocks, rest = divmod(config.layers - 1, 2)
        self.input = nn.Linear(config.fields_and_scalars * points, d)
        self.blocks = nn.Sequential(*(ResidualBlock(d) for _ in range(blocks)))
        norm_and_sigma = [nn.BatchNorm1d(d), nn.LeakyReLU()]
        if config.norm_behind:
            norm_and_sigma.reverse()
        layer = nn.Sequential(nn.Linear(d, d), *norm_and_sigma)
        self.last = nn.Sequential(*[layer] * rest)  # one or none
        self.output = nn.Linear(d, config.out_channels * points)
        for linear in self.modules():
            if isinstance(linear, nn.Linear):  # as the authors begin (docs/training.md)
                nn.init.xavier_uniform_(linear.weight, gain=math.sqrt(2))
                nn.init.zeros_(linear.bias)

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config)
        check_size(u, self.config.size)
        z = F.leaky_relu(self.input(join_conditions(u, conditions, self.config).flatten(1)))
        z = self.output(self.last(self.blocks(z)))
        return z.view(u.shape[0], self.config.out_channels, *self.config.size)


class ResidualBlock(nn.Module):
    """z ↦ σ(z + BN(C_2 BN(σ(C_1 z))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width, width),
            nn.LeakyReLU(),
            nn.BatchNorm1d(width),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
        )

    def forward(self, z: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        return F.leaky_relu(z + self.body(z))
