"""Feed-forward network with residual blocks on the point values, section C.1 of the paper."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import check_fields, check_least, check_size, plane
from torchcno.models.tables import SEARCH_TRAINING, table


@dataclass(frozen=True)
class FFNNConfig:
    """Hyper-parameters of `FFNN`; the paper's symbols beside them."""

    in_channels: int = 1
    out_channels: int = 1
    size: tuple[int, ...] = (64, 64)  # (s, s): the one grid that the weights belong to
    layers: int = 10  # L
    width: int = 512  # d

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", plane(self.size))
        check_least(self, layers=1, width=1)


# fmt: off
PAPER = table(("layers", "width"), {
    #                           L   d
    "poisson":                 (10, 512),
    "wave":                    (4,  256),
    "smooth-transport":        (16, 256),
    "discontinuous-transport": (6,  512),
    "allen-cahn":              (8,  512),
    "navier-stokes":           (16, 256),
    "darcy":                   (16, 256),
    "airfoil":                 (16, 32),
})
PAPER_TRAINING = table(("learning_rate", "gamma", "weight_decay", "batch_size"), {
    #                           η     γ     w     batch
    "poisson":                 (5e-4, 0.98, 1e-6, 10),
    "wave":                    (1e-3, 0.98, 1e-6, 10),
    "smooth-transport":        (1e-3, 1.0,  0.0,  10),
    "discontinuous-transport": (5e-4, 1.0,  0.0,  10),
    "allen-cahn":              (5e-4, 0.98, 0.0,  10),
    "navier-stokes":           (1e-3, 1.0,  1e-6, 10),
    "darcy":                   (5e-4, 0.98, 1e-6, 10),
    "airfoil":                 (5e-4, 1.0,  0.0,  10),
})
# fmt: on


SEARCH: dict[str, tuple[int, ...]] = {
    "layers": (4, 6, 8, 10, 12, 16),
    "width": (32, 64, 128, 256, 512),
}


class FFNN(nn.Module):
    """G(u) = C_L ∘ σ ∘ … ∘ σ ∘ C_1 (u(x_1), …, u(x_m)), with a shortcut over every second layer.

    Its weights belong to the m = s² points of one grid, `size`; other grids are refused.
    """

    Config = FFNNConfig
    PAPER: ClassVar = PAPER
    PAPER_TRAINING: ClassVar = PAPER_TRAINING
    SEARCH: ClassVar = SEARCH
    SEARCH_TRAINING: ClassVar = SEARCH_TRAINING

    def __init__(self, config: FFNNConfig) -> None:
        super().__init__()
        self.config = config
        d, points = config.width, math.prod(config.size)
        blocks, rest = divmod(config.layers - 1, 2)
        self.input = nn.Linear(config.in_channels * points, d)
        self.blocks = nn.Sequential(*(ResidualBlock(d) for _ in range(blocks)))
        self.last = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(d, d), nn.BatchNorm1d(d), nn.LeakyReLU())
                for _ in range(rest)
            )
        )
        self.output = nn.Linear(d, config.out_channels * points)

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"]
    ) -> Float[Tensor, "batch out_channels *space"]:
        """The output field on the grid of u."""
        check_fields(u, self.config.in_channels, least=1)
        check_size(u, self.config.size)
        z = F.leaky_relu(self.input(u.flatten(1)))
        z = self.output(self.last(self.blocks(z)))
        return z.view(len(u), self.config.out_channels, *self.config.size)


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
        """The next block's neurons."""
        return F.leaky_relu(z + self.body(z))
