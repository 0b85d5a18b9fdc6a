"""`cno evaluate`: the errors of trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from torchcno.cli.arguments import (
    PICTURES,
    Device,
    Json,
    Numbers,
    Runs,
    Strings,
    check_target,
    describe,
)
from torchcno.cli.terminal import error_table, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from torchcno.runs.evaluate import RunErrors


def evaluate(
    runs: Runs,
    /,
    *,
    split: Annotated[Strings, describe("train, val, test or ood; repeatable", "test and ood")] = (),
    resolutions: Annotated[Numbers, describe("points per axis", "as in training")] = (),
    samples: Annotated[int | None, describe("samples per split", "the paper's number")] = None,
    save: Annotated[
        Path | None, describe("write every sample to this NetCDF file", "no file")
    ] = None,
    json: Json = None,
    plot: Annotated[Path | None, describe("draw error against resolution", "no picture")] = None,
    spectra: Annotated[Path | None, describe("draw spectra of one split", "no picture")] = None,
    device: Device = "auto",
) -> None:
    """Measure the errors of trained runs, in and out of distribution.

    The data may have any resolution. Several runs are shown side by side.

    examples:
      cno evaluate runs/p1
      cno evaluate runs/p1 --split ood --resolutions 32,64,128
      cno evaluate runs/p1 --samples 16 --save predictions.nc
      cno evaluate runs/cno runs/fno --split test --resolutions 32,48,64,96,128 \\
                   --json errors.json --plot errors.png --spectra spectra.png
    """
    from torchcno.disk import write_json
    from torchcno.runs.evaluate import EVALUATED, evaluate_runs, save_evaluations

    if not runs:
        raise ValueError("name the folder of a run, or of several.")
    if save and len(runs) > 1:
        raise ValueError("--save is for one run; evaluate the others by themselves.")
    for picture in (plot, spectra):
        check_target(picture, PICTURES)
    check_target(save, [".nc"])
    check_target(json)
    if (plot or spectra) and resolutions:
        refuse_other_resolutions(runs, resolutions)
    splits = split or EVALUATED
    found = evaluate_runs(runs, splits, resolutions, samples, device)
    show_errors(found, splits[0])
    if save:
        save_evaluations(found[0].evaluations, save)
        print(f"Every sample is in {save}.")
    if json:
        write_json({run.name: run.as_dict() for run in found}, json)
        print(f"All statistics are in {json}.")
    if plot:
        from torchcno.runs.pictures.equivalence import draw_resolutions

        draw_resolutions([run.curve(splits[0]) for run in found]).savefig(plot, dpi=150)
        print(f"Drawn to {plot}.")
    if spectra:
        from torchcno.runs.pictures.equivalence import draw_run_spectra

        draw_run_spectra(found, splits[0]).savefig(spectra, dpi=150)
        print(f"Drawn to {spectra}.")


def show_errors(runs: Sequence[RunErrors], split: str) -> None:
    """The tables: every error, and how the published one changes with the resolution."""
    show(
        error_table(
            {
                f"{run.name + ' ' if len(runs) > 1 else ''}{e.split} {e.resolution}²": e.summary
                for run in runs
                for e in run.evaluations
            }
        )
    )
    for run in runs:
        for resolution, reason in run.refused.items():
            show(f"{run.name} does not take {resolution} points: {reason}")
    if any(len(run.curve(split).relative) > 1 for run in runs):
        show(change_table(runs, split))


def change_table(runs: Sequence[RunErrors], split: str) -> Table:
    """The scaled L1 error at each resolution over that at the training resolution."""
    curves = [run.curve(split) for run in runs]
    resolutions = sorted({n for curve in curves for n in curve.relative})
    rows = (
        (
            curve.name,
            *(f"{curve.relative[n]:.3f}" if n in curve.relative else "–" for n in resolutions),
        )
        for curve in curves
    )
    title = f"scaled L1 on {split}, over that at the training resolution"
    return table(title, ["", *map(str, resolutions)], rows)


def refuse_other_resolutions(runs: Sequence[Path], resolutions: Sequence[int]) -> None:
    """Refuse pictures of runs that are not to be evaluated at their training resolutions."""
    from torchcno.runs.folder import read_config

    for run in runs:
        training = read_config(run).resolution
        if training not in resolutions:
            raise ValueError(
                f"--plot and --spectra need the training resolution; add {training}, that of "
                f"{run}, to --resolutions."
            )
