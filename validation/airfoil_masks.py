"""How much of a flow do 128² cells of a mask determine? The least error of any network on airfoils.

    python validation/airfoil_masks.py [--masks 64] [--device cuda] [--out results]

A network sees which cells lie in the airfoil. A bump is half a cell high, so that many airfoils
have the same mask, and other flows. For masks of the benchmark this draws a second airfoil,
uniformly (as ψ is) among those whose surfaces pass between the same cells, and solves for both
flows. Neither is more likely than the other, and with d the relative L1 distance of their densities
the mean error of any answer is at least d / 2, by the triangle inequality, whatever the network and
however many samples it has seen. If densities scatter about their mean as a normal distribution
does, the best answer has the error d / √2.

`settled` is the distance from flows of the benchmark to the same flows settled further: what the
solver's tolerance adds. Writes `validation-airfoil-masks.json`, with the networks' errors beside.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Generator, Tensor

from torchcno.data.samples import Samples
from torchcno.disk import read_json, write_json
from torchcno.grids import Grid
from torchcno.paper.records import read_records
from torchcno.problems.airfoil import Airfoil, AirfoilFlow, perturbed, rae2822
from torchcno.runs.evaluate import EVALUATED

STEPS = 20_000  # of the walk from one airfoil to another: from 5,000 on it is as far from the first
TOGETHER = 8  # flows at once
FURTHER = 8  # flows that are settled further
RESULTS = Path(__file__).parents[1] / "results"


def surfaces(problem: Airfoil, psi: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return perturbed(rae2822(), psi, problem.amplitudes).surfaces(x)


def gaps(problem: Airfoil, psi: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Rows A and, for each ψ, a bound b: wherever A ψ' ≤ b, ψ' has the mask of ψ.

    Both surfaces are affine in ψ. They keep the mask if over every column of cells they stay
    between the two rows of cells that they lie between, and do not cross.
    """
    y, x = grid.axis(0), grid.axis(1)
    x = x[(x > 0) & (x < 1)]
    along = torch.linspace(0, 1, 801, dtype=torch.float64)[1:-1] ** 2  # where they must not cross
    n = psi.shape[1]
    basis = torch.cat([torch.zeros(1, n, dtype=psi.dtype), torch.eye(n, dtype=psi.dtype)])
    rows = [torch.eye(n), -torch.eye(n)]  # 0 ≤ ψ ≤ 1
    bounds = [torch.ones(len(psi), n), torch.zeros(len(psi), n)]
    for side in (0, 1):
        at = surfaces(problem, basis, x)[side]
        slope, height = (at[1:] - at[0]).T, surfaces(problem, psi, x)[side]
        above = torch.searchsorted(y, height, right=side == 1)  # the first row of cells above
        rows += [slope, -slope]
        bounds += [y[above] - at[0], at[0] - y[above - 1]]
    lower, upper = surfaces(problem, basis, along)
    thickness = upper - lower
    rows.append(-(thickness[1:] - thickness[0]).T)
    bounds.append(thickness[0].expand(len(psi), -1))
    return torch.cat(rows).to(psi), torch.cat(bounds, dim=1).to(psi)


def others(problem: Airfoil, psi: Tensor, grid: Grid, generator: Generator) -> Tensor:
    """For each ψ another one, uniform among those that `gaps` allows.

    A walk in steps along random lines, to a uniform point of the part of the line inside the set.
    """
    rows, bounds = gaps(problem, psi, grid)
    for _ in track(range(STEPS), "walking"):
        line = torch.randn(psi.shape, generator=generator, dtype=psi.dtype)
        reach = (bounds - psi @ rows.T) / (line @ rows.T)
        ahead = reach.where(reach > 0, torch.inf).amin(dim=1)
        back = reach.where(reach < 0, -torch.inf).amax(dim=1)
        t = back + (ahead - back) * torch.rand(len(psi), generator=generator, dtype=psi.dtype)
        psi = psi + t[:, None] * line
    return psi


def flows(problem: Airfoil, psi: Tensor, device: str, what: str) -> AirfoilFlow:
    """The flows of all ψ, a few at a time."""
    parts = [
        problem.flow(some.to(device)) for some in track(psi.split(TOGETHER), f"solving, {what}")
    ]
    return AirfoilFlow(
        *(
            torch.cat([getattr(part, name).cpu() for part in parts])
            for name in ("density", "mask", "lift", "drag", "converged", "cycles")
        ),
        notes=tuple(note for part in parts for note in part.notes),
    )


def distance(first: Tensor, second: Tensor, inside: Tensor) -> Tensor:
    """Relative L1 distances of densities in percent, the airfoil left out."""
    outside = ~inside
    error = ((first - second).abs() * outside).sum(dim=(1, 2, 3))
    return 100 * error / (second.abs() * outside).sum(dim=(1, 2, 3))


def measure(split: str, count: int, device: str) -> dict[str, Any]:
    samples = Samples.of(Airfoil(), split)
    problem = samples.split_problem
    assert isinstance(problem, Airfoil)
    grid = problem.grid(problem.resolution)
    generators = (Generator().manual_seed(samples.sample_seed(i)) for i in range(count))
    psi = torch.cat([problem.sample_coefficients(generator) for generator in generators])
    other = others(problem, psi, grid, Generator().manual_seed(0))

    one, two = (flows(problem, each, device, split) for each in (psi, other))
    assert torch.equal(one.mask, two.mask)
    kept = one.converged & two.converged
    d = distance(one.density, two.density, one.mask)[kept]

    far = replace(problem.steady, lift_tolerance=1e-7, residual_fall=1e-6, cycles=2000)
    further = flows(replace(problem, steady=far), psi[:FURTHER], device, f"{split}, further")
    settled = distance(one.density[:FURTHER], further.density, one.mask[:FURTHER])[
        further.converged & one.converged[:FURTHER]
    ]
    return {
        "masks": len(d),
        "not_settled": int((~kept).sum()),
        "psi_rms_distance": (psi - other).square().mean().sqrt().item(),  # 0.41 were none alike
        "lift_std_within_a_mask": ((one.lift - two.lift)[kept].square().mean() / 2).sqrt().item(),
        "lift_std": one.lift[kept].std().item(),
        "distance_mean_percent": d.mean().item(),
        "distance_median_percent": d.median().item(),
        "least_mean_error_percent": d.mean().item() / 2,
        "likely_mean_error_percent": d.mean().item() / 2**0.5,
        "settled_flows": len(settled),
        "settled_mean_percent": settled.mean().item(),
    }


def networks(split: str) -> dict[str, float]:
    """The mean errors of the runs of `paper`, seed 0, in percent."""
    runs = [run for run in read_records(RESULTS) if run["problem"] == "airfoil"]
    return {
        run["model"]: run["errors"][split]["relative_l1_mean_percent"]["physical"]
        for run in runs
        if run.name == f"airfoil-{run['model']}-paper-0"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--masks", type=int, default=64)
    parser.add_argument("--split", nargs="+", default=list(EVALUATED), choices=EVALUATED)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "validation-airfoil-masks.json"
    report = read_json(path) if path.exists() else {}
    for split in given.split:
        report[split] = measure(split, given.masks, given.device)
        report[split]["networks_mean_percent"] = networks(split)
        print(split, report[split], flush=True)
        write_json(report, path)


if __name__ == "__main__":
    main()
