"""The authors' time-dependent CNO (Herde et al., 2024, SM C.3): a CNO that knows the lead time.

`torchcno.from_official_time_dependent` loads their weights into it. For a network of one's own,
`CNOConfig(conditioning=("time",))` is the shorter way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.models.attention import AttentionConfig, PatchAttention
from torchcno.models.inputs import PlaneConfig, axes, check_fields, check_size
from torchcno.models.operator_unet import OperatorUNet, Parts, Pyramid, Size
from torchcno.operators import Activation, Branch, Convolution, WindowedSinc
from torchcno.operators.conditioning import Modulation, as_rows, with_constant_channels
from torchcno.selection import option

HIDDEN = 128  # neurons between the time and a scale; channels between fine-tuned and old fields
SLOPE = 0.01  # of the leaky ReLU, where σ acts without the filters of section 2
Plane = Float[Tensor, "batch channel y x"]
OutPlane = Float[Tensor, "batch channel out_y out_x"]


class BicubicActivation(nn.Module):
    """σ on the twice finer grid, by bicubic interpolation there and back, then to `size_out`."""

    def __init__(self, channels: int, size_in: Size, size_out: Size) -> None:
        super().__init__()
        self.size_in, self.size_out = size_in, size_out
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Plane) -> OutPlane:
        resize = partial(F.interpolate, mode="bicubic", antialias=True)
        fine = F.leaky_relu(resize(x, tuple(2 * n for n in self.size_in)), SLOPE)
        return resize(resize(fine, self.size_in), self.size_out) + self.bias.view(-1, 1, 1)


class PooledActivation(nn.Module):
    """σ on the samples, then the mean of neighbours or the nearest sample; no bias."""

    def __init__(self, channels: int, size_in: Size, size_out: Size) -> None:
        super().__init__()
        self.size_in, self.size_out = size_in, size_out

    def forward(self, x: Plane) -> OutPlane:
        x = F.leaky_relu(x, SLOPE)
        coarser = {n / m for n, m in zip(self.size_in, self.size_out, strict=True)}
        if coarser == {2}:
            return F.avg_pool2d(x, 2)
        if coarser == {4}:
            return F.avg_pool2d(
                x, 4, padding=1
            )  # windows over zeros outside, as the authors have it
        return F.interpolate(x, self.size_out, mode="nearest")


def _filtered(channels: int, size_in: Size, size_out: Size) -> Activation:
    return Activation(channels, size_in, size_out, "leaky_relu", WindowedSinc(), "zero", 2)


# of channels, size in and size out
ACTIVATIONS: dict[str, Callable[[int, Size, Size], nn.Module]] = {
    "filtered": _filtered,
    "bicubic": BicubicActivation,
    "pooled": PooledActivation,
}
# of channels and size
NORMS: dict[str, Callable[[int, Size], nn.Module]] = {
    "instance": lambda channels, size: nn.GroupNorm(channels, channels),  # a group per channel
    "batch": lambda channels, size: nn.BatchNorm2d(channels),
    "layer": lambda channels, size: nn.LayerNorm((channels, *size)),
    "none": lambda channels, size: nn.Identity(),
}


@dataclass(frozen=True, kw_only=True)
class TimeCNOConfig(Pyramid, PlaneConfig):
    """Everything that a `TimeCNO` is made from; depth and widths are by default the published.

    Its name says what it is for, `conditioning=("time",)`; without that it takes fields alone.
    """

    size: tuple[int, ...] = option((128, 128), "points per axis of the grid: y, x")
    out_size: tuple[int, ...] | None = option(
        None, "points per axis of the output; null: those of the input"
    )
    levels: int = option(4, "halvings of the grid on the way down (M)", least=1)
    width: int = option(
        54, "channels after the first halving, doubled by each further one (d_e)", least=2
    )
    neck_blocks: int = option(6, "residual blocks on the coarsest grid (N_res,b)", least=0)
    skip_blocks: int = option(6, "residual blocks per level on the way down (N_res,i)", least=0)
    lift_width: int = option(64, "channels inside the lifting and the projection", least=1)
    kernel_size: int = option(3, "points per axis of a convolution's kernel, odd (k)", least=1)
    norm: str = option("instance", "normalisation after a convolution", choices=NORMS)
    activation: str = option("filtered", "how the activation changes the grid", choices=ACTIVATIONS)
    invariant_blocks: bool = option(True, "a block at each level before the grid is refined")
    attention: AttentionConfig | None = option(None, "a transformer before the neck; null: none")
    time_channel: bool = option(
        False, "the network adds the scalars to its input, as constant channels"
    )
    pretrained_channels: tuple[int, ...] | None = option(
        None, "channels in and out of the network that is fine-tuned; null: it is none"
    )

    def __post_init__(self) -> None:
        for field in ("out_size", "pretrained_channels"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, axes(getattr(self, field)))
        super().__post_init__()
        self.check_divisible()

    @property
    def given_channels(self) -> int:
        """Channels of the input, with the scalars where the network adds them."""
        return self.in_channels + (len(self.conditioning) if self.time_channel else 0)

    @property
    def lifted_channels(self) -> int:
        """What the lifting reads: by fine-tuning it need not be what is given."""
        return self.pretrained_channels[0] if self.pretrained_channels else self.given_channels


FOUNDATION = TimeCNOConfig(  # CNO-FM: density, velocity, pressure; and the time
    in_channels=4,
    out_channels=4,
    conditioning=("time",),
    time_channel=True,
    width=82,
    neck_blocks=8,
    skip_blocks=8,
)


class AffineInTime(nn.Module):
    """A(t) and B(t) of v ↦ A(t) v + B(t), both affine in t: two layers with nothing between them.

    A(t) = W_A (w_A t + a) + 1,   B(t) = W_B (w_B t + b)   with W = 0, w = 0 at the start
    """

    def __init__(self, scalars: int, channels: int) -> None:
        super().__init__()
        self.scale, self.shift = (
            nn.Sequential(nn.Linear(scalars, HIDDEN), nn.Linear(HIDDEN, channels)) for _ in "AB"
        )
        for name, parameter in self.named_parameters():
            if name.endswith("weight"):
                nn.init.zeros_(parameter)
        for name, constant in (("scale", 1.0), ("shift", 0.0)):
            nn.init.constant_(self.get_parameter(f"{name}.1.bias"), constant)

    def forward(self, rows: Float[Tensor, "batch scalar"]) -> Modulation:
        rows = rows.to(next(self.parameters()).dtype)
        with torch.autocast(rows.device.type, enabled=False):
            return Modulation(self.scale(rows) - 1, self.shift(rows))


class TimeCNO(OperatorUNet):
    """An operator U-Net whose norms depend on scalars such as the lead time t.

        x_0 = lift(u)                                    level 0 is the finest, M the coarsest
        skip_l = R … R(x_l),   x_{l+1} = encoder_l(skip_l)
        y_M = expansion_M(neck(x_M))
        y_{l−1} = (decoder_l ∘ invariant_l)(y_l) ⊕ expansion_{l−1}(skip_{l−1})
        v = project(y_0)

    Other than in a `CNO`, the residual blocks lie on the way down. One block more is kept and never
    called: the authors' weights have it. It does not learn.
    """

    Config: ClassVar[type[TimeCNOConfig]] = TimeCNOConfig

    def __init__(self, config: TimeCNOConfig) -> None:
        parts, finest = _parts(config), config.joined_channels(0)
        super().__init__(config, parts, (config.lifted_channels, config.out_channels))
        self.config = config
        self.spare = parts.block((finest, finest), *[config.out_sizes(0)] * 2)
        self.attention = (
            nn.Identity()
            if config.attention is None
            else PatchAttention(
                config.attention, config.channels(config.levels), config.sizes(config.levels)
            )
        )
        if config.pretrained_channels is not None:
            old_in, old_out = config.pretrained_channels
            ends = (config.given_channels, old_in)
            self.before = _pointwise(*ends, two=ends[0] != ends[1])
            self.after = (
                _pointwise(old_out, old_out, two=True)
                if config.out_channels == old_out
                else nn.Sequential()
            )
        # A path as the name of an entry: dots would make it several.
        self.films = nn.ModuleDict(
            {path.replace(".", "/"): self._film(path) for path in self._norm_paths()}
            if config.conditioning
            else {}
        )
        for module in self._unused():
            module.requires_grad_(False)

    def _norm_paths(self) -> Iterator[str]:
        """The norms by name, in the order in which `forward` comes to them; then the unused."""
        config = self.config
        called = range(config.levels) if config.invariant_blocks else ()
        pairs = [f"{j}.norm{n}" for j in range(config.skip_blocks) for n in (1, 2)]
        for k in range(config.levels):
            yield from (f"skip.{k}.{pair}" for pair in pairs)
            yield from (f"expansion.{k}.norm", f"encoder.{k}.norm")
        yield from (f"neck.{j}.norm{n}" for j in range(config.neck_blocks) for n in (1, 2))
        yield f"expansion.{config.levels}.norm"
        for k in reversed(range(config.levels)):
            yield from [f"invariant.{k}.norm"] * (k in called)
            yield f"decoder.{k}.norm"
        yield from (f"invariant.{k}.norm" for k in range(config.levels) if k not in called)
        yield "spare.norm"

    def _film(self, path: str) -> AffineInTime:
        block = self.get_submodule(path.rpartition(".")[0])
        kernel = getattr(block, "convolution1" if path[-1] in "12" else "convolution")
        return AffineInTime(len(self.config.conditioning), len(kernel.bias))

    def _unused(self) -> list[nn.Module]:
        blocks: dict[str, nn.Module] = {"spare": self.spare}
        if not self.config.invariant_blocks:
            blocks |= {f"invariant/{k}": block for k, block in enumerate(self.invariant)}
        films = [
            film
            for path, film in self.films.items()
            if any(path.startswith(f"{name}/") for name in blocks)
        ]
        return [*blocks.values(), *films]

    def forward(
        self, u: Float[Tensor, "batch in_channels y x"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels out_y out_x"]:
        config = self.config
        check_fields(u, config)
        check_size(u, config.size)
        rows = as_rows(conditions, config.conditioning, u)
        modulations = None if rows is None else iter([film(rows) for film in self.films.values()])
        u = with_constant_channels(u, rows if config.time_channel else None)
        across = []
        x = self.lift(self.before(u) if config.pretrained_channels else u)
        for encoder, skip, expansion in zip(self.encoder, self.skip, self.expansion, strict=False):
            x = skip(x, modulations)
            across.append(Branch(x, partial(expansion, modulations=modulations)))
            x = encoder(x, modulations)
        y = self.expansion[-1](self.neck(self.attention(x), modulations), modulations)
        for level in reversed(range(config.levels)):
            y = self.invariant[level](y, modulations) if config.invariant_blocks else y
            y = self.decoder[level](y, modulations)
            y = torch.cat([y, across[level].result()], dim=1)
        v = self.project(y)
        return self.after(v) if config.pretrained_channels else v


def _parts(config: TimeCNOConfig) -> Parts:
    return Parts(
        convolution=lambda a, b: Convolution(a, b, config.kernel_size, 2),
        norm=NORMS[config.norm],
        activation=ACTIVATIONS[config.activation],
        lift_width=config.lift_width,
    )


def _pointwise(in_channels: int, out_channels: int, two: bool) -> nn.Sequential:
    """A matrix at every point; as a product of two over `HIDDEN` channels where so asked."""
    widths = [in_channels, *([HIDDEN] if two else []), out_channels]
    return nn.Sequential(*(nn.Conv2d(a, b, 1) for a, b in pairwise(widths)))
