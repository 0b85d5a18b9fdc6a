"""How fast operators between band-limited functions approximate an operator: the two lemmas.

    python validation/bandlimited.py [--device cpu] [--out results]

SM, "Approximation of Operators mapping between Sobolev spaces": with P_w the projection on the
modes |k|∞ ≤ w,

    ‖a − P_w a‖ ≤ C w^{−r} ‖a‖_{H^r}            (lemma acc-trig-pol, σ = 0)
    ‖G(a) − P_w G(P_w a)‖ → 0  as  w → ∞        uniformly for ‖a‖_{H^r} ≤ B

so that an operator between band-limited spaces is enough. Measured here against w, relative to ‖a‖
and ‖G(a)‖, means over samples:

    poisson        the benchmark's sources, K = 16 modes: exact from w = 16 on
    poisson, rough sources whose amplitudes fall like |k|^{−2}: in H^r for every r < 1, so that the
                   lemma allows w^{−1} for a; the solution is two orders smoother, w^{−3}
    navier-stokes  thin shear layers: analytic, so that every rate is reached once w is large. The
                   flow amplifies what P_w takes from its initial data: there the last error is
                   well above the one before it

Writes `validation-bandlimited.json` and `validation-bandlimited.png`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import NullLocator, ScalarFormatter
from torch import Tensor

from torchcno.disk import write_json
from torchcno.grids import Grid
from torchcno.metrics import relative_l2
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.problems.problem import Problem
from torchcno.spectral import resample

QUANTITIES = {
    "input": r"$\|a - P_w a\|$",
    "output": r"$\|G(a) - P_w G(a)\|$",
    "operator": r"$\|G(a) - P_w G(P_w a)\|$",
}


@dataclass(frozen=True)
class Case:
    """A problem on the points of `grid`, the bands w, and where a rate is read off."""

    problem: Problem
    grid: Grid
    bands: tuple[int, ...]
    samples: int
    fitted: tuple[int, int] | None = None  # from this w to that one
    expected: tuple[float, float] | None = None  # rates of the input and of the operator


def cases() -> dict[str, Case]:
    benchmark, rough, flow = Poisson(), Poisson(K=250, r=1.0), NavierStokes()
    octaves = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    return {
        "poisson": Case(benchmark, benchmark.grid(129), octaves, 32),
        "poisson, rough": Case(rough, rough.grid(257), (*octaves, 96), 32, (8, 48), (1.0, 3.0)),
        "navier-stokes": Case(flow, flow.solver_grid(128), octaves[:-1], 4, (8, 48)),
    }


def projection(grid: Grid) -> Callable[[Tensor, int], Tensor]:
    """P_w on fields of `grid`: w is the largest wavenumber that is kept."""

    def project(u: Tensor, w: int) -> Tensor:
        points = 2 * w + 1 if grid.layout == "periodic" else w + 2
        return resample(resample(u, (points, points), grid.layout), grid.shape, grid.layout)

    return project


def measure(case: Case, device: str) -> dict[str, list[float]]:
    """The three errors against w."""
    generator = torch.Generator().manual_seed(0)
    a = case.problem.sample_inputs(case.grid, case.samples, generator).to(device)
    project, solution = projection(case.grid), case.problem.solve(a)

    def error(approximation: Tensor, of: Tensor) -> float:
        return float(relative_l2(approximation, of).mean())

    found: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    for w in case.bands:
        cut = project(a, w)
        found["input"].append(error(cut, a))
        found["output"].append(error(project(solution, w), solution))
        found["operator"].append(error(project(case.problem.solve(cut), w), solution))
    return found


def rate(case: Case, errors: list[float]) -> float:
    """−d log(error) / d log(w), by least squares over the fitted bands."""
    assert case.fitted is not None
    low, high = case.fitted
    pairs = [(w, e) for w, e in zip(case.bands, errors, strict=True) if low <= w <= high]
    log_w, log_e = torch.tensor(pairs, dtype=torch.float64).log().unbind(1)
    log_w = log_w - log_w.mean()
    return float(-(log_w @ log_e) / (log_w @ log_w))


def draw(report: dict[str, dict], path: Path) -> None:
    figure, axes = plt.subplots(1, len(report), figsize=(13, 3.8), layout="constrained")
    for axis, (name, entry) in zip(axes, report.items(), strict=True):
        bands, errors = entry["bands"], entry["errors"]
        for quantity, label in QUANTITIES.items():
            if quantity in entry["rates"]:
                label += f", rate {entry['rates'][quantity]:.2f}"
            style = "o--" if quantity == "operator" else "-"
            axis.loglog(bands, errors[quantity], style, ms=4, label=label)
        for quantity, slope in (entry["expected_rates"] or {}).items():
            # Through the last point, a little below the measured line.
            guide = [0.5 * errors[quantity][-1] * (w / bands[-1]) ** -slope for w in bands]
            axis.loglog(bands, guide, "k:", lw=1, label=f"$w^{{-{slope:g}}}$")
        axis.set(title=name, xlabel="band $w$", xticks=(2, 4, 8, 16, 32, 64))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")
    axes[0].set_ylabel("relative $L^2$ error")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    report: dict[str, dict] = {}
    for name, case in cases().items():
        errors = measure(case, options.device)
        rates = {key: rate(case, values) for key, values in errors.items()} if case.fitted else {}
        report[name] = {
            "samples": case.samples,
            "points": case.grid.shape[0],
            "bands": case.bands,
            "errors": errors,
            "fitted_bands": case.fitted,
            "rates": rates,
            "expected_rates": case.expected
            and {"input": case.expected[0], "operator": case.expected[1]},
        }
        print(f"{name}: error of P_w G(P_w a)")
        for w, e in zip(case.bands, errors["operator"], strict=True):
            print(f"    w = {w:3d}   {e:.2e}")
        for key, value in rates.items():
            print(f"    {key}: rate {value:.2f} for w from {case.fitted[0]} to {case.fitted[1]}")
    write_json(report, options.out / "validation-bandlimited.json")
    draw(report, options.out / "validation-bandlimited.png")


if __name__ == "__main__":
    main()
