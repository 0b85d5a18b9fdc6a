"""Of how few functions can a problem's outputs be made? A floor under FFNN and DeepONet.

    python validation/output_space.py [--only 'allen-cahn*'] [--samples 2048]

Both networks end in a linear layer: whatever the input, their answer lies in one affine space of as
many dimensions as FFNN has neurons, or DeepONet functions. This is the error of the best answer in
the best such space, the projection onto the first principal components of many samples that are in
no set. (Best in the mean square: for the median of L1 errors another space may be a little better.)
Where a published error lies below it, the published data are not ours; for allen-cahn, where that
is so, some other readings of the text are measured, too.

Writes `results/validation-output-space.json`.
"""

import argparse
import math
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.data.dataset import Fields, Normalization
from torchcno.data.samples import Samples
from torchcno.disk import read_json, write_json
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.paper.published import TABLE_1
from torchcno.problems import (
    AllenCahn,
    Darcy,
    DiscontinuousTransport,
    Poisson,
    SmoothTransport,
    Wave,
)
from torchcno.problems.problem import Problem
from torchcno.runs.evaluate import EVALUATED
from torchcno.runs.presets import model_config

DIMENSIONS = {"ffnn": "width", "deeponet": "bases"}  # the field of the configuration
AT_ONCE = 256  # samples
# All but those of which a solution takes seconds on a CPU, navier-stokes and airfoil.
PROBLEMS: dict[str, Problem] = {
    "poisson": Poisson(),
    "wave": Wave(),
    "smooth-transport": SmoothTransport(),
    "discontinuous-transport": DiscontinuousTransport(),
    "allen-cahn": AllenCahn(),
    "allen-cahn, r = 1.25": AllenCahn(r=(1.25, 1.25)),
    "allen-cahn, r = 1.5": AllenCahn(r=(1.5, 1.5)),
    "allen-cahn, A = 1/π": AllenCahn(amplitude=1 / math.pi),
    "darcy": Darcy(),
}


def principal(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of fields, as a row, and their principal components, as columns, largest first."""
    rows = outputs.double().flatten(1)
    mean = rows.mean(0, keepdim=True)
    deviations = rows - mean
    _, vectors = torch.linalg.eigh(deviations.mT @ deviations)
    return mean, vectors.flip(1)


def projected(outputs: Tensor, mean: Tensor, space: Tensor) -> Tensor:
    """The nearest fields of an affine space."""
    deviations = outputs.double().flatten(1) - mean
    return (mean + deviations @ space @ space.mT).view(outputs.shape).to(outputs.dtype)


def fields(problem: Problem, split: str, samples: int, seed: int = 0) -> Fields:
    """Samples of a split; those of seed 0 are the problem's sets."""
    wanted = Samples(problem, split, problem.resolution, seed)
    parts = range(0, samples, AT_ONCE)
    made = [wanted.make(range(i, min(i + AT_ONCE, samples))) for i in parts]
    inputs, outputs = (torch.cat(tensors) for tensors in zip(*made, strict=True))
    return Fields(inputs, outputs, wanted.grid)


def measure(problem: Problem, samples: int) -> dict[str, Any]:
    """The floor of either network, on test and ood, beside what was published."""
    scaling = Normalization.fit(fields(problem, "train", problem.samples["train"]))
    mean, components = principal(fields(problem, "train", samples, seed=1).outputs)
    report: dict[str, Any] = {"samples": samples}
    for split in EVALUATED:
        given = fields(problem, split, problem.samples[split])
        for model, field in DIMENSIONS.items():
            dimensions = getattr(model_config(model, problem), field)
            nearest = projected(given.outputs, mean, components[:, :dimensions])
            errors = summary(sample_errors(nearest, given, scaling, problem.mask))
            row = report.setdefault(model, {"dimensions": dimensions})
            row[split] = {
                "floor_percent": published_error(errors),
                "published_percent": TABLE_1[problem.name, split][model],
            }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="a pattern of names, as in the file")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    path = given.out / "validation-output-space.json"
    report = read_json(path) if path.exists() else {}
    for name in (name for name in PROBLEMS if fnmatch(name, given.only)):
        report[name] = measure(PROBLEMS[name], given.samples)
        write_json(report, path)
        for model in DIMENSIONS:
            row = report[name][model]
            errors = " ".join(
                f"{split} {row[split]['floor_percent']:.3f} ({row[split]['published_percent']:g})"
                for split in EVALUATED
            )
            print(f"{name}, {model} of {row['dimensions']}: {errors}", flush=True)


if __name__ == "__main__":
    main()
