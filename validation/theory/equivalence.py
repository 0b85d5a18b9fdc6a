"""Proposition 2.1 on trained networks: aliasing against N_σ and against the filter.

    python -m validation.theory.equivalence [--samples 4] [--out results/theory]

A CNO between band-limited functions is one operator on every grid if its filters are ideal and σ
keeps within the band that N_σ opens. Networks are trained with windowed sincs and N_σ = 2. Here the
weights of a trained network stay, its filters and N_σ change. Measured are

    translation   ‖G(τf) − τG(f)‖ / ‖G(f)‖, τ by 0.382 steps of the grid; on periodic grids
    folded        the largest share of energy that one layer folds back into its band; not for
                  N_σ = 8, whose fine grid has the translations by an eighth that it is measured by
    moved         ‖G′(f) − G(f)‖ / ‖G(f)‖: how far the changed network is from the trained one

The second part has random weights, and σ polynomial, rational and piecewise linear: with ideal
filters a square needs N_σ = 2, and a rational function has no largest frequency.

Writes `equivalence.json`.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.disk import write_json
from torchcno.evaluation.aliasing import translation_errors
from torchcno.evaluation.layers import SHIFTS, layer_aliasing
from torchcno.metrics import relative_l2
from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators.filters import Ideal, Nearest, WindowedSinc
from torchcno.problems import PROBLEMS
from torchcno.runs.pretrained import load_pretrained

STEP = 0.382  # no multiple of a fine grid's step, under which a network commutes whatever it does
TAPS = {taps: WindowedSinc(taps=taps) for taps in (6, 12)}
UPSAMPLINGS = (1, 2, 4)
# By name, fields of the configuration; the ideal filter has no zero boundary.
CHANGES: dict[str, dict[str, Any]] = {
    "none": {"filter": Nearest()},
    **{
        f"windowed sinc, {taps} taps, N_σ = {n}": {"filter": filter, "activation_upsampling": n}
        for taps, filter in TAPS.items()
        for n in UPSAMPLINGS
    },
    **{
        f"ideal, N_σ = {n}": {"filter": Ideal(), "activation_upsampling": n}
        for n in (*UPSAMPLINGS, 8)
    },
}
SIGMAS = ("polynomial", "rational", "tanh", "silu", "gelu", "relu", "leaky_relu")


def change(network: CNO, fields: Mapping[str, Any]) -> CNO:
    """The weights of `network` under other filters: these are no part of its state."""
    changed = CNO(replace(network.config, **fields))
    changed.load_state_dict(network.state_dict())
    return changed.eval()


@torch.no_grad()
def measure(network: CNO, u: Tensor, like: Tensor | None = None) -> dict[str, float]:
    periodic = network.config.boundary == "periodic"
    found = {}
    if network.config.activation_upsampling < SHIFTS:
        found["folded"] = max(la.folded for la in layer_aliasing(network, u[:1], periodic))
    if periodic:
        (translation,) = translation_errors(network, u, (STEP,))
        found["translation"] = translation.error
    if like is not None:
        found["moved"] = float(relative_l2(network(u), like).mean())
    return found


def trained(name: str, samples: int) -> list[dict]:
    """A network of the package, with each of `CHANGES`."""
    operator = load_pretrained(name)
    network, problem = operator.network, PROBLEMS[name]()
    generators = [torch.Generator().manual_seed(i) for i in range(samples)]
    inputs, _ = problem.pairs(generators, network.config.size)
    u = operator.normalization.normalize_inputs(inputs).float()
    with torch.no_grad():
        answer = network(u)
    found = []
    for label, fields in CHANGES.items():
        if network.config.boundary == "zero" and isinstance(fields["filter"], Ideal):
            continue
        numbers = measure(change(network, fields), u, answer)
        print(name, label, numbers, flush=True)
        found.append({"network": name, "change": label, **numbers})
    return found


def untrained(n: int = 16, samples: int = 4) -> list[dict]:
    """Random weights in float64, ideal filters, each σ, against N_σ."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(samples, 1, n, n, generator=generator, dtype=torch.float64)
    found = []
    for sigma in SIGMAS:
        for upsampling in (1, 2, 4, 8):
            torch.manual_seed(0)
            config = CNOConfig(
                size=(n, n), levels=2, width=8, lift_width=8, neck_blocks=1, skip_blocks=1,
                boundary="periodic", layout="periodic", filter=Ideal(), activation=sigma,
                activation_upsampling=upsampling,
            )  # fmt: skip
            network = CNO(config).double().eval()
            numbers = measure(network, u)
            print(sigma, upsampling, numbers, flush=True)
            found.append({"sigma": sigma, "upsampling": upsampling, **numbers})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    names = ("navier-stokes", "poisson")
    report = {
        "samples": options.samples,
        "step": STEP,
        "trained": [row for name in names for row in trained(name, options.samples)],
        "untrained": untrained(),
    }
    write_json(report, options.out / "equivalence.json")


if __name__ == "__main__":
    main()
