"""The airfoil solver against reference flows, published figures, refinement, and its far field.

    python validation/airfoil.py [--workers 2]

Writes results/validation-airfoil.json and results/validation-airfoil-*.png. About ten minutes on
one core.
"""

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from torchcno.problems.airfoil import (
    Airfoil,
    FreeStream,
    MeshConfig,
    Naca4,
    SteadyConfig,
    c_mesh,
    density_on,
    mesh_quality,
    perturbed,
    rae2822,
    steady_flow,
)
from torchcno.problems.airfoil.geometry import Shape
from torchcno.runs.pictures.problems import draw_mesh, views_of

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results"
FIXTURES = ROOT / "tests" / "fixtures"
FIXTURE_WINDOW = ((-0.75, 1.75), (-0.75, 1.75))  # of the text; the published data have another
RANDOM_SHAPES = 12

# Meshes, with the number of levels of their multigrid cycle. Halving 242 cells around leaves an odd
# number, so that the coarsest has one more.
MESHES = {
    "coarse": (MeshConfig(around=122, wake=20, outward=22), 2),
    "default": (MeshConfig(), 3),
    "refined": (MeshConfig().refined(2), 4),
}


@dataclass(frozen=True)
class Case:
    """A flow, and the reference's lift and drag with its nodes around the airfoil."""

    name: str
    shape: Shape
    stream: FreeStream
    mesh: MeshConfig
    levels: int
    reference: dict[str, float | str | None]


def case(
    name: str,
    shape: Shape,
    stream: FreeStream,
    mesh: str = "default",
    far_field: float = 20.0,
    reference: tuple[str, float, float] | None = None,
) -> Case:
    config, levels = MESHES[mesh]
    config = replace(config, far_field=far_field)
    nodes, lift, drag = reference or (None, None, None)
    figures = {"nodes": nodes, "lift": lift, "drag": drag}
    return Case(name, shape, stream, config, levels, figures)


def cases() -> list[Case]:
    """The table of reference flows, coarse meshes first."""
    rae, naca = rae2822(), Naca4()
    paper, steep = FreeStream(), FreeStream(0.73, 2.79)
    slow, level, lifting = FreeStream(0.5, 1.25), FreeStream(0.8, 0.0), FreeStream(0.8, 1.25)
    far = {5: (0.882, 0.0117), 10: (0.905, 0.0114), 15: (0.913, 0.0114), 50: (0.923, 0.0114)}
    c, m = "257 x 49", "513 x 97"
    return [
        case("NACA0012, M 0.5, 1.25°", naca, slow, "coarse"),
        case("RAE2822", rae, paper, reference=("243 x 43", 0.917, 0.01134)),
        case(
            "RAE2822, no vortex",
            rae,
            replace(paper, vortex=0.0),
            reference=("243 x 43", 0.901, 0.01146),
        ),
        *(
            case(f"RAE2822, far field {d}", rae, paper, "default", d, ("243 x 43", *forces))
            for d, forces in far.items()
        ),
        case("RAE2822, far field 150", rae, paper, "default", 150.0),
        case("RAE2822, far field 50, no vortex", rae, replace(paper, vortex=0.0), "default", 50.0),
        case(
            "RAE2822, far field 150, no vortex", rae, replace(paper, vortex=0.0), "default", 150.0
        ),
        case("RAE2822, M 0.73, 2.79°", rae, steep, reference=(c, 1.024, 0.02079)),
        case("NACA0012, M 0.5, 1.25°", naca, slow, reference=(c, 0.1780, 0.00043)),
        case("NACA0012, M 0.8, 0°", naca, level, reference=(c, 0.0, 0.00863)),
        case("NACA0012, M 0.8, 1.25°", naca, lifting, reference=(c, 0.348, 0.02258)),
        case("RAE2822, far field 50", rae, paper, "refined", 50.0, (m, 0.928, 0.01086)),
        case("RAE2822", rae, paper, "refined"),
        case("RAE2822, far field 150", rae, paper, "refined", 150.0),
        case("RAE2822, M 0.73, 2.79°", rae, steep, "refined", reference=(m, 1.029, 0.02063)),
        case("NACA0012, M 0.5, 1.25°", naca, slow, "refined", reference=(m, 0.1782, 0.00010)),
        case("NACA0012, M 0.8, 0°", naca, level, "refined", reference=(m, 0.0, 0.00832)),
        case("NACA0012, M 0.8, 1.25°", naca, lifting, "refined", reference=(m, 0.352, 0.02250)),
    ]


Curve = tuple[np.ndarray, np.ndarray]  # x and C_p


def solve(case: Case) -> tuple[dict[str, object], Curve]:
    """A case's row of the table, and the pressure on the wall."""
    start = time.perf_counter(), time.process_time()
    config = SteadyConfig(levels=case.levels)
    flow = steady_flow(c_mesh(case.shape, case.mesh), case.stream, config)
    ours = {"lift": flow.lift.item(), "drag": flow.drag.item()}
    row = {
        "case": case.name,
        "mach": case.stream.mach,
        "incidence_degrees": case.stream.incidence,
        "far_field_chords": case.mesh.far_field,
        "nodes": f"{case.mesh.around + 1} x {case.mesh.outward + 1}",
        **ours,
        "reference": case.reference,
        "difference_percent": {
            key: 100 * (ours[key] / value - 1)
            for key in ours
            if (value := case.reference[key]) is not None and value != 0
        },
        "converged": flow.converged.item(),
        "cycles": flow.cycles.item(),
        "residual_fell_to": flow.residual.item(),
        "lift_drift": flow.lift_drift.item(),
        "seconds_wall": time.perf_counter() - start[0],
        "seconds_cpu": time.process_time() - start[1],
    }
    print(row, flush=True)
    x, cp = (values[0].numpy() for values in flow.surface_pressure())
    return row, (x, cp)


def fixture_flow(which: tuple[int, int]) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """A reference flow (bumps a side, sample) beside ours: figures, and fields to draw."""
    bumps, k = which
    with np.load(FIXTURES / f"airfoil_{bumps}.npz") as arrays:
        reference = {key: arrays[key][k] for key in arrays if key != "x"}
    problem = Airfoil(bumps=bumps, window=FIXTURE_WINDOW)
    flow = problem.flow(torch.from_numpy(reference["psi"])[None], resolution=128)
    ours, theirs = flow.density[0, 0].numpy(), reference["density"]
    outside = ~reference["mask"]
    error = np.abs(ours - theirs)[outside]
    row = {
        "bumps": bumps,
        "sample": k,
        "density_error_percent": float(100 * error.mean() / theirs[outside].mean()),
        "largest_density_error": float(error.max()),
        "mask_pixels_that_differ": int((flow.mask[0, 0].numpy() == outside).sum()),
        "lift": flow.lift.item(),
        "drag": flow.drag.item(),
        "reference": {"lift": float(reference["cl"]), "drag": float(reference["cd"])},
        "converged": flow.converged.item(),
    }
    print(row, flush=True)
    return row, {"ours": ours, "theirs": theirs, "outside": outside}


def random_flow(which: tuple[int, int]) -> dict[str, float]:
    """Figures of the flow past a random shape: (bumps a side, seed)."""
    bumps, seed = which
    problem = Airfoil(bumps=bumps)
    psi = problem.sample_coefficients(torch.Generator().manual_seed(seed))
    flow = steady_flow(c_mesh(perturbed(rae2822(), psi)), problem.stream)
    density = density_on(flow, problem.grid(128))
    return {
        "converged": flow.converged.item(),
        "cycles": flow.cycles.item(),
        "lift": flow.lift.item(),
        "drag": flow.drag.item(),
        "least_density": density.min().item(),
        "largest_density": density.max().item(),
    }


def summary(bumps: int, flows: list[dict[str, float]]) -> dict[str, object]:
    """How many random shapes settled, and how much they differ."""
    columns = {key: [flow[key] for flow in flows] for key in flows[0]}
    return {
        "bumps": bumps,
        "shapes": len(flows),
        "converged": sum(columns["converged"]),
        "most_cycles": max(columns["cycles"]),
        "lift": [min(columns["lift"]), max(columns["lift"])],
        "drag": [min(columns["drag"]), max(columns["drag"])],
        "density": [min(columns["least_density"]), max(columns["largest_density"])],
    }


def criteria(rows: list[dict], fixtures: list[dict]) -> list[dict[str, object]]:
    """The bounds that the solver is held to, and what was measured."""

    def find(name: str, nodes: str) -> dict:
        return next(row for row in rows if (row["case"], row["nodes"]) == (name, nodes))

    coarse, default, refined = "123 x 23", "243 x 43", "485 x 85"
    rae = find("RAE2822", default)["difference_percent"]
    distant = find("RAE2822, far field 50", refined)["difference_percent"]
    lifting = find("NACA0012, M 0.8, 1.25°", default)["lift"]
    level = find("NACA0012, M 0.8, 0°", refined)["drag"]
    slow = [find("NACA0012, M 0.5, 1.25°", nodes) for nodes in (coarse, default, refined)]
    drags = [row["drag"] for row in slow]
    slow_lift = 100 * (slow[1]["lift"] / 0.178 - 1)
    worst = max(row["density_error_percent"] for row in fixtures)
    settled = [row["converged"] for row in rows]
    checks = [
        ("all flows settled", f"{sum(settled)} of {len(settled)}", all(settled)),
        (
            "RAE2822, 243 x 43, far field 20: lift within 1.5 %",
            rae["lift"],
            abs(rae["lift"]) <= 1.5,
        ),
        ("RAE2822, 243 x 43, far field 20: drag within 6 %", rae["drag"], abs(rae["drag"]) <= 6),
        (
            "RAE2822, refined, far field 50: lift within 1.5 %",
            distant["lift"],
            abs(distant["lift"]) <= 1.5,
        ),
        ("NACA0012, M 0.8, 1.25°: lift in [0.33, 0.36]", lifting, 0.33 <= lifting <= 0.36),
        (
            "NACA0012, M 0.8, 0°, refined: drag within 3 % of 0.0083",
            100 * (level / 0.0083 - 1),
            abs(level / 0.0083 - 1) <= 0.03,
        ),
        ("NACA0012, M 0.5: lift within 1 % of 0.178", slow_lift, abs(slow_lift) <= 1),
        (
            "NACA0012, M 0.5: spurious drag falls with refinement",
            drags,
            abs(drags[2]) < abs(drags[1]) < abs(drags[0]),
        ),
        ("reference flows: mean density error within 1 %", worst, worst <= 1),
    ]
    return [{"what": what, "measured": value, "met": bool(met)} for what, value, met in checks]


def far_field_limits(rows: list[dict]) -> dict[str, float]:
    """Lift of RAE2822 for a far field at infinity: linear in 1/distance through 20 and 50 chords.

    The reference was refined at 50 chords only; what refinement changed there is added.
    """

    def lifts(nodes: str) -> dict[str, dict]:
        chosen = (r for r in rows if r["nodes"] == nodes and "vortex" not in r["case"])
        return {r["case"]: r for r in chosen}

    def limit(at_20: float, at_50: float) -> float:
        return (50 * at_50 - 20 * at_20) / (50 - 20)

    near, far = "RAE2822", "RAE2822, far field 50"
    default, refined = lifts("243 x 43"), lifts("485 x 85")
    theirs = {key: default[key]["reference"]["lift"] for key in (near, far)}
    ours = limit(refined[near]["lift"], refined[far]["lift"])
    refinement = refined[far]["reference"]["lift"] - theirs[far]
    reference = limit(theirs[near], theirs[far]) + refinement
    return {
        "lift_of_ours_refined": ours,
        "lift_of_the_reference_refined": reference,
        "difference_percent": 100 * (ours / reference - 1),
    }


def draw_fixtures(pictures: list[dict[str, np.ndarray]]) -> None:
    figure, axes = plt.subplots(
        len(pictures), 3, figsize=(9, 2.6 * len(pictures)), layout="constrained"
    )
    for row, picture in zip(axes, pictures, strict=True):
        hidden = ~picture["outside"]
        panels = (
            ("ours", picture["ours"], {"vmin": 0.5, "vmax": 1.25}),
            ("reference solver", picture["theirs"], {"vmin": 0.5, "vmax": 1.25}),
            ("|difference|", np.abs(picture["ours"] - picture["theirs"]), {"cmap": "magma"}),
        )
        for axis, (title, values, style) in zip(row, panels, strict=True):
            shown = np.ma.array(values, mask=hidden)
            image = axis.imshow(shown, origin="lower", extent=(-0.75, 1.75) * 2, **style)
            axis.set(title=title, xticks=[], yticks=[])
            figure.colorbar(image, ax=axis, shrink=0.8)
    figure.suptitle("Density past six airfoils")
    figure.savefig(OUT / "validation-airfoil-fixtures.png", dpi=110)


def draw_pressure(curves: dict[str, Curve]) -> None:
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for (label, (x, cp)), style in zip(curves.items(), ("-", "--"), strict=True):
        axis.plot(x, cp, style, label=f"{label} nodes", lw=1)
    axis.axvline(0.636, color="0.7", lw=0.8, label="shock of the reference, x = 0.636")
    axis.invert_yaxis()
    axis.set(xlabel="x", ylabel="$C_p$", title="RAE2822, Mach 0.729, 2.31°")
    axis.legend(frameon=False)
    figure.savefig(OUT / "validation-airfoil-pressure.png", dpi=110)


def draw_far_field(rows: list[dict]) -> None:
    """Lift against 1/distance, ours with and without vortex, and the reference solver's."""
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    coarse = [r for r in rows if r["case"].startswith("RAE2822") and r["nodes"] == "243 x 43"]
    coarse = [r for r in coarse if "M 0.73" not in r["case"]]
    for label, vortex in (("ours, vortex", True), ("ours, no vortex", False)):
        chosen = [r for r in coarse if ("no vortex" not in r["case"]) == vortex]
        points = sorted((1 / r["far_field_chords"], r["lift"]) for r in chosen)
        axis.plot(*zip(*points, strict=True), "o-", label=label, ms=4)
    theirs = [r for r in coarse if r["reference"]["lift"] and "no vortex" not in r["case"]]
    points = sorted((1 / r["far_field_chords"], r["reference"]["lift"]) for r in theirs)
    axis.plot(*zip(*points, strict=True), "s--", label="reference solver, vortex", ms=4)
    axis.set(xlabel="1 / distance of the far field, 1/chords", ylabel="$C_L$", xlim=(0, None))
    axis.set_title("RAE2822 on 243 × 43 nodes: lift and the far field")
    axis.legend(frameon=False)
    figure.savefig(OUT / "validation-airfoil-far-field.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes, one core each")
    workers = parser.parse_args().workers
    OUT.mkdir(exist_ok=True)
    mesh = c_mesh(rae2822())
    quality = mesh_quality(mesh)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=torch.set_num_threads,
        initargs=(1,),
    )
    with pool:
        samples = [(10, k) for k in range(4)] + [(15, k) for k in range(2)]
        compared = pool.map(fixture_flow, samples)
        solved = pool.map(solve, cases())
        drawn = {
            bumps: pool.map(random_flow, [(bumps, seed) for seed in range(RANDOM_SHAPES)])
            for bumps in (10, 15)
        }
        fixtures, pictures = (list(part) for part in zip(*compared, strict=True))
        rows, curves = (list(part) for part in zip(*solved, strict=True))
        summaries = [summary(bumps, list(flows)) for bumps, flows in drawn.items()]
    figure = plt.figure(figsize=(16, 4), layout="constrained")
    draw_mesh(figure, mesh, views_of(mesh))
    figure.savefig(OUT / "validation-airfoil-mesh.png", dpi=110)
    draw_fixtures(pictures)
    base = zip(rows, curves, strict=True)
    draw_pressure({row["nodes"]: curve for row, curve in base if row["case"] == "RAE2822"})
    draw_far_field(rows)
    report = {
        "criteria": criteria(rows, fixtures),
        "far_field_at_infinity": far_field_limits(rows),
        "flows": rows,
        "reference_flows": fixtures,
        "random_shapes": summaries,
        "mesh": {
            "least_area": quality.least_area.item(),
            "largest_cosine_between_sides": quality.most_skew.item(),
            "largest_ratio_of_neighbouring_areas": quality.most_growth.item(),
        },
        "processes": workers,
        "torch": torch.__version__,
    }
    (OUT / "validation-airfoil.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
