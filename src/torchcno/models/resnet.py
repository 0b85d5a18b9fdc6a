"""Convolutional residual network: the generator of CycleGAN, section C.1 of the paper."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import PlaneConfig, check_fields, join_conditions
from torchcno.operators import lay_channels_last
from torchcno.selection import option

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}  # by dimension


@dataclass(frozen=True)
class ResNetConfig(PlaneConfig):
    """Hyper-parameters of `ResNet`; it runs on any grid of at least 4 points per axis."""

    channels: int = option(
        32, "channels of the first convolution, doubled by each of two halvings (c)", least=1
    )
    residual_blocks: int = option(8, "residual blocks on the coarse grid (N_res)", least=0)


class ResNet(nn.Module):
    """7×7 convolution, two halvings, N_res residual blocks, two doublings, 7×7 convolution.

    Zero padding throughout; runs on any grid of at least 4 points an axis. Where an axis is no
    multiple of 4 the doublings end beyond its last point, and what is beyond is cut off.
    """

    Config = ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        c = config.channels
        self.encoder = nn.Sequential(
            *normalised(nn.Conv2d(config.fields_and_scalars, c, 7, padding=3, bias=False)),
            *normalised(nn.Conv2d(c, 2 * c, 3, stride=2, padding=1, bias=False)),
            *normalised(nn.Conv2d(2 * c, 4 * c, 3, stride=2, padding=1, bias=False)),
        )
        self.residual = nn.Sequential(
            *(ResidualBlock(4 * c) for _ in range(config.residual_blocks))
        )
        self.decoder = nn.Sequential(
            *normalised(doubling(4 * c, 2 * c)),
            *normalised(doubling(2 * c, c)),
            nn.Conv2d(c, config.out_channels, 7, padding=3),
        )
        lay_channels_last(self)  # where convolutions are faster

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config, least=4)
        v = self.decoder(self.residual(self.encoder(join_conditions(u, conditions, self.config))))
        return v[:, :, : u.shape[2], : u.shape[3]]


class ResidualBlock(nn.Module):
    """v ↦ v + BN(W_2 ReLU(BN(W_1 v))), with 3×3 convolutions W."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *normalised(nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch c y x"]:
        return v + self.body(v)


def normalised(convolution: Convolution) -> tuple[nn.Module, ...]:
    """The convolution, then batch norm and ReLU."""
    norm = BATCH_NORMS[len(convolution.kernel_size)]
    return convolution, norm(convolution.out_channels), nn.ReLU(inplace=True)


def doubling(in_channels: int, out_channels: int) -> nn.ConvTranspose2d:
    """The transposed convolution that doubles the number of points."""
    return nn.ConvTranspose2d(
        in_channels, out_channels, 3, stride=2, padding=1, output_padding=1, bias=False
    )
