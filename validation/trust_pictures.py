"""The pictures of docs/trust.md.

    python validation/trust_pictures.py [--run poisson] [--data FOLDER] [--out docs/pictures]

trust-bands.png        predictions of test inputs, their half-widths and their errors
trust-page.png         the sections of `cno audit`
trust-scores.png       scores of inputs in and out of distribution
trust-corrections.png  errors after k iterations, from results/validation-corrections.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from torchcno.disk import write_atomically
from torchcno.runs.audit import audit_trust
from torchcno.runs.folder import RunFolder
from torchcno.runs.loading import load_split
from torchcno.runs.pictures.drawing import COLOURS, few_colours, panels, png, styled, tidy
from torchcno.runs.pictures.trust import draw_bands, draw_page, draw_scores
from torchcno.runs.pretrained import find_run
from torchcno.runs.sections import Detection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="navier-stokes")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument(
        "--corrections", type=Path, default=Path("results/validation-corrections.json")
    )
    options = parser.parse_args()
    folder = RunFolder(find_run(options.run))
    page = audit_trust(folder.path, samples=options.samples, device="cpu", data=options.data)
    config = folder.config_here(options.data)
    fields = load_split(config, "test", 2)
    found = folder.operator().predict(fields.inputs, confidence=0.9)
    pictures = {
        "bands": draw_bands(fields.inputs, found, fields.outputs),
        "page": draw_page(page),
        "scores": draw_detection(page.detection),
    }
    if options.corrections.exists():
        pictures["corrections"] = draw_corrections(json.loads(options.corrections.read_text()))
    for name, figure in pictures.items():
        path = options.out / f"trust-{name}.png"
        write_atomically(path, few_colours(png(figure, dpi=100)))
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


@styled
def draw_detection(found: Detection) -> Figure:
    figure, (axes,) = panels(1, width=5.0)
    draw_scores(axes, found)
    return figure


@styled
def draw_corrections(report: dict[str, Any]) -> Figure:
    """Errors after k iterations, from the network's answer and from zero."""
    iterated = [one for one in report["problems"] if "solver_error" in one]
    figure, all_axes = panels(len(iterated))
    for axes, one in zip(all_axes, iterated, strict=True):
        k = [row["iterations"] for row in one["rows"]]
        for colour, key, label in ((COLOURS[1], "error", "from the network"),
                                   (COLOURS[2], "error_from_zero", "from zero")):  # fmt: skip
            errors = torch.tensor([row[key] for row in one["rows"]])
            axes.semilogy(k, 100 * errors, "o-", ms=4, color=colour, label=label)
        if one["solver_error"] > 1e-5:
            axes.axhline(100 * one["solver_error"], color=COLOURS[0], ls=":",
                         label="solver on the same grid")  # fmt: skip
        axes.set(title=one["problem"], xlabel="iterations", ylabel="error, percent")
        tidy(axes)
    return figure


if __name__ == "__main__":
    main()
