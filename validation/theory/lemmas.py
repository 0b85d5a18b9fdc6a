"""Lemmas A.1 and A.2: how fast band-limited functions approximate functions, and operators.

    python -m validation.theory.lemmas [--out results/theory]

With P_w the projection on the modes |k|∞ ≤ w of the torus, or the interpolation in 2w + 1 points,

    ‖f − P_w f‖_{H^σ} ≤ C w^{−(r−σ)} ‖f‖_{H^r}                        (lemma A.1)
    ‖G(a) − P_w G(P_w a)‖_{L²} ≤ C w^{−r} + ω(C w^{−(r−σ)})           (proof of lemma A.2)

where ω is the modulus of continuity of G from H^σ to L². Functions here are in H^r for every r < s
and no further, so that s − σ is the rate to expect:

    Bernoulli polynomials   B_p({x}) in one dimension, with f̂_k = −p!/(2πik)^p:  s = p − ½
    random fields           N(0, (−Δ + τ²)^{−α}) in two dimensions:               s = α − 1

Writes `lemmas.json`, and the picture of the page.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcno.disk import write_json
from torchcno.grids import Grid
from torchcno.operators.filters import LowPass, WindowedSinc
from torchcno.operators.resampling import resampling_matrix
from torchcno.problems.random_fields import periodic_matern
from torchcno.runs.pictures.drawing import panels, png, styled, tidy
from torchcno.spectral import resample

LINE, PLANE = 4096, 385  # points per axis of the grids on which errors are taken
LINE_BANDS, PLANE_BANDS = (8, 16, 32, 64, 128), (4, 6, 8, 12, 16, 24, 32)
TOLERANCE = 0.1  # of a rate: bands and samples are finite
SAMPLES = 8


def bernoulli(p: int, x: Tensor) -> Tensor:
    """B_p on [0, 1): B_0 = 1, B_p′ = p B_{p−1}, ∫ B_p = 0."""
    polynomial = np.polynomial.Polynomial([1.0])
    for degree in range(1, p + 1):
        polynomial = (degree * polynomial).integ()
        polynomial -= polynomial.integ()(1.0)
    return torch.from_numpy(polynomial(x.numpy()))


def wavenumbers(n: int) -> Tensor:
    """0, 1, …, −2, −1: those of an FFT of n points."""
    return torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)


def sobolev_norm(f: Tensor, order: float) -> Tensor:
    """(Σ_k (1 + |2πk|²)^σ |f̂_k|²)^{1/2} of fields (sample, channel, *space) on the unit torus."""
    axes = tuple(range(2, f.ndim))
    k = torch.meshgrid(*(wavenumbers(f.shape[axis]) for axis in axes), indexing="ij")
    weight = (1 + 4 * math.pi**2 * sum(along**2 for along in k)) ** order
    f_hat = torch.fft.fftn(f, dim=axes, norm="forward")
    return (weight * f_hat.abs().square()).sum(axes).sqrt().flatten()


def project(f: Tensor, w: int) -> Tensor:
    """P_w f: the modes |k|∞ ≤ w."""
    few = (2 * w + 1,) * (f.ndim - 2)
    return resample(resample(f, few, "periodic"), tuple(f.shape[2:]), "periodic")


def filter_down_and_up(f: Tensor, w: int, filter: LowPass) -> Tensor:
    """U D f by a filter of the networks, on a line."""
    n = f.shape[-1]
    down = resampling_matrix(n, 2 * w, filter, "periodic")
    return f @ down.T @ resampling_matrix(2 * w, n, filter, "periodic").T


def rate(bands: Sequence[int], errors: Sequence[float]) -> float:
    """−d log(error) / d log(w + ½), by least squares: half of the 2w + 1 points of P_w."""
    return float(-np.polyfit(np.log(np.add(bands, 0.5)), np.log(errors), 1)[0])


def entry(bands: Sequence[int], errors: Sequence[float], expected: float | None, **what) -> dict:
    found = {"bands": list(bands), "errors": list(errors), "rate": rate(bands, errors)}
    return {**what, "expected": expected, **found}


def lines(
    n: int = LINE, bands: Sequence[int] = LINE_BANDS, degrees: Sequence[int] = (2, 3, 4)
) -> list[dict]:
    """Lemma A.1 in one dimension: projection, interpolation, and the networks' filter."""
    found = []
    for p in degrees:
        f = bernoulli(p, torch.arange(n, dtype=torch.float64) / n)[None, None]

        def interpolate(w: int, p: int = p) -> Tensor:
            points = 2 * w + 1
            few = bernoulli(p, torch.arange(points, dtype=torch.float64) / points)
            return resample(few[None, None], (n,), "periodic")

        ways: dict[str, Callable[[int], Tensor]] = {
            "projection": lambda w, f=f: project(f, w),
            "interpolation": interpolate,
        }
        for way, approximate in ways.items():
            for order in range(p - 1):
                norm = sobolev_norm(f, order)
                errors = [float(sobolev_norm(f - approximate(w), order) / norm) for w in bands]
                what = {"function": f"B_{p}", "dimension": 1, "s": p - 0.5, "order": order}
                found.append(entry(bands, errors, p - 0.5 - order, way=way, **what))
    # The filter of the networks is no projection. It keeps constants, and its images of a mode k
    # are of the order of k/w: smooth functions converge at a low rate, which taps make small.
    f = bernoulli(4, torch.arange(n, dtype=torch.float64) / n + 0.5 / n)[None, None]
    for taps in (6, 12):
        filter = WindowedSinc(taps=taps)
        norm = sobolev_norm(f, 0)
        errors = [
            float(sobolev_norm(f - filter_down_and_up(f, w, filter), 0) / norm) for w in bands
        ]
        what = {"function": "B_4", "dimension": 1, "s": 3.5, "order": 0}
        found.append(entry(bands, errors, None, way=f"windowed sinc, {taps} taps", **what))
    return found


def random_fields(s: float, n: int, samples: int) -> Tensor:
    """Fields that are in H^r for r < s, and in no other."""
    grid = Grid((n, n), "periodic", ((0.0, 1.0), (0.0, 1.0)))
    law = periodic_matern(1.0, 3.0, s + 1, (n - 1) // 2)
    return law.sample(grid, samples, torch.Generator().manual_seed(0))


def planes(
    n: int = PLANE, bands: Sequence[int] = PLANE_BANDS, samples: int = SAMPLES
) -> list[dict]:
    """Lemma A.1 in two dimensions; the largest error over samples."""
    found = []
    for s, order in ((1.5, 0), (2.5, 0), (2.5, 1)):
        f = random_fields(s, n, samples)
        norm = sobolev_norm(f, order)
        errors = [float((sobolev_norm(f - project(f, w), order) / norm).max()) for w in bands]
        what = {"function": "random field", "dimension": 2, "s": s, "order": order}
        found.append(entry(bands, errors, s - order, way="projection", **what))
    return found


def multiply(f: Tensor, symbol: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The operator with this symbol, of the angular wavenumbers along y and x."""
    k = 2 * math.pi * wavenumbers(f.shape[-1])
    return torch.fft.ifft2(torch.fft.fft2(f) * symbol(k[:, None], k)).real


def solve_semilinear(a: Tensor, tolerance: float = 1e-13) -> Tensor:
    """u of −Δu + u + u³ = a on the torus, by iterating on (−Δ + 1 + c) u = a + c u − u³.

    c lies above the slope of u³, so that the map is a contraction.
    """
    u = torch.zeros_like(a)
    shift = 3 * float(a.abs().max()) ** 2
    for _ in range(500):
        new = multiply(a + shift * u - u**3, lambda ky, kx: 1 / (ky**2 + kx**2 + 1 + shift))
        if (new - u).abs().max() <= tolerance * new.abs().max():
            return new
        u = new
    raise RuntimeError("the iteration did not converge; use smaller data.")


# Operators with the orders that they gain: ‖G(a) − G(a′)‖_{L²} ≲ ‖a − a′‖_{H^{−gain}}.
OPERATORS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "∂a/∂x": (lambda a: multiply(a, lambda ky, kx: 1j * kx + 0 * ky), -1),
    "sin(a) at each point": (lambda a: a.sin(), 0),
    "u of −Δu + u + u³ = a": (solve_semilinear, 2),
}


def operators(
    n: int = PLANE, bands: Sequence[int] = PLANE_BANDS, samples: int = SAMPLES
) -> list[dict]:
    """Lemma A.2: the largest error of P_w G P_w over samples."""
    s = 2.5
    a = random_fields(s, n, samples)
    a = a / a.abs().amax((1, 2, 3), keepdim=True)
    found = []
    for name, (solve, gain) in OPERATORS.items():
        exact = solve(a)
        norm = sobolev_norm(exact, 0)
        errors = [
            float((sobolev_norm(exact - project(solve(project(a, w)), w), 0) / norm).max())
            for w in bands
        ]
        found.append(entry(bands, errors, s + gain, operator=name, s=s, gain=gain))
    return found


@styled
def draw(report: dict[str, list[dict]]):
    """Errors against the band, with the slopes of the theory as dotted lines."""
    figure, (left, right) = panels(2)
    functions = [
        (f"$B_{e['function'][2:]}$, {e['way']}", e)
        for e in report["functions"]
        if e["way"] == "projection" and e["dimension"] == 1 and e["order"] == 0
    ]
    filters = [(f"$B_4$, {e['way']}", e) for e in report["functions"] if e["expected"] is None]
    of_operators = [(e["operator"], e) for e in report["operators"]]
    for axes, curves in ((left, [*functions, *filters]), (right, of_operators)):
        for label, e in curves:
            (line,) = axes.loglog(e["bands"], e["errors"], "o-", ms=3, label=label)
            if e["expected"] is not None:
                first = e["bands"][0] + 0.5
                slope = [e["errors"][0] * ((w + 0.5) / first) ** -e["expected"] for w in e["bands"]]
                axes.loglog(e["bands"], slope, ":", color=line.get_color())
        tidy(axes)
        axes.set(xlabel="band $w$")
    left.set(ylabel="relative error", title="functions (lemma A.1)")
    right.set(title="operators (lemma A.2)")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    parser.add_argument("--picture", type=Path, default=Path("docs/pictures/lemmas.png"))
    options = parser.parse_args()
    report = {"tolerance": TOLERANCE, "functions": [*lines(), *planes()], "operators": operators()}
    for e in report["functions"] + report["operators"]:
        name = e.get("operator") or f"{e['function']}, s = {e['s']}, H^{e['order']}, {e['way']}"
        print(f"{name}: rate {e['rate']:.2f}, expected {e['expected']}")
    write_json(report, options.out / "lemmas.json")
    options.picture.write_bytes(png(draw(report)))


if __name__ == "__main__":
    main()
