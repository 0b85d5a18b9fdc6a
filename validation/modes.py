"""How many Fourier modes a solution needs: the supplement's case for the shear layer.

    python validation/modes.py [--samples 128] [--device cuda] [--out results]

For each sample v and each N_f the relative L1 error of v cut to the modes |k|∞ < N_f/2, which are
those of N_f points an axis (SM, "On the Choice of the RPB benchmarks"). Writes
`validation-modes.json`; figure 26 of the report shows it.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from torchcno.data.samples import Samples
from torchcno.disk import write_json
from torchcno.metrics import relative_l1
from torchcno.paper.published import MODES
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.problem import Problem
from torchcno.problems.vorticity import Vorticity
from torchcno.spectral import resample

CASES: dict[str, Problem] = {
    "vorticity": Vorticity(),
    "navier-stokes": NavierStokes(),
}


def truncation_errors(outputs: Tensor, kept: list[int]) -> Tensor:
    """The relative L1 error of each sample (columns) for each number of kept modes (rows)."""
    n = outputs.shape[-1]

    def cut(n_f: int) -> Tensor:
        return resample(resample(outputs, (n_f, n_f), "periodic"), (n, n), "periodic")

    return torch.stack([relative_l1(cut(n_f), outputs) for n_f in kept])


def curves(problem: Problem, samples: int, device: str) -> dict[str, list[float]]:
    n_points = problem.solver_grid(problem.resolution).shape[0]
    kept = list(range(2, n_points, 2))
    _, outputs = Samples.of(problem, "test", n_points).make(range(samples), device)
    errors = truncation_errors(outputs.double(), kept)
    return {
        "modes": kept,
        "median": errors.median(dim=1).values.tolist(),
        "mean": errors.mean(dim=1).tolist(),
        "largest": errors.amax(dim=1).tolist(),
    }


def modes_needed(curve: dict[str, list[float]], statistic: str, error: float) -> float | None:
    """The least number of kept modes whose error is at most `error`."""
    pairs = zip(curve["modes"], curve[statistic], strict=True)
    return next((modes for modes, value in pairs if value <= error), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    report = {}
    for name, problem in CASES.items():
        said = MODES[problem.name]
        found = curves(problem, options.samples, options.device)
        needed = modes_needed(found, said.statistic, said.error)
        report[name] = {
            "samples": options.samples,
            "published": asdict(said),
            "modes_for_published_error": needed,
            "curves": found,
        }
        print(f"{name}: {said.error:.0%} ({said.statistic}) at {needed} modes; ", end="")
        print(f"published: about {said.modes}")
    write_json(report, options.out / "validation-modes.json")


if __name__ == "__main__":
    main()
