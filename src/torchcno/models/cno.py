"""The Convolutional Neural Operator: an operator U-Net on band-limited functions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.grids import Layout, Layouts, layout_of_axes, shortened, unit_positions
from torchcno.models.inputs import CONDITIONING, axes, check_fields
from torchcno.models.operator_unet import OperatorUNet, Parts, Pyramid, Size
from torchcno.operators import Branch, lay_channels_last
from torchcno.operators.activation import Activation, PointwiseActivation
from torchcno.operators.boundary import BOUNDARIES, Boundaries, boundary_of_axes
from torchcno.operators.conditioning import Conditioner, Modulations, as_rows, check_names
from torchcno.operators.convolution import Convolution
from torchcno.operators.filters import Ideal, Nearest, WindowedSinc, filter_from
from torchcno.operators.sigma import SIGMAS
from torchcno.selection import check_options, option
from torchcno.spectral import Extension, resample

NORMS: dict[str, Callable[[int, int], nn.Module]] = {  # of a dimension and a number of channels
    "batch": lambda d, channels: (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[d - 1](channels),
    "none": lambda d, channels: nn.Identity(),
}

_PAPER_FILTER = WindowedSinc(taps=6, half_width=0.8, cutoff=2.0001)
# What the authors' implementation does not let one choose: it has our defaults.
_CLASSIC = {"filter", "activation_upsampling", "boundary", "activation", "norm", "kernel_size",
            "lift_width", "fourier_features", "conditioning"}  # fmt: skip


@dataclass(frozen=True)
class CNOConfig(Pyramid):
    """Settings of a convolutional neural operator (CNO), with the paper's symbols in brackets."""

    in_channels: int = option(1, "channels of the input (d_X)", least=1)
    out_channels: int = option(1, "channels of the output (d_Y)", least=1)
    size: tuple[int, ...] = option((64, 64), "points per axis of the computational grid (s)")
    out_size: tuple[int, ...] | None = option(
        None, "points per axis of the output; null: those of the input"
    )
    levels: int = option(3, "halvings of the grid on the way down (M)", least=1)
    width: int = option(
        32, "channels after the first halving, doubled by each further one (d_e)", least=2
    )
    neck_blocks: int = option(4, "residual blocks on the coarsest grid (N_res,b)", least=0)
    skip_blocks: int = option(4, "residual blocks on each connection across (N_res,i)", least=0)
    activation_upsampling: float | int = option(
        2, "how much finer the grid is inside the activation (N_σ)", least=1
    )
    filter: WindowedSinc | Ideal | Nearest = option(
        _PAPER_FILTER, "low-pass filter: windowed-sinc, ideal (sharp), or nearest (no filter)"
    )
    boundary: Boundaries = option(
        "zero",
        "how fields continue beyond the edge; one for all axes, or one per axis",
        choices=BOUNDARIES,
    )
    layout: Layouts = option(
        "cell-centred",
        "where grid points lie, for other resolutions; one for all axes, or one per axis",
        choices=get_args(Layout),
    )
    activation: str = option("leaky_relu", "activation function (σ)", choices=SIGMAS)
    norm: str = option("batch", "normalisation after a convolution", choices=NORMS)
    kernel_size: int = option(3, "points per axis of a convolution's kernel, odd (k)", least=1)
    lift_width: int = option(64, "channels inside the lifting and the projection", least=1)
    fourier_features: int = option(
        0, "waves up to this wavenumber as further input channels, which tell places (K)", least=0
    )
    conditioning: tuple[str, ...] = option((), CONDITIONING)

    def __post_init__(self) -> None:
        # What a JSON or YAML file can hold becomes what the fields say.
        object.__setattr__(self, "size", axes(self.size))
        if self.out_size is not None:
            object.__setattr__(self, "out_size", axes(self.out_size))
        if isinstance(self.filter, Mapping | str):
            object.__setattr__(self, "filter", filter_from(self.filter))
        if not 1 <= len(self.size) <= 3:
            raise ValueError(f"size {self.size} has {len(self.size)} axes; give 1, 2 or 3.")
        if self.out_size is not None and len(self.out_size) != len(self.size):
            raise ValueError(f"out_size {self.out_size} and size {self.size} differ in dimension.")
        object.__setattr__(self, "conditioning", check_names(self.conditioning))
        dims = len(self.size)
        object.__setattr__(self, "boundary", shortened(boundary_of_axes(self.boundary, dims)))
        object.__setattr__(self, "layout", shortened(layout_of_axes(self.layout, dims)))
        check_options(self)
        self.check_divisible()

    @classmethod
    def classic(cls, **fields: Any) -> "CNOConfig":
        """The authors' implementation to the last digit, less a block that it never calls."""
        fixed = sorted(_CLASSIC & fields.keys())
        if fixed:
            raise ValueError(
                f"classic fixes {', '.join(fixed)} as the authors' implementation does; "
                f"leave that out, or use {cls.__name__}(...), which takes all fields."
            )
        return cls(**fields)


class CNO(OperatorUNet):
    """G = Q ∘ P_L ∘ Σ_L ∘ K_L ∘ … ∘ P_1 ∘ Σ_1 ∘ K_1 ∘ P as an operator U-Net (Eq. (CNO), figure 1).

        x_0 = lift(u)                                    level 0 is the finest, M the coarsest
        x_{l+1} = encoder_l(x_l),   skip_l = R … R(x_l)
        y_M = expansion_M(neck(x_M))
        y_{l−1} = (decoder_l ∘ invariant_l)(y_l) ⊕ expansion_{l−1}(skip_{l−1})
        v = project(y_0)

    with ⊕ the concatenation of channels. On another resolution than its computational grid the
    model goes through the change of representation, Eq. (changeofbasis), and back to the input's.
    Where the configuration has scalars, they scale and shift the channels after each norm. Where it
    has Fourier features, the lifting reads u ⊕ (cos 2πk·x, sin 2πk·x), 0 < |k|∞ ≤ K: the encoder of
    Theorem 3.1, for equations that know places by more than their input.
    """

    Config: ClassVar[type[CNOConfig]] = CNOConfig
    HALF_FIELDS: ClassVar = True  # fields in float16 cost it no accuracy (docs/performance.md)
    waves: Tensor  # the Fourier features on the computational grid: (feature, *size)

    def __init__(self, config: CNOConfig) -> None:
        waves = fourier_features(config.size, config.layout, config.fourier_features)
        read = config.in_channels + len(waves)
        super().__init__(config, _parts(config), (read, config.out_channels))
        self.config = config
        self.register_buffer("waves", waves.float(), persistent=False)
        if config.conditioning:
            self.conditioner = Conditioner(len(config.conditioning), self._widths())
        lay_channels_last(self)  # where it is faster (results/bench-cpu.json)

    def _widths(self) -> Iterator[int]:
        """Channels of the norms in the order in which `on_computational_grid` comes to them."""
        config, M = self.config, self.config.levels
        for level in range(M):
            yield from [config.channels(level)] * (2 * config.skip_blocks + 1)
            yield config.channels(level + 1)
        yield from [config.channels(M)] * (2 * config.neck_blocks + 1)
        for level in reversed(range(M)):
            yield config.joined_channels(level + 1)
            yield config.channels(level)

    def forward(
        self, u: Float[Tensor, "batch in_channel *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channel *out_space"]:
        """G u, at the resolution of u (times out_size / size)."""
        config = self.config
        shape = tuple(int(n) for n in u.shape[2:])
        check_fields(u, config)
        rows = as_rows(conditions, config.conditioning, u)
        modulations = None if rows is None else iter(self.conditioner(rows))
        if shape == config.size:
            return self.on_computational_grid(u, modulations)
        out_shape = _scaled(shape, config)
        # How the data go on beyond the edge; None: as their layout suggests.
        dims = len(shape)
        edges = zip(
            layout_of_axes(config.layout, dims),
            boundary_of_axes(config.boundary, dims),
            strict=True,
        )
        extension: tuple[Extension | None, ...] = tuple(
            "periodic" if edge == ("cell-centred", "periodic") else None for edge in edges
        )
        u = resample(u, config.size, config.layout, extension)
        v = self.on_computational_grid(u, modulations)
        return resample(v, out_shape, config.layout, extension)

    def on_computational_grid(
        self, u: Float[Tensor, "batch in_channel *size"], modulations: Modulations | None = None
    ) -> Float[Tensor, "batch out_channel *out_size"]:
        """The network itself, on fields of `config.size`."""
        if len(self.waves):
            u = torch.cat([u, self.waves.to(u).expand(len(u), *self.waves.shape)], dim=1)
        x = self.lift(u)
        across = []
        for encoder, skip, expansion in zip(self.encoder, self.skip, self.expansion, strict=False):
            layers = (partial(layer, modulations=modulations) for layer in (skip, expansion))
            across.append(Branch(x, *layers))
            x = encoder(x, modulations)
        y = self.expansion[-1](self.neck(x, modulations), modulations)
        for level in reversed(range(self.config.levels)):
            y = self.decoder[level](self.invariant[level](y, modulations), modulations)
            y = torch.cat([y, across[level].result()], dim=1)
        return self.project(y)


def fourier_features(size: Size, layout: Layouts, K: int) -> Float[Tensor, " feature *space"]:
    """cos 2πk·x and sin 2πk·x on a grid of the unit box, one wave k of ±k, 0 < |k|∞ ≤ K.

    Section 3 and SM, proof of Theorem 3.1: (2K + 1)^d − 1 functions in d dimensions.
    """
    if K == 0:
        return torch.empty(0, *size)
    places = layout_of_axes(layout, len(size))
    axes = [unit_positions(n, where) for n, where in zip(size, places, strict=True)]
    x = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    k = torch.cartesian_prod(*[torch.arange(-K, K + 1)] * len(size)).view(-1, len(size))
    phase = 2 * torch.pi * torch.tensordot(k[len(k) // 2 + 1 :].to(x), x, dims=1)
    return torch.cat([phase.cos(), phase.sin()])


def _parts(config: CNOConfig) -> Parts:
    dims = len(config.size)
    return Parts(
        convolution=lambda a, b: Convolution(a, b, config.kernel_size, dims, config.boundary),
        norm=lambda channels, size: NORMS[config.norm](dims, channels),
        activation=partial(_activation, config),
        lift_width=config.lift_width,
    )


def _activation(config: CNOConfig, channels: int, size_in: Size, size_out: Size) -> nn.Module:
    if isinstance(config.filter, Nearest):
        return PointwiseActivation(channels, size_in, size_out, config.activation)
    return Activation(
        channels,
        size_in,
        size_out,
        config.activation,
        config.filter,
        config.boundary,
        config.activation_upsampling,
    )


def _scaled(shape: tuple[int, ...], config: CNOConfig) -> tuple[int, ...]:
    """The output's shape for an input of another `shape`: scaled as the computational grids are."""
    pairs = zip(shape, config.size, config.out_sizes(0), strict=True)
    scaled = [divmod(n * out, size) for n, size, out in pairs]
    if any(rest for _, rest in scaled):
        raise ValueError(
            f"input of shape {shape} scaled by {config.out_sizes(0)} / {config.size} is no whole "
            "number of points; resample it first with torchcno.spectral.resample."
        )
    return tuple(n for n, _ in scaled)
