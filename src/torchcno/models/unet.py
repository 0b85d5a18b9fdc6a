"""U-Net (Ronneberger et al., 2015) with a chosen number of channels, section C.1 of the paper."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import FieldsConfig, check_fields
from torchcno.models.resnet import normalised
from torchcno.operators import lay_channels_last
from torchcno.operators.conditioning import Conditioner, Modulations, as_rows, modulate
from torchcno.selection import option

LEVELS = 4  # of Ronneberger's network
# By dimension: the convolution, the transposed one that doubles the points, and max-pooling.
PARTS: dict[int, Any] = {
    1: (nn.Conv1d, nn.ConvTranspose1d, F.max_pool1d),
    2: (nn.Conv2d, nn.ConvTranspose2d, F.max_pool2d),
    3: (nn.Conv3d, nn.ConvTranspose3d, F.max_pool3d),
}


@dataclass(frozen=True)
class UNetConfig(FieldsConfig):
    """Hyper-parameters of `UNet`; it runs on any grid of at least 16 points per axis."""

    channels: int = option(
        32, "channels of the first convolution, doubled at each level (c)", least=1
    )


class UNet(nn.Module):
    """Four levels down by max-pooling and up by transposed convolutions, joined level by level.

        c ─────────────────────────────── 2c → c ─ 1×1
         2c ──────────────────────── 4c → 2c
           4c ───────────────── 8c → 4c
             8c ────────── 16c → 8c
               16c ─────────┘

    Runs on any grid of at least 16 points an axis. Pooling drops the last point of an odd axis, as
    usual; on the way up the last value is repeated there. Where the configuration has scalars, they
    scale and shift the channels after each norm.
    """

    Config = UNetConfig

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        convolve, double, _ = PARTS[len(config.size)]
        widths = [config.channels * 2**level for level in range(LEVELS + 1)]
        inputs = [config.in_channels, *widths[:-1]]
        self.encoder = nn.ModuleList(
            TwoConvolutions(convolve, a, b) for a, b in zip(inputs, widths, strict=True)
        )
        self.up = nn.ModuleList(double(2 * c, c, 2, stride=2) for c in widths[:-1])
        self.decoder = nn.ModuleList(TwoConvolutions(convolve, 2 * c, c) for c in widths[:-1])
        self.project = convolve(config.channels, config.out_channels, 1)
        if config.conditioning:
            blocks = [*widths, *reversed(widths[:-1])]  # in the order of `forward`
            norms = [c for c in blocks for _ in range(2)]
            self.conditioner = Conditioner(len(config.conditioning), norms)
        lay_channels_last(self)  # where convolutions are faster

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config, least=2**LEVELS)
        rows = as_rows(conditions, self.config.conditioning, u)
        modulations = None if rows is None else iter(self.conditioner(rows))
        *_, pool = PARTS[len(self.config.size)]
        skips = [self.encoder[0](u, modulations)]
        for block in self.encoder[1:]:
            skips.append(block(pool(skips[-1], 2), modulations))
        v = skips.pop()
        for level in reversed(range(LEVELS)):
            v = extend_to(self.up[level](v), skips[level].shape[2:])
            v = self.decoder[level](torch.cat([v, skips[level]], dim=1), modulations)
        return self.project(v)


class TwoConvolutions(nn.Sequential):
    """Twice: convolution of 3 points per axis, batch norm, ReLU.

    Batch norm's shift makes a bias redundant.
    """

    def __init__(self, convolve: Any, in_channels: int, out_channels: int) -> None:
        super().__init__(
            *normalised(convolve(in_channels, out_channels, 3, padding=1, bias=False)),
            *normalised(convolve(out_channels, out_channels, 3, padding=1, bias=False)),
        )

    def forward(
        self, v: Float[Tensor, "batch c *space"], modulations: Modulations | None = None
    ) -> Float[Tensor, "batch d *space"]:
        if modulations is None:
            return super().forward(v)
        convolution1, norm1, sigma1, convolution2, norm2, sigma2 = self
        v = sigma1(modulate(norm1(convolution1(v)), next(modulations)))
        return sigma2(modulate(norm2(convolution2(v)), next(modulations)))


def extend_to(v: Float[Tensor, "batch c *space"], shape: torch.Size) -> Tensor:
    """`v` with its last values repeated up to `shape`; as it is where that fits."""
    missing = [n - have for n, have in zip(shape, v.shape[2:], strict=True)]
    if not any(missing):
        return v
    return F.pad(v, [end for n in reversed(missing) for end in (0, n)], mode="replicate")
