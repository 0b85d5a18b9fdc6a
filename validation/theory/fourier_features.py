"""Do the Fourier features of Theorem 3.1 help a trained CNO? Poisson on 32² points, three seeds.

    python -m validation.theory.fourier_features [--steps 240] [--out results/theory]

The theorem needs them where the equation knows places by more than its input. A Dirichlet problem
does, by its edge, but zero padding tells a network where that is. Writes `fourier_features.json` as
runs end.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from validation.theory.small_runs import NETWORK, SmallRun

from torchcno.disk import write_json
from torchcno.problems.poisson import Poisson

SAMPLES, SEEDS, FEATURES = 128, (0, 1, 2), (0, 1, 2)


def run(features: int, seed: int, steps: int) -> dict:
    network = replace(NETWORK, fourier_features=features)
    one = SmallRun(Poisson(), SAMPLES, steps, network=network, batch=16, seed=seed)
    row = {"features": features, "seed": seed, "percent": one.error()}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--out", type=Path, default=Path("results/theory"))
    options = parser.parse_args()
    report: dict = {"steps": options.steps, "samples": SAMPLES, "runs": []}
    for seed in SEEDS:
        for features in FEATURES:
            report["runs"].append(run(features, seed, options.steps))
            write_json(report, options.out / "fourier_features.json")


if __name__ == "__main__":
    main()
