"""The operator U-Net: levels and blocks, which the CNO and the time-dependent CNO share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators import recompute
from torchcno.operators.block import Block, compose
from torchcno.operators.conditioning import Modulation, Modulations, draw
from torchcno.operators.convolution import Convolution

Size = tuple[int, ...]  # points per axis


class Pyramid:
    """Channels and grids of the levels of an operator U-Net; level 0 is the finest."""

    size: Size
    out_size: Size | None
    levels: int
    width: int
    skip_blocks: int
    neck_blocks: int

    def channels(self, level: int) -> int:
        """Channels at a level: d_e/2, d_e, 2 d_e, … 2^(M−1) d_e."""
        return self.width * 2**level // 2

    def joined_channels(self, level: int) -> int:
        """What a level of the decoder reads: from below and from across; the lowest the neck."""
        return self.channels(level) * (1 if level == self.levels else 2)

    def sizes(self, level: int) -> tuple[int, ...]:
        """Points per axis at a level of the encoder."""
        return tuple(n // 2**level for n in self.size)

    def out_sizes(self, level: int) -> tuple[int, ...]:
        """Points per axis at a level of the decoder."""
        return tuple(n // 2**level for n in self.out_size or self.size)

    def check_divisible(self) -> None:
        """Refuse sizes that cannot be halved as often as there are levels."""
        step = 2**self.levels
        for field in ("size", "out_size"):
            size: Size | None = getattr(self, field)
            if size is None or (min(size) > 0 and not any(n % step for n in size)):
                continue
            below = tuple(max(n // step, 1) * step for n in size)
            above = tuple(-(-n // step) * step if n > 0 else step for n in size)
            remedies = list(dict.fromkeys([str(below), str(above)]))
            halved = [m for m in range(1, self.levels + 1) if not any(n % 2**m for n in size)]
            if halved:
                remedies.append(f"levels={halved[-1]}")
            raise ValueError(
                f"{field} {size} is not divisible by 2**levels = {step}; use "
                f"{' or '.join(remedies)}."
            )


class Residual(nn.Module):
    """v + norm ∘ K ∘ Σ ∘ norm ∘ K (v): the (R) block."""

    BLOCKS: ClassVar = (("convolution1", "norm1", "activation"), ("convolution2", "norm2", None))

    def __init__(
        self, convolutions: Sequence[Convolution], norms: Sequence[nn.Module], activation: nn.Module
    ) -> None:
        super().__init__()
        self.convolution1, self.norm1, self.activation = convolutions[0], norms[0], activation
        self.convolution2, self.norm2 = convolutions[1], norms[1]

    def forward(
        self, v: Float[Tensor, "batch channel *space"], modulations: Modulations | None = None
    ) -> Tensor:
        return recompute(self, self._compute, v, draw(modulations), draw(modulations))

    def _compute(self, v: Tensor, first: Modulation | None, second: Modulation | None) -> Tensor:
        inner = compose(v, self.convolution1, self.norm1, self.activation, first)
        return compose(inner, self.convolution2, self.norm2, modulation=second, plus=v)


class Residuals(nn.Sequential):
    """R ∘ … ∘ R."""

    def forward(
        self, v: Float[Tensor, "batch channel *space"], modulations: Modulations | None = None
    ) -> Tensor:
        for block in self:
            v = block(v, modulations)
        return v


class Perceptron(nn.Module):
    """K ∘ Σ ∘ K without normalisation: the lifting P and the projection Q."""

    BLOCKS: ClassVar = (("convolution1", None, "activation"), ("convolution2", None, None))

    def __init__(self, first: Convolution, activation: nn.Module, last: Convolution) -> None:
        super().__init__()
        self.convolution1, self.activation, self.convolution2 = first, activation, last

    def forward(self, v: Float[Tensor, "batch channel *space"]) -> Tensor:
        return recompute(self, self._compute, v)

    def _compute(self, v: Tensor) -> Tensor:
        return compose(compose(v, self.convolution1, Σ=self.activation), self.convolution2)


@dataclass(frozen=True)
class Parts:
    """What the blocks of an operator U-Net are made of."""

    convolution: Callable[[int, int], Convolution]  # of channels in and out
    norm: Callable[[int, Size], nn.Module]  # of channels and points per axis
    activation: Callable[[int, Size, Size], nn.Module]  # of channels, points in and out
    lift_width: int

    def block(self, channels: tuple[int, int], size_in: Size, size_out: Size) -> Block:
        """Σ ∘ norm ∘ K."""
        return Block(
            self.convolution(*channels),
            self.norm(channels[1], size_in),
            self.activation(channels[1], size_in, size_out),
        )

    def residuals(self, channels: int, size: Size, count: int) -> Residuals:
        """`count` residual blocks."""
        return Residuals(
            *(
                Residual(
                    [self.convolution(channels, channels) for _ in range(2)],
                    [self.norm(channels, size) for _ in range(2)],
                    self.activation(channels, size, size),
                )
                for _ in range(count)
            )
        )

    def perceptron(self, channels: tuple[int, int], size: Size) -> Perceptron:
        """The lifting, or the projection."""
        return Perceptron(
            self.convolution(channels[0], self.lift_width),
            self.activation(self.lift_width, size, size),
            self.convolution(self.lift_width, channels[1]),
        )


class OperatorUNet(nn.Module):
    """The blocks of an operator U-Net, level by level; a subclass joins them."""

    def __init__(self, shape: Pyramid, parts: Parts, channels: tuple[int, int]) -> None:
        super().__init__()
        c, s, t, M = shape.channels, shape.sizes, shape.out_sizes, shape.levels
        wide = [shape.joined_channels(level) for level in range(M + 1)]
        self.lift = parts.perceptron((channels[0], c(0)), s(0))
        self.encoder = nn.ModuleList(
            parts.block((c(k), c(k + 1)), s(k), s(k + 1)) for k in range(M)
        )
        self.skip = nn.ModuleList(parts.residuals(c(k), s(k), shape.skip_blocks) for k in range(M))
        self.neck = parts.residuals(c(M), s(M), shape.neck_blocks)
        self.expansion = nn.ModuleList(parts.block((c(k), c(k)), s(k), t(k)) for k in range(M + 1))
        self.invariant = nn.ModuleList(
            parts.block((wide[k], wide[k]), t(k), t(k)) for k in range(1, M + 1)
        )
        self.decoder = nn.ModuleList(
            parts.block((wide[k], c(k - 1)), t(k), t(k - 1)) for k in range(1, M + 1)
        )
        self.project = parts.perceptron((wide[0], channels[1]), t(0))
