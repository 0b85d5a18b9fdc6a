"""The sets of the airfoil problem: made, timed, described and drawn.

    python validation/airfoil_data.py --device cuda [--data FOLDER]
    python validation/airfoil_data.py --samples 2 --coarse --data FOLDER --out FOLDER  # a trial

Makes the data files of all four splits anew, as `cno generate airfoil` does but in one process, and
writes results/airfoil-data.json and results/airfoil-gallery.png.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor

from torchcno.data import files
from torchcno.data.dataset import Fields, data_folder
from torchcno.data.generate import generate
from torchcno.data.samples import Samples
from torchcno.problems.airfoil import (
    Airfoil,
    AirfoilFlow,
    MeshConfig,
    SteadyConfig,
    perturbed,
    rae2822,
)
from torchcno.problems.airfoil.geometry import crossing
from torchcno.problems.problem import SPLITS
from torchcno.runs.pictures.problems import differences, draw_fields

RESULTS = Path(__file__).parents[1] / "results"
DRAWN = 4  # samples a split in the gallery
COARSE = Airfoil(
    mesh=MeshConfig(around=122, wake=20, outward=22), steady=SteadyConfig(levels=2, cycles=200)
)


@contextmanager
def noted_flows() -> Iterator[list[AirfoilFlow]]:
    """Every flow that is computed inside: data files keep fields only."""
    flows: list[AirfoilFlow] = []
    compute = Airfoil.flow

    def noted(self: Airfoil, psi: Tensor, resolution: int = 128) -> AirfoilFlow:
        flows.append(compute(self, psi, resolution))
        return flows[-1]

    with mock.patch.object(Airfoil, "flow", noted):
        yield flows


def statistics(values: Tensor) -> dict[str, float]:
    values = values.double()
    return {
        "min": values.min().item(),
        "mean": values.mean().item(),
        "max": values.max().item(),
        "std": values.std().item(),
    }


def crossed_at_first(samples: Samples, count: int) -> int:
    """How many of the first shapes drawn have surfaces that cross, and were drawn again at once."""
    problem = samples.split_problem
    assert isinstance(problem, Airfoil)
    psi = torch.cat(
        [
            torch.rand(1, 2 * problem.bumps, generator=generator, dtype=torch.float64)
            for generator in (Generator().manual_seed(samples.sample_seed(i)) for i in range(count))
        ]
    )
    return int(crossing(perturbed(rae2822(), psi, problem.amplitudes)).sum())


def make(
    problem: Airfoil, split: str, count: int, folder: Path, device: str
) -> tuple[dict[str, object], Fields]:
    """The file of a split: what is to be said about it, and its samples."""
    start = time.perf_counter()
    with noted_flows() as flows:
        path = generate(
            problem,
            split,
            samples=count,
            folder=folder,
            workers=1,  # flows in other processes would go unnoted
            overwrite=True,
            device=device,
            progress=lambda done, total: print(f"{split}: {done} of {total}", flush=True),
        )
    seconds = time.perf_counter() - start
    (inputs, outputs), grid = files.read(path, count)
    fields = Fields(torch.from_numpy(inputs), torch.from_numpy(outputs), grid)
    outside = problem.mask(fields.inputs)
    lift, drag, cycles, converged = (
        torch.cat([getattr(flow, name).cpu() for flow in flows])
        for name in ("lift", "drag", "cycles", "converged")
    )
    row: dict[str, object] = {
        "samples": count,
        "seconds": seconds,
        "shapes_that_crossed_and_were_redrawn": crossed_at_first(Samples.of(problem, split), count),
        "flows_computed": len(converged),  # a GPU fills its last batch with more than is kept
        "flows_unsettled_and_redrawn": int((~converged).sum()),
        "unsettled_percent": 100 * (~converged).double().mean().item(),
        "cycles_of_settled_flows": statistics(cycles[converged]),
        "lift": statistics(lift[converged]),
        "drag": statistics(drag[converged]),
        "density_outside_the_airfoil": statistics(fields.outputs[outside]),
        "cells_inside_the_airfoil": statistics((~outside).sum((1, 2, 3))),
    }
    print(json.dumps({split: row}), flush=True)
    return row, fields


def gallery(problem: Airfoil, sets: dict[str, Fields]) -> Figure:
    """The first samples of each split, inputs above outputs."""
    figure = Figure(figsize=(15, 9), layout="constrained")
    figure.suptitle("Flow past airfoils: shapes and densities")
    for part, (split, fields) in zip(figure.subfigures(2, 2).flat, sets.items(), strict=True):
        part.suptitle(f"{split}{differences(problem, split)}", fontsize="medium")
        draw_fields(part, problem, Fields(*fields[:DRAWN], fields.grid))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--samples", type=int, help="a split (default: the paper's)")
    parser.add_argument("--coarse", action="store_true", help="a mesh of a quarter of the cells")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of the data files")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    problem = COARSE if options.coarse else Airfoil()
    rows, sets = {}, {}
    for split in SPLITS:
        count = options.samples or problem.samples[split]
        rows[split], sets[split] = make(problem, split, count, options.data, options.device)
    on_gpu = options.device == "cuda"
    report = {
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "torch": torch.__version__,
        "seconds": sum(row["seconds"] for row in rows.values()),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "problem": asdict(problem),
        "splits": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "airfoil-data.json").write_text(json.dumps(report, indent=1) + "\n")
    gallery(problem, sets).savefig(options.out / "airfoil-gallery.png", dpi=110)


if __name__ == "__main__":
    main()
