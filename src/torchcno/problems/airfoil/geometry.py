"""Airfoil shapes: two surfaces over the chord, and where they cover a Cartesian grid."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from torchcno.grids import Grid
from torchcno.selection import Options, option, select

Surface = Float[Tensor, "batch point"]

# Points along the chord at which surfaces are compared, dense at the nose where they are steep.
_CHORD_POINTS = 801


class Shape(ABC):
    """A batch of airfoils y_lower(x) ≤ y ≤ y_upper(x), 0 ≤ x ≤ 1, closed at both ends."""

    @abstractmethod
    def surfaces(self, x: Float[Tensor, " point"]) -> tuple[Surface, Surface]:
        """The ordinates (lower, upper) at the abscissae `x`, on the device of `x`."""


@dataclass(frozen=True)
class Naca4(Options, Shape):
    """NACA's four-digit airfoils with a closed trailing edge:

        y = y_c(x) ± 5t (0.2969 √x − 0.1260 x − 0.3516 x² + 0.2843 x³ − 0.1036 x⁴)

    with the two parabolas of camber m at position p as y_c. The thickness is laid off vertically,
    not across the camber line, so that both surfaces are functions of x.
    """

    thickness: float = option(0.12, "thickness (t)")
    camber: float = option(0.0, "camber (m)")
    camber_position: float = option(0.4, "where the camber is (p)", above=0, below=1)

    def surfaces(self, x: Float[Tensor, " point"]) -> tuple[Surface, Surface]:
        """See `Shape.surfaces`; a batch of one."""
        quartic = x * (-0.1260 + x * (-0.3516 + x * (0.2843 - 0.1036 * x)))
        half = 5 * self.thickness * (0.2969 * x.sqrt() + quartic)
        m, p = self.camber, self.camber_position
        front = m / p**2 * x * (2 * p - x)
        back = m / (1 - p) ** 2 * (1 - 2 * p + x * (2 * p - x))
        middle = torch.where(x < p, front, back)
        return (middle - half)[None], (middle + half)[None]


@dataclass(frozen=True)
class Tabulated(Shape):
    """An airfoil through given points: a cubic spline of each surface in s = √x.

    Round noses are y ~ √x, so that a spline in s is smooth there where one in x is not. The points
    run from the trailing edge over the upper surface to the nose and back along the lower one
    (Selig's order), and the chord from x = 0 to 1.
    """

    points: tuple[tuple[float, float], ...]
    _splines: tuple[tuple[Tensor, Tensor], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = np.asarray(self.points)
        nose = int(table[:, 0].argmin())
        sides = (table[nose:], table[: nose + 1][::-1])
        x, y = table.T
        counterclockwise = (x * np.roll(y, -1) - y * np.roll(x, -1)).sum() > 0
        ascending = all(len(side) > 3 and (np.diff(side[:, 0]) > 0).all() for side in sides)
        if not (counterclockwise and ascending):
            raise ValueError(
                "the points are not in Selig's order; give them from the trailing edge over the "
                "upper surface to the nose and back along the lower one, at least four a surface."
            )
        if x[nose] != 0 or np.abs(x[[0, -1]] - 1).max() > 1e-6:
            raise ValueError(
                f"the nose lies at x = {x[nose]:g} and the surfaces end at {x[0]:g} and {x[-1]:g}; "
                "move and scale the points so that the chord runs from 0 to 1."
            )
        from scipy.interpolate import CubicSpline  # takes a second, which only airfoils need

        splines = [CubicSpline(np.sqrt(side[:, 0]), side[:, 1]) for side in sides]
        tensors = tuple((torch.from_numpy(c.x), torch.from_numpy(c.c.copy())) for c in splines)
        object.__setattr__(self, "_splines", tensors)

    def surfaces(self, x: Float[Tensor, " point"]) -> tuple[Surface, Surface]:
        """See `Shape.surfaces`; a batch of one."""
        lower, upper = (_evaluate(*spline, x.sqrt()) for spline in self._splines)
        return lower[None], upper[None]


def _evaluate(knots: Tensor, coefficients: Tensor, s: Tensor) -> Tensor:
    """A cubic spline at `s`: `coefficients` (4, interval), the highest power first."""
    knots, coefficients = knots.to(s), coefficients.to(s)
    interval = torch.searchsorted(knots, s.contiguous(), right=True) - 1
    interval = interval.clamp(0, len(knots) - 2)
    d = s - knots[interval]
    c3, c2, c1, c0 = coefficients[:, interval]
    return c0 + d * (c1 + d * (c2 + d * c3))


def rae2822() -> Tabulated:
    """The RAE2822 airfoil (AGARD AR-138), 129 points, sharp trailing edge."""
    lines = files(__package__).joinpath("rae2822.dat").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return Tabulated(tuple((float(x), float(y)) for x, y in rows))


@dataclass(frozen=True)
class HicksHenne(Shape):
    """A base airfoil with bumps on each surface (section "Flow past airfoils" of the supplement):

        y(ξ) = y_base(ξ) + Σ_i a_i B_i(ξ),   B_i(ξ) = sin³(π ξ^{q_i}),
        q_i = ln 2 / (ln(n + 4) − ln i),   i = 1 … n

    The peak of B_i lies at ξ = i / (n + 4); for n = 10 this is the paper's ln 14.
    """

    base: Shape
    lower: Float[Tensor, "batch n"]  # a_i^L
    upper: Float[Tensor, "batch n"]  # a_i^U

    def surfaces(self, x: Float[Tensor, " point"]) -> tuple[Surface, Surface]:
        """See `Shape.surfaces`. B_1 ~ ξ^0.79 bends sharply at the nose: never interpolate it."""
        lower, upper = self.base.surfaces(x)
        bumps = hicks_henne_bumps(x, self.lower.shape[1])
        return lower + self.lower.to(x) @ bumps, upper + self.upper.to(x) @ bumps


def hicks_henne_bumps(x: Float[Tensor, " point"], n: int) -> Float[Tensor, "n point"]:
    """B_i(x) = sin³(π x^{q_i}) for i = 1 … n."""
    i = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
    q = np.log(2) / torch.log((n + 4) / i)
    return torch.sin(torch.pi * x ** q[:, None]) ** 3


def _amplitude_range(n: int) -> tuple[Tensor, Tensor]:
    """From 2 to 11 below, from 10 to 1 above, for any n: at n = 10 the paper's i + 1, 11 − i."""
    ramp = torch.linspace(0, 9, n, dtype=torch.float64)
    return 2 + ramp, 10 - ramp


def _amplitude_literal(n: int) -> tuple[Tensor, Tensor]:
    """The paper's i + 1 and n + 1 − i for any n: at n = 15 some shapes are extreme."""
    i = torch.arange(1, n + 1, dtype=torch.float64)
    return i + 1, n + 1 - i


AMPLITUDES = {"range": _amplitude_range, "literal": _amplitude_literal}


def perturbed(
    base: Shape, psi: Float[Tensor, "batch coefficients"], amplitudes: str = "range"
) -> HicksHenne:
    """`base` with the bumps of ψ ∈ [0, 1]^{2n}, lower surface first:

    a_i = 2 (ψ_i − ½) A_i · 10⁻³,   A_i from the table `AMPLITUDES`
    """
    if psi.ndim != 2 or psi.shape[1] % 2 or psi.shape[1] < 4:
        raise ValueError(
            f"coefficients of shape {tuple(psi.shape)} do not describe shapes; give (batch, 2n), "
            "the n ≥ 2 bumps of the lower surface first."
        )
    n = psi.shape[1] // 2
    lower, upper = (a.to(psi) for a in select(AMPLITUDES, amplitudes, "amplitudes")(n))
    a = 2e-3 * (psi - 0.5)
    return HicksHenne(base, a[:, :n] * lower, a[:, n:] * upper)


def crossing(shape: Shape, device: torch.device | str = "cpu") -> Bool[Tensor, " batch"]:
    """Which shapes of a batch have surfaces that touch or cross between nose and trailing edge."""
    s = torch.linspace(0, 1, _CHORD_POINTS, dtype=torch.float64, device=device)[1:-1]
    lower, upper = shape.surfaces(s**2)
    return (upper <= lower).any(dim=1)


def characteristic(
    shape: Shape, grid: Grid, device: torch.device | str = "cpu"
) -> Bool[Tensor, "batch y x"]:
    """χ at the sample points of `grid`: whether y_lower(x) ≤ y ≤ y_upper(x), exactly."""
    y, x = (grid.axis(i).to(device) for i in (0, 1))
    lower, upper = shape.surfaces(x.clamp(0, 1))
    over_chord = (x >= 0) & (x <= 1)
    y = y[:, None]
    return over_chord & (lower[:, None] <= y) & (y <= upper[:, None])
