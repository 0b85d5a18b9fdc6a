"""Theorem 3.1 (universality): the proof's construction, built with the operators of this package.

    python -m validation.theory.universality [--out results/theory]

The operator is a ↦ u of a semilinear equation on the circle, with f fixed or zero,

    −ν u″ + u + u³ = a + f(x),   ν = 1/4π²

The proof's CNO is one invariant block, K₂ ∘ Σ ∘ K₁ after an encoder:

    encoder        P_M a on N = S M points, and where f ≠ 0 the features cos 2πkx, sin 2πkx, k ≤ K
    approximator   a shallow network Ψ of J neurons from the M values a(z + x^M), and the features
                   at z, to u(z): the same for every z, since the equation commutes with shifts
    decoder        K₁ reads the M values with a stride of S; Σ is filtered on N_σ N points

Ψ has random inner weights, and outer weights by least squares. Its error has three parts, which M,
J and N make small: ω(C M^{−(r−σ)}) + ε(J) + C N^{−r}. Errors are relative in L², the mean over
functions that the construction has not seen. Writes `universality.json`.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from torchcno.disk import write_json
from torchcno.metrics import relative_l2
from torchcno.models.operator_unet import Perceptron
from torchcno.operators.activation import Activation
from torchcno.operators.convolution import Convolution
from torchcno.operators.filters import Ideal
from torchcno.spectral import resample

FINE = 15 * 17 * 2 + 1  # points on which the equation is solved; odd: no Nyquist mode
DECAY = 3.0  # of the Fourier coefficients of a: in H^r for r < 2.5
TRAINED, TESTED = 600, 100
NU = 1 / (4 * math.pi**2)


@dataclass(frozen=True)
class Size:
    """The size of a construction."""

    M: int = 17  # points of the encoder, odd
    S: int = 3  # the stride of K₁: N = S M
    J: int = 1024  # neurons
    K: int = 0  # Fourier features


def random_inputs(n: int, seed: int) -> Tensor:
    """a = 2 ξ_0 + 4 Σ_k k^{−3} (ξ_k cos 2πkx + η_k sin 2πkx) on the fine grid: (n, 1, x)."""
    draws = torch.randn(n, 2, FINE // 2, generator=Generator().manual_seed(seed)).double()
    k = torch.arange(1, FINE // 2, dtype=torch.float64)
    phase = 2 * math.pi * k[:, None] * torch.arange(FINE) / FINE
    waves = (draws[:, :1, 1:] * k**-DECAY) @ phase.cos() + (
        draws[:, 1:, 1:] * k**-DECAY
    ) @ phase.sin()
    return 2 * draws[:, :1, :1] + 4 * waves


def source(n: int) -> Tensor:
    """f(x) = 3 exp(2 cos 2πx − 2), a bump."""
    x = torch.arange(n, dtype=torch.float64) / n
    return 3 * torch.exp(2 * torch.cos(2 * math.pi * x) - 2)


def solve(a: Tensor) -> Tensor:
    """u of −ν u″ + u + u³ = a, by iterating on (−ν∂² + 1 + c) u = a + c u − u³."""
    k2 = torch.fft.rfftfreq(a.shape[-1], 1 / a.shape[-1], dtype=torch.float64) ** 2
    bound = a.abs().amax(-1, keepdim=True)
    # |u| ≤ |a|, and better: u³ ≤ |a|; c is the largest slope of u³.
    shift = 3 * torch.minimum(bound, bound ** (1 / 3)) ** 2
    u = torch.zeros_like(a)
    for _ in range(400):
        right = torch.fft.rfft(a + shift * u - u**3)
        new = torch.fft.irfft(right / (k2 + 1 + shift), n=a.shape[-1])
        if (new - u).abs().max() < 1e-13:
            return new
        u = new
    raise RuntimeError("the iteration did not converge; use smaller data.")


def features(n: int, K: int) -> Tensor:
    """cos 2πkx and sin 2πkx, k = 1 … K, on n points: (2K, x)."""
    phase = 2 * math.pi * torch.arange(1, K + 1)[:, None] * torch.arange(n, dtype=torch.float64) / n
    return torch.cat([phase.cos(), phase.sin()])


def encode(a: Tensor, size: Size) -> Tensor:
    """P_M a and the features on N points: (sample, 1 + 2K, N)."""
    n = size.S * size.M
    coarse = resample(resample(a, (size.M,), "periodic"), (n,), "periodic")
    return torch.cat([coarse, features(n, size.K).expand(len(a), -1, -1)], dim=1)


def stencils(encoded: Tensor, size: Size) -> Tensor:
    """What Ψ reads at every point z: a(z + x^M), then the features at z: (sample · N, M + 2K)."""
    n, half = encoded.shape[-1], size.M // 2
    offsets = size.S * torch.arange(-half, half + 1)
    index = (torch.arange(n)[:, None] + offsets) % n
    around = encoded[:, 0][:, index]
    return torch.cat([around, encoded[:, 1:].transpose(1, 2)], dim=2).flatten(0, 1)


def fit_network(y: Tensor, u: Tensor, size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Ψ(y) = Σ_j α_j σ(w_j · y + θ_j): w and θ random, α by least squares."""
    generator = Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # Smooth kernels: w_j = Σ_k ξ_k (1 + k²)^{−1} e_k, where e_k are the modes of the M points.
    half = size.M // 2
    modes = torch.cat([torch.ones(1, size.M).double(), features(size.M, half)])
    # The stencil begins at −half: the modes belong to the offsets.
    modes = modes.roll(half, dims=-1)
    k = torch.cat([torch.zeros(1), torch.arange(1, half + 1).repeat(2)]).double()
    of_a = draw(size.J, size.M) / (1 + k**2) @ modes / size.M
    of_features = draw(size.J, 2 * size.K) / (1 + torch.arange(1, size.K + 1).repeat(2) ** 2)
    w = torch.cat([of_a, of_features], dim=1)
    theta = draw(size.J)
    hidden = torch.tanh(y @ w.T + theta)
    gram = hidden.T @ hidden
    gram += 1e-12 * gram.trace() / size.J * torch.eye(size.J).double()
    return w, theta, torch.linalg.solve(gram, hidden.T @ u)


def build(w: Tensor, theta: Tensor, alpha: Tensor, size: Size) -> Perceptron:
    """The CNO of Ψ: K₁ has the kernel of Ψ with a stride of S, zeros between."""
    n, reach = size.S * size.M, (size.M - 1) * size.S + 1
    first = Convolution(1 + 2 * size.K, size.J, reach, 1, "periodic")
    last = Convolution(size.J, 1, 1, 1, "periodic")
    activation = Activation(size.J, (n,), (n,), "tanh", Ideal(), "periodic", 2)
    network = Perceptron(first, activation, last).double()
    with torch.no_grad():
        first.weight.zero_()
        first.weight[:, 0, :: size.S] = w[:, : size.M]
        first.weight[:, 1:, reach // 2] = w[:, size.M :]
        first.bias.copy_(theta)
        last.weight.copy_(alpha.view(1, -1, 1))
        last.bias.zero_()
    return network


@torch.no_grad()
def measure(size: Size, f: Tensor | float = 0.0) -> dict:
    """The error of the whole construction, and of its encoder alone."""
    n = size.S * size.M
    train, test = random_inputs(TRAINED, 1), random_inputs(TESTED, 2)

    def answer(a: Tensor) -> Tensor:
        return solve(a + f)

    def project(a: Tensor) -> Tensor:
        return resample(resample(a, (size.M,), "periodic"), (FINE,), "periodic")

    y = stencils(encode(train, size), size)
    u = resample(answer(project(train)), (n,), "periodic").flatten()
    some = torch.randperm(len(y), generator=Generator().manual_seed(0))[:8192]
    network = build(*fit_network(y[some], u[some], size), size)
    truth = answer(test)
    output = resample(network(encode(test, size)), (FINE,), "periodic")
    row = {
        **asdict(size),
        "N": n,
        "source": isinstance(f, Tensor),
        "error": float(relative_l2(output, truth).mean()),
        "encoder_error": float(relative_l2(answer(project(test)), truth).mean()),
    }
    print(row, flush=True)
    return row


def sweep(name: str, values: Sequence[int], f: Tensor | float = 0.0, **fixed: int) -> list[dict]:
    return [measure(Size(**{**fixed, name: value}), f) for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    f = source(FINE)
    report = {
        "M": sweep("M", (3, 5, 9, 17)),
        "J": sweep("J", (16, 64, 256, 1024)),
        "S": sweep("S", (1, 3, 5)),
        "K": sweep("K", (0, 1, 2, 4), f),
    }
    write_json(report, options.out / "universality.json")


if __name__ == "__main__":
    main()
