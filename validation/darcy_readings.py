"""Is the data of darcy harder than the paper's? Readings of its text, and what 64² points lose.

    python validation/darcy_readings.py [--out results]

Two questions that need no network. For each reading of the supplement's text, the errors of the
mean of 256 training outputs and of kernel ridge regression on them, beside the published ones of
the FFNN; both with outputs scaled to [0, 1] and upside down, as with the minimum and the maximum of
the training set exchanged. And, since networks see the coefficient at 64² points of the finer grid
on which it was solved: how well a solver does that sees no more than they. Errors are medians of
the relative L1 error in percent, on normalised fields. Writes `validation-darcy.json`.
"""

import argparse
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from torchcno.data.samples import Samples
from torchcno.metrics import relative_l1
from torchcno.problems.darcy import Darcy
from torchcno.problems.random_fields import SquaredExponential

PUBLISHED = {  # Table 1: in and out of distribution
    "ffnn": (2.14, 2.23),
    "fno": (0.80, 1.11),
    "unet": (0.54, 0.64),
    "cno": (0.38, 0.50),
}
WIDTHS = (0.7, 1.0, 1.5, 3.0, 10.0)  # of the regression's kernel; the inputs' spread is 1
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)

COARSE = Darcy(refinement=1)  # solves with the coefficient that networks see
GRID = COARSE.grid(COARSE.resolution)

Draw = Callable[[int, Generator], Tensor]  # so many fields on GRID
Splits = dict[str, tuple[Tensor, Tensor]]  # coefficients and solutions


def squared_exponential(length: float) -> Draw:
    """Fields of the covariance exp(−d²/length²)."""
    field = SquaredExponential(COARSE.variance, length)
    return lambda n, generator: field.sample(GRID, n, generator)


def exponential(length: float) -> Draw:
    """Fields of the covariance exp(−d/length), which are not smooth."""
    y, x = torch.meshgrid(GRID.axis(0), GRID.axis(1), indexing="ij")
    points = torch.stack([y.flatten(), x.flatten()], dim=1)
    root = torch.linalg.cholesky(torch.exp(-torch.cdist(points, points) / length))

    def draw(n: int, generator: Generator) -> Tensor:
        xi = torch.randn(n, len(points), generator=generator, dtype=torch.float64)
        return (xi @ root.T).reshape(n, 1, *GRID.shape)

    return draw


def neumann_matern(tau: float) -> Draw:
    """Fields of the covariance (−Δ + τ²)^−2 with zero normal derivative: the FNO's paper."""
    k = torch.arange(GRID.shape[0], dtype=torch.float64)
    cosines = torch.cos(math.pi * GRID.axis(0)[:, None] * k) * torch.where(k > 0, math.sqrt(2), 1)
    amplitudes = 1 / (math.pi**2 * (k[:, None] ** 2 + k**2) + tau**2)
    amplitudes[0, 0] = 0

    def draw(n: int, generator: Generator) -> Tensor:
        xi = torch.randn(n, 1, *GRID.shape, generator=generator, dtype=torch.float64)
        return cosines @ (amplitudes * xi) @ cosines.T

    return draw


def two_valued(g: Tensor) -> Tensor:
    """12 where g is positive, else 3."""
    return COARSE.low + (COARSE.high - COARSE.low) * (g > 0).to(g)


@dataclass(frozen=True)
class Reading:
    """What the text may mean by its Gaussian process and the map ψ of it."""

    field: Callable[[float], Draw]
    scales: tuple[float, float] = (0.1, 0.05)  # in and out of distribution
    coefficient: Callable[[Tensor], Tensor] = two_valued  # ψ


READINGS = {
    "exp(-d²/l²), torchcno's": Reading(squared_exponential),
    "exp(-d²/2l²)": Reading(lambda length: squared_exponential(math.sqrt(2) * length)),
    "exp(-d²/l)": Reading(lambda length: squared_exponential(math.sqrt(length))),
    "exp(-d/l)": Reading(exponential),
    "(-Δ + τ²)^-2, τ = 3 and 6": Reading(neumann_matern, (3, 6)),
    "exp(-d²/l²), a = exp(g)": Reading(squared_exponential, coefficient=torch.exp),
}


def splits(reading: Reading) -> Splits:
    """The paper's numbers of samples, solved on the 64² points that networks see."""
    draws = dict(zip(("in", "ood"), map(reading.field, reading.scales), strict=True))
    made = {}
    for seed, (split, n) in enumerate(COARSE.samples.items()):
        draw = draws["ood" if split == "ood" else "in"]
        a = reading.coefficient(draw(n, Generator().manual_seed(seed)))
        made[split] = a, COARSE.solve(a)
    return made


def normalized(made: Splits) -> Splits:
    """Outputs scaled to [0, 1] by the extremes of the training set."""
    low, high = made["train"][1].aminmax()
    return {split: (a, (u - low) / (high - low)) for split, (a, u) in made.items()}


def upside_down(made: Splits) -> Splits:
    """Normalised outputs with minimum and maximum exchanged: 1 on the edge of the square."""
    return {split: (a, 1 - v) for split, (a, v) in made.items()}


def median_percent(prediction: Tensor, truth: Tensor) -> float:
    return 100 * relative_l1(prediction.expand_as(truth), truth).median().item()


def mean_field(made: Splits) -> dict[str, float]:
    """Errors of the mean training output."""
    mean = made["train"][1].mean(0)
    return {split: median_percent(mean, made[split][1]) for split in ("test", "ood")}


def regression(made: Splits) -> dict[str, float]:
    """Errors of Gaussian kernel ridge regression, its two constants chosen on the validation set.

    Wide kernels are linear regression.
    """
    a, v = made["train"]
    centre, mean = a.mean(0), v.mean(0)
    spread = (a - centre).flatten(1).norm(dim=1).mean()
    inputs = {split: ((a - centre) / spread).flatten(1) for split, (a, _) in made.items()}
    candidates = []
    for width in WIDTHS:
        kernels = {
            split: torch.exp(-(torch.cdist(inputs[split], inputs["train"]) ** 2) / (2 * width**2))
            for split in made
        }
        for penalty in PENALTIES:
            regularized = kernels["train"] + penalty * torch.eye(len(v))
            weights = torch.linalg.solve(regularized, (v - mean).flatten(1))
            candidates.append(
                {
                    split: median_percent((kernels[split] @ weights).reshape(u.shape) + mean, u)
                    for split, (_, u) in made.items()
                    if split != "train"
                }
            )
    best = min(candidates, key=lambda errors: errors["val"])
    return {split: best[split] for split in ("test", "ood")}


def smoothed(a: Tensor, factor: int, width: float = 0.5) -> Tensor:
    """A two-valued coefficient on a grid `factor` times finer, its interfaces rounded.

    The threshold of a Gaussian mean of the signs around, `width` coarse intervals wide: the best of
    0.5, 0.8, 1.2, 1.6 and 2.
    """
    n = a.shape[-1]
    coarse = torch.arange(n, dtype=a.dtype)
    fine = torch.linspace(0, n - 1, factor * (n - 1) + 1, dtype=a.dtype)
    weights = torch.exp(-((fine[:, None] - coarse) ** 2) / (2 * width**2))
    signs = torch.sign(a - (COARSE.low + COARSE.high) / 2)
    return two_valued(weights @ signs @ weights.T)


def lost_below_the_grid(split: str, n: int) -> dict[str, float]:
    """Errors of solvers that see 64² points of the coefficient, for data solved on finer ones.

    `combined` is the best linear combination of both, fitted on one half of the samples and judged
    on the other. No network needs to do worse, so this bounds from above what cannot be known.
    """
    problem = Darcy()
    a, u = (fields.double() for fields in Samples.of(problem, split).make(range(n)))
    rounded = smoothed(a, problem.refinement).split(1)
    restored = torch.cat([problem.solve(sample) for sample in rounded])
    seen = COARSE.solve(a), problem.restrict(restored, a.shape[-1])
    half = n // 2
    basis = torch.stack([v[:half].flatten() for v in seen], dim=1)
    weights = torch.linalg.lstsq(basis, u[:half].flatten()[:, None]).solution.flatten()
    combined = sum(w * v[half:] for w, v in zip(weights, seen, strict=True))
    return {
        "on 64²": median_percent(seen[0], u),
        "on the fine grid, interfaces rounded": median_percent(seen[1], u),
        "combined": median_percent(combined, u[half:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64, help="for what 64² points lose")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)

    readings: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for name, reading in READINGS.items():
        upright = normalized(splits(reading))
        readings[name] = {
            scaling: {"mean_field": mean_field(made), "regression": regression(made)}
            for scaling, made in {"[0, 1]": upright, "exchanged": upside_down(upright)}.items()
        }
        for scaling, errors in readings[name].items():
            pairs = [f"{k} {e['test']:.2f} / {e['ood']:.2f}" for k, e in errors.items()]
            print(f"{name}, {scaling}: {', '.join(pairs)}", flush=True)
    print("published, ffnn: {:.2f} / {:.2f}".format(*PUBLISHED["ffnn"]))
    lost = {split: lost_below_the_grid(split, options.samples) for split in ("test", "ood")}
    for solver in lost["test"]:
        print(f"solved {solver}: {lost['test'][solver]:.2f} / {lost['ood'][solver]:.2f}")

    report = {
        "published": {model: {"test": i, "ood": o} for model, (i, o) in PUBLISHED.items()},
        "readings": readings,
        "lost_below_the_grid": {"samples": options.samples, **lost},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "validation-darcy.json"
    temporary = target.with_suffix(".partial")
    temporary.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    os.replace(temporary, target)


if __name__ == "__main__":
    main()
