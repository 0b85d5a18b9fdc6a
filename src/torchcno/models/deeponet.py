"""DeepONet (Lu et al., 2021) with a convolutional branch, section C.1 of the paper."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.inputs import (
    PlaneConfig,
    check_fields,
    check_size,
    coordinates,
    join_conditions,
)
from torchcno.selection import option


@dataclass(frozen=True)
class DeepONetConfig(PlaneConfig):
    """Hyper-parameters of `DeepONet`; the branch takes the one grid of `size`."""

    bases: int = option(500, "basis functions (p)", least=1)
    trunk_layers: int = option(8, "layers of the trunk network (L)", least=1)
    trunk_width: int = option(128, "neurons per layer of the trunk network (d)", least=1)
    branch_levels: int = option(4, "halvings of the grid in the branch network (M)", least=1)
    residual_blocks: int = option(4, "residual blocks of the branch network (N_res)", least=0)
    branch_width: int = option(
        32, "channels after the branch's first level, doubled by each further one", least=1
    )


class DeepONet(nn.Module):
    """Coefficients of a branch network β, basis functions of a trunk network τ:

        G(u)(y) = (Σ_{k ≤ p} β_k(u) τ_k(y) + b) / √p

    The branch reads u at the sensor points, the grid `size`; other grids are refused. Several
    output channels share the basis functions and have their own coefficients.
    """

    Config = DeepONetConfig

    def __init__(self, config: DeepONetConfig) -> None:
        super().__init__()
        self.config = config
        self.branch = branch(config)
        self.trunk = trunk(config)
        self.bias = nn.Parameter(torch.zeros(config.out_channels, 1, 1))

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config)
        check_size(u, self.config.size)
        beta = self.branch(join_conditions(u, conditions, self.config))
        return self.expand(beta, coordinates(u))

    def expand(
        self, beta: Float[Tensor, "batch coefficients"], position: Float[Tensor, "2 y x"]
    ) -> Float[Tensor, "batch out_channels y x"]:
        """The output field at `position` that belongs to the branch's output β."""
        p, shape = self.config.bases, position.shape[1:]
        tau = self.trunk(position.flatten(1).T)
        v = (beta.unflatten(1, (-1, p)) @ tau.T).unflatten(2, shape)
        return (v + self.bias) / math.sqrt(p)


def branch(config: DeepONetConfig) -> nn.Sequential:
    """Q ∘ Fl ∘ R_{N_res} ∘ … ∘ R_1 ∘ D_M ∘ I_M ∘ … ∘ D_1 ∘ I_1, each D halving the grid."""
    doubled = [config.branch_width * 2**level for level in range(config.branch_levels)]
    blocks: list[nn.Module] = []
    size = config.size
    for a, b in pairwise([config.fields_and_scalars, *doubled]):
        invariant = convolution(a, a)
        if not blocks:
            # With the one channel of u, every other draw would make the first field negative all
            # over, where σ leaves a hundredth of it.
            nn.init.dirac_(invariant.weight)
        blocks += [invariant, UpsampledActivation(size), nn.AvgPool2d(2)]
        blocks += [convolution(a, b), UpsampledActivation(size), nn.AvgPool2d(4, padding=1)]
        size = tuple((n + 1) // 2 for n in size)
    blocks += [ResidualBlock(doubled[-1]) for _ in range(config.residual_blocks)]
    flat = doubled[-1] * math.prod(size)
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(flat, config.out_channels * config.bases))


def convolution(in_channels: int, out_channels: int) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size of its input at the start (He et al., 2015).

    PyTorch's own initial weights are √6 times smaller. After the 2M convolutions of a branch the
    part of β that depends on u would be 1e-4 of β for M = 4 and 1e-7 for M = 6, less than TF32 or
    float32 resolves, and training would stay at the mean of the outputs.
    """
    layer = nn.Conv2d(in_channels, out_channels, 3, padding=1)
    assert layer.bias is not None
    nn.init.kaiming_normal_(layer.weight, a=0.01)
    nn.init.zeros_(layer.bias)
    return layer


def trunk(config: DeepONetConfig) -> nn.Sequential:
    """L hidden layers at every position (x, y); the batch norm runs over the positions."""
    d = config.trunk_width
    layers: list[nn.Module] = [nn.Linear(2, d), nn.LeakyReLU()]
    for _ in range(config.trunk_layers - 1):
        layers += [nn.Linear(d, d), nn.BatchNorm1d(d), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(d, config.bases))


class UpsampledActivation(nn.Module):
    """σ(U_y V U_xᵀ): σ on the twice finer grid; the mean-pooling that follows takes it back.

    Bicubic upsampling as matrix products, whose gradient is again products: that of
    `F.interpolate` adds up atomically, point by point, which is slow on a GPU and in another order
    every time.
    """

    up_y: Tensor
    up_x: Tensor

    def __init__(self, size: tuple[int, ...]) -> None:
        super().__init__()
        for name, n in zip(("up_y", "up_x"), size, strict=True):
            self.register_buffer(name, bicubic_doubling(n), persistent=False)

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch c 2*y 2*x"]:
        return F.leaky_relu(self.up_y @ (v @ self.up_x.T))


def bicubic_doubling(n: int) -> Float[Tensor, "n_fine n"]:
    """Samples on 2n points by cubic convolution (Keys, 1981) of n samples, along one axis.

        (U f)(x_i) = Σ_j w(x_i − j) f_j,   x_i = (i + 1/2)/2 − 1/2,   f_j = f_0, f_{n−1} outside

    with the kernel's free parameter a = −3/4, as in `F.interpolate`. The entries are multiples of
    1/256 of nine bits at most: a cast does not round them, nor does TF32.
    """
    a = -0.75
    x, j = (torch.arange(2 * n) + 0.5) / 2 - 0.5, torch.arange(-2, n + 2)
    s = (x[:, None] - j).abs()
    near = (a + 2) * s**3 - (a + 3) * s**2 + 1
    far = a * (s**3 - 5 * s**2 + 8 * s - 4)
    weights = torch.where(s < 1, near, torch.where(s < 2, far, 0.0))
    return torch.zeros(2 * n, n).index_add(1, j.clamp(0, n - 1), weights)


class ResidualBlock(nn.Module):
    """v ↦ 0.9 v + 0.1 W σ(v), with a 3×3 convolution W."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = convolution(channels, channels)

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch c y x"]:
        return 0.9 * v + 0.1 * self.convolution(F.leaky_relu(v))
