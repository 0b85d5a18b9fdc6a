"""When do a network and a solver together beat either?

    python validation/corrections.py poisson runs/darcy [--samples 16] [--device cpu] [--out FILE]

RUNs are folders, or names of networks that come with the package. Where the problem has an
iteration (poisson, darcy), a row per number k of iterations: the error from the network's answer
and from zero, both against the data, and the time of each. Where it has none (navier-stokes,
allen-cahn), a row per coarsened solver: its error and time, and those of a blend of its answer with
the network's, wavenumber by wavenumber, with weights fitted to validation samples. Errors are
medians of the physical relative L1 error. Times are per sample, one at a time.
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.evaluation.timing import median_seconds
from torchcno.metrics import relative_l1
from torchcno.problems.allen_cahn import AllenCahn
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.problem import Problem
from torchcno.problems.torus_flow import torus_flow
from torchcno.runs.folder import RunFolder
from torchcno.runs.loading import load_split
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.pretrained import find_run
from torchcno.spectral import resample
from torchcno.training.hardware import pick_device

ITERATIONS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
SHARES = (1.0, 0.5, 0.375, 0.25, 0.1875, 0.125)  # of a solver's points or steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device, found = pick_device(options.device), []
    for run in options.runs:
        folder = RunFolder(find_run(run))
        config, operator = folder.config_here(options.data), folder.operator(device)
        sets = {
            split: load_split(config, split, options.samples, device=device).to(device)
            for split in ("val", "test")
        }
        found.append(measure(config.problem, operator, sets, device))
        show(found[-1])
    report = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "samples": options.samples,
        "problems": found,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(
    problem: Problem, operator: TrainedOperator, sets: dict[str, Fields], device: torch.device
) -> dict[str, Any]:
    u = sets["test"].inputs[:1]
    with torch.inference_mode():
        network = median_seconds(lambda: operator(u), device, 5)
        answers = {split: apply(operator, one) for split, one in sets.items()}
    kind = BLENDED.get(problem.name)
    rows = (
        iterate(problem, sets["test"], answers["test"], network, device)
        if kind is None
        else blend(problem, sets, answers, network, device)
    )
    found: dict[str, Any] = {
        "problem": problem.name,
        "network_error": error_of(answers["test"], sets["test"]),
        "network_seconds": network,
    }
    if kind is None:  # on the grid of the data, where the iteration leads to
        u = sets["test"].inputs.double()
        found["solver_error"] = error_of(problem.solve(u), sets["test"])
        found["solver_seconds"] = median_seconds(lambda: problem.solve(u[:1]), device, 5)
    return {**found, "rows": rows}


def apply(operator: TrainedOperator, fields: Fields) -> Tensor:
    return operator.apply_to(fields.inputs).double().to(fields.inputs.device)


def error_of(answer: Tensor, fields: Fields) -> float:
    return float(relative_l1(answer.double(), fields.outputs.double()).quantile(0.5))


def iterate(
    problem: Problem, fields: Fields, answer: Tensor, network: float, device: torch.device
) -> list[dict[str, Any]]:
    u = fields.inputs.double()
    nothing, one = torch.zeros_like(answer), answer[:1]
    rows = []
    for k in ITERATIONS:
        seconds = median_seconds(lambda k=k: problem.correct(u[:1], one, k), device, 5)
        rows.append(
            {
                "iterations": k,
                "error": error_of(problem.correct(u, answer, k), fields),
                "error_from_zero": error_of(problem.correct(u, nothing, k), fields),
                "seconds": seconds + network,
                "seconds_from_zero": seconds,
            }
        )
    return rows


def blend(
    problem: Problem,
    sets: dict[str, Fields],
    answers: dict[str, Tensor],
    network: float,
    device: torch.device,
) -> list[dict[str, Any]]:
    rows = []
    for share in SHARES:
        coarse = problem.coarsened(share)
        assert coarse is not None
        try:
            solved = {split: solve(coarse, one.inputs) for split, one in sets.items()}
        except ValueError as error:  # steps that are unstable
            print(f"{share:g}: {error}")
            continue
        if not all(one.isfinite().all() for one in solved.values()):
            continue
        one = sets["test"].inputs[:1]
        seconds = median_seconds(lambda c=coarse, u=one: solve(c, u), device, 3)
        weights = fit_weights(answers["val"], solved["val"], sets["val"].outputs.double())
        both = mix(answers["test"], solved["test"], weights)
        rows.append(
            {
                "share": share,
                "solver_error": error_of(solved["test"], sets["test"]),
                "blend_error": error_of(both, sets["test"]),
                "solver_seconds": seconds,
                "blend_seconds": seconds + network,
            }
        )
    return rows


def solve(problem: Problem, u: Tensor) -> Tensor:
    """Outputs on the grid of the data, from what networks see of a state."""
    states = BLENDED[problem.name](problem, u.double())
    outputs = torch.cat([problem.solve(one) for one in states.split(1)])
    return resample(problem.observe(outputs), tuple(u.shape[2:]), problem.layout)


def complete_velocity(problem: NavierStokes, u: Tensor) -> Tensor:
    """(u, v) on the solver's points from u alone: k·û = 0 gives v̂ where k_y ≠ 0.

    Where k_y = 0 it is zero for the initial layers, which are projections of (u_0, 0).
    """
    u = resample(u, (problem.N, problem.N), "periodic")[:, 0]
    flow = torus_flow(problem.N, u.device)
    k_x, k_y = flow.k
    is_known = k_y.abs() > 0
    v_hat = torch.where(is_known, -k_x * flow.coefficients(u) / torch.where(is_known, k_y, 1), 0)
    return torch.stack([u, flow.values(v_hat, problem.N)], dim=1)


def as_given(problem: AllenCahn, u: Tensor) -> Tensor:
    return u


BLENDED: dict[str, Any] = {"navier-stokes": complete_velocity, "allen-cahn": as_given}


def shell_numbers(shape: torch.Size, device: torch.device) -> Tensor:
    """max |k_i| of every mode of a real transform."""
    along = [torch.fft.fftfreq(n, 1 / n).abs() for n in shape[:-1]]
    along.append(torch.fft.rfftfreq(shape[-1], 1 / shape[-1]))
    mesh = torch.meshgrid(*along, indexing="ij")
    return torch.stack(mesh).amax(0).long().to(device)


def fit_weights(a: Tensor, b: Tensor, truth: Tensor) -> Tensor:
    """The share of a, from 0 to 1, in the best blend with b, by shells of wavenumbers."""
    a_hat, b_hat, v_hat = (torch.fft.rfft2(one) for one in (a, b, truth))
    difference, shells = a_hat - b_hat, shell_numbers(a.shape[2:], a.device)
    weights = []
    for k in range(int(shells.max()) + 1):
        d, r = difference[..., shells == k], (v_hat - b_hat)[..., shells == k]
        weights.append((r * d.conj()).real.sum() / d.abs().square().sum().clamp(min=1e-300))
    return torch.stack(weights).clamp(0, 1)


def mix(a: Tensor, b: Tensor, weights: Tensor) -> Tensor:
    w = weights[shell_numbers(a.shape[2:], a.device)]
    return torch.fft.irfft2(w * torch.fft.rfft2(a) + (1 - w) * torch.fft.rfft2(b), s=a.shape[2:])


def show(found: dict[str, Any]) -> None:
    error, seconds = found["network_error"], found["network_seconds"]
    print(f"{found['problem']}: network {100 * error:.3g} % in {1e3 * seconds:.3g} ms")
    if "solver_error" in found:
        error, seconds = found["solver_error"], found["solver_seconds"]
        print(f"  solver on the same grid {100 * error:.3g} % in {1e3 * seconds:.3g} ms")
    for row in found["rows"]:
        words = [
            f"{name} {100 * x:.3g} %" if "error" in name else
            f"{name} {1e3 * x:.3g} ms" if "seconds" in name else f"{name} {x:g}"
            for name, x in row.items()
        ]  # fmt: skip
        print("  " + ", ".join(words))


if __name__ == "__main__":
    main()
