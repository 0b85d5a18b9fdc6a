"""What the training inputs were like: beyond that, a prediction is a guess."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# How far beyond the training's a value may lie, of their range, and a mean wavenumber, as a factor:
# new samples of the same kind go a little beyond the old ones.
BEYOND, ROUGHER = 0.1, 1.25
FEW = 2.0  # over the number of samples: what is added to both
FINER = 2.0  # how much coarser or finer a grid may be


class OutOfRange(UserWarning):
    """Inputs are unlike those of the training."""


@dataclass(frozen=True)
class TrainingRange:
    """Extremes of the training inputs per channel: of values, and of samples' mean wavenumbers."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    smoothest: tuple[float, ...]
    roughest: tuple[float, ...]
    samples: int = 1024  # of which these are the extremes: few of them know their range less well

    @classmethod
    def of(cls, inputs: Iterable[Tensor], shape: tuple[int, ...]) -> "TrainingRange":
        """The range of training `inputs`, given in batches, on a grid of `shape`."""
        found, samples = [], 0
        for u in inputs:
            k, values = mean_wavenumbers(u, shape), u.transpose(0, 1).flatten(1)
            samples += len(u)
            both = *values.aminmax(dim=1), k.amin(0), k.amax(0)
            found.append([extreme.tolist() for extreme in both])
        low, high, smoothest, roughest = (
            tuple(map(choose, zip(*some, strict=True)))
            for choose, some in zip((min, max, min, max), zip(*found, strict=True), strict=True)
        )
        return cls(low, high, smoothest, roughest, samples)

    def departures(self, u: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
        """Which samples of `u` lie outside the range of the training on `shape`, by why."""
        low, high, smoothest, roughest = (
            torch.tensor(x, dtype=torch.float64, device=u.device)
            for x in (self.low, self.high, self.smoothest, self.roughest)
        )
        flat = u.double().flatten(2)
        more = FEW / self.samples
        slack, rougher = (BEYOND + more) * (high - low).clamp(min=1e-12), ROUGHER + more
        k = mean_wavenumbers(u, shape)
        found = {
            "values": (flat.amin(2) < low - slack) | (flat.amax(2) > high + slack),
            "spectrum": (k > rougher * roughest + 0.5) | (k < smoothest / rougher - 0.5),
        }
        return {why: outside.any(1) for why, outside in found.items()}

    def describe_departures(self, u: Tensor, shape: tuple[int, ...]) -> str:
        """What of `u` lies outside the training range, in a line; empty: nothing."""
        said = []
        found = self.departures(u, shape)
        for why, outside in found.items():
            if not outside.any():
                continue
            first = int(outside.nonzero()[0])
            some = f"{int(outside.sum())} of {len(u)} samples, first {first},"
            one, k = u[first].double().flatten(1), mean_wavenumbers(u[first : first + 1], shape)[0]
            if why == "values":
                given = _spans(one.amin(1).tolist(), one.amax(1).tolist())
                said.append(f"{some} have values in {given}, the training's lie in "
                            f"{_spans(self.low, self.high)}")  # fmt: skip
            else:
                given = ", ".join(f"{x:.3g}" for x in k.tolist())
                said.append(f"{some} have mean wavenumber {given}, the training's are "
                            f"{_spans(self.smoothest, self.roughest)}")  # fmt: skip
        if not is_like(tuple(u.shape[2:]), shape):
            here, there = (" × ".join(map(str, n)) for n in (u.shape[2:], shape))
            said.append(f"the grid has {here} points, the training's {there}")
        return "; ".join(said)


def is_like(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a grid has half to twice the training's points, in the training's proportions."""
    ratios = [a / b for a, b in zip(given, shape, strict=True)]
    return min(ratios) >= 1 / FINER and max(ratios) <= FINER and max(ratios) <= 1.1 * min(ratios)


def mean_wavenumbers(
    u: Float[Tensor, "sample channel *space"], shape: tuple[int, ...]
) -> Float[Tensor, "sample channel"]:
    """Σ_k |k| |û_k|² / Σ_k |û_k|² over 0 < |k_i| < n_i/2, in waves per length of an axis.

    `shape` has the n_i of the training: what a finer grid holds beyond them does not count, so
    that one function has the same mean wavenumber on every grid. Zero where a field is constant.
    """
    space = tuple(u.shape[2:])
    axes = tuple(range(2, u.ndim))
    energy = torch.fft.rfftn(u.double(), dim=axes).abs().square()
    waves = [torch.fft.fftfreq(n, 1 / n) for n in space[:-1]]
    waves.append(torch.fft.rfftfreq(space[-1], 1 / space[-1]))
    square, counts = torch.zeros(()), torch.ones((), dtype=torch.bool)
    for axis, (k, n) in enumerate(zip(waves, shape, strict=True)):
        k = k.double().reshape([-1 if i == axis else 1 for i in range(len(space))])
        square, counts = square + k.square(), counts & (k.abs() < max(n / 2, 1))
    # All but the first and the last column of a half spectrum stand for two.
    twice = torch.full((energy.shape[-1],), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    if space[-1] % 2 == 0:
        twice[-1] = 1.0
    weight = (counts & (square > 0)).double() * twice
    weight, length = weight.to(u.device), square.sqrt().to(u.device)
    energy = energy * weight
    total = energy.flatten(2).sum(2)
    mean = (energy * length).flatten(2).sum(2) / total.clamp(min=math.ulp(0.0))
    # Rounding is no spectrum.
    largest = u.double().flatten(2).abs().amax(2) * math.prod(space)
    return torch.where(total > (1e-6 * largest).square(), mean, torch.zeros_like(mean))


def _spans(low: Sequence[float], high: Sequence[float]) -> str:
    return ", ".join(f"[{a:.3g}, {b:.3g}]" for a, b in zip(low, high, strict=True))
