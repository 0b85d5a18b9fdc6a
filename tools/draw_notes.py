"""The figures of docs/notes, from results/: python tools/draw_notes.py"""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from torchcno.paper.records import Record, read_records
from torchcno.runs.pictures.drawing import COLOURS, curves, panels, png, styled, tidy

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "notes" / "pictures"
PROBLEMS = (
    *("poisson", "wave", "smooth-transport", "discontinuous-transport"),
    *("allen-cahn", "navier-stokes", "darcy"),
)


def schedule(runs: dict[str, Record]) -> Figure:
    """Validation errors of a CNO on poisson against epochs, for two schedules."""
    names = {
        "× γ every 10 epochs (paper)": "poisson-cno-paper-0",
        "× γ every epoch": "poisson-cno-paper-0-rate-reduced-every-epoch",
    }
    lines = {}
    for label, name in names.items():
        curve = runs[name].curve()
        assert curve is not None
        known = np.isfinite(curve[:, 2])
        lines[label] = curve[known, 0].tolist(), (100 * curve[known, 2]).tolist()
    return curves(lines, "epoch", "validation error, percent")


@styled
def recipe(runs: dict[str, Record]) -> Figure:
    """Errors of the CNO by `paper` and by `best`, on every problem that has both."""
    figure, both = panels(2, width=4.4, height=3.0)
    for axes, split, title in zip(
        both, ("test", "ood"), ("test", "out of distribution"), strict=True
    ):
        for i, preset in enumerate(("paper", "best")):
            errors = [runs[f"{problem}-cno-{preset}-0"].error(split) for problem in PROBLEMS]
            axes.semilogx(errors, range(len(PROBLEMS)), "os"[i], color=COLOURS[i], label=preset)
        axes.set(yticks=range(len(PROBLEMS)), xlabel="median error, percent", title=title)
        axes.set_yticklabels(PROBLEMS if split == "test" else [""] * len(PROBLEMS))
        axes.invert_yaxis()
        tidy(axes, legend=split == "test")
    return figure


@styled
def open_points(runs: dict[str, Record]) -> Figure:
    """Test errors of runs that differ in one point, over that of the run by `paper`."""
    shown = {
        "FNO, poisson: rate reduced every epoch": "poisson-fno-every-epoch",
        "FNO, allen-cahn: squared loss": "allen-cahn-fno-paper-0-squared-loss",
        "FNO, allen-cahn: no last activation": "allen-cahn-fno-paper-0-no-last-activation",
        "FFNN, wave: norm before the last activation": "wave-ffnn-paper-0-norm-before",
        "FFNN, poisson: norm before the last activation": "poisson-ffnn-paper-0-norm-before",
        "DeepONet, wave: the authors' trunk": "wave-deeponet-paper-0-trunk-of-the-authors",
        "U-Net, poisson: patience 50": "poisson-unet-patience-50",
        "CNO, wave: patience 50": "wave-cno-patience-50",
        "CNO, poisson: patience 50": "poisson-cno-patience-50",
    }
    figure, (axes,) = panels(1, width=7.0, height=3.2)
    for i, trial in enumerate(map(runs.__getitem__, shown.values())):
        run = runs["-".join((trial["problem"], trial["model"], "paper-0"))]
        ratio = (trial.error("test") or np.nan) / (run.error("test") or np.nan)
        axes.semilogx([1, ratio], [i, i], color=COLOURS[0], lw=2)
        axes.plot(ratio, i, "o", color=COLOURS[0])
    axes.axvline(1, color="0.5", lw=0.8)
    axes.set(yticks=range(len(shown)), xlabel="test error over that of the run by `paper`")
    axes.set_yticklabels(list(shown))
    axes.invert_yaxis()
    tidy(axes)
    return figure


@styled
def linear(runs: dict[str, Record]) -> Figure:
    """A linear map, the CNO by `best` and the mean output, on new samples."""
    maps = json.loads((RESULTS / "validation-linear.json").read_text())
    shown = [problem for problem in PROBLEMS if problem in maps]
    figure, (axes,) = panels(1, width=6.6, height=3.0)
    errors = {
        "mean training output": [
            runs[f"{name}-cno-best-0"].mean_field_error("test", "physical") for name in shown
        ],
        "linear map": [
            maps[name]["errors"]["test"]["relative_l1_median_percent"]["physical"] for name in shown
        ],
        "CNO, best": [runs[f"{name}-cno-best-0"].error("test", "physical") for name in shown],
    }
    for (name, values), marker, colour in zip(errors.items(), "vos", COLOURS, strict=False):
        axes.semilogx(values, range(len(shown)), marker, color=colour, label=name)
    axes.set(yticks=range(len(shown)), xlabel="median test error of physical fields, percent")
    axes.set_yticklabels(shown)
    axes.invert_yaxis()
    tidy(axes)
    return figure


def modes(runs: dict[str, Record]) -> Figure:
    """What is lost of outputs when only the lowest Fourier modes are kept."""
    found = json.loads((RESULTS / "validation-modes.json").read_text())
    lines = {
        name: (one["curves"]["modes"], [100 * e for e in one["curves"]["mean"]])
        for name, one in found.items()
    }
    return curves(lines, "modes kept per axis", "mean error, percent")


@styled
def precision(runs: dict[str, Record]) -> Figure:
    """Test errors of short runs on poisson, by the way that a step is computed."""
    rows = json.loads((RESULTS / "validation-paths-poisson.json").read_text())["rows"]
    paths = list(dict.fromkeys(row["path"] for row in rows))
    figure, (axes,) = panels(1, width=6.0, height=0.5 + 0.4 * len(paths))
    for row in rows:
        place = paths.index(row["path"])
        axes.plot(row["test_error_percent"], place, "o", color=COLOURS[row["seed"] % len(COLOURS)])
    axes.set(
        yticks=range(len(paths)),
        xlabel="median test error, percent; a dot is a seed",
        xlim=(0, None),
    )
    axes.set_yticklabels(paths)
    axes.invert_yaxis()
    tidy(axes)
    return figure


FIGURES = (schedule, recipe, open_points, linear, modes, precision)


def main() -> None:
    """Draw all of them."""
    runs = {record.name: record for record in read_records(RESULTS)}
    PICTURES.mkdir(exist_ok=True)
    for draw in FIGURES:
        (PICTURES / f"{draw.__name__.replace('_', '-')}.png").write_bytes(png(draw(runs), dpi=110))


if __name__ == "__main__":
    main()
