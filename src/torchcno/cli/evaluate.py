"""`cno evaluate`: the errors of trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from torchcno.cli.arguments import (
    PICTURES,
    Data,
    Device,
    Json,
    Numbers,
    Runs,
    Strings,
    check_target,
    describe,
    refuse_existing,
)
from torchcno.cli.terminal import show_errors, show_table

if TYPE_CHECKING:
    from torchcno.evaluation.resolution import Evaluation
    from torchcno.runs.evaluate import RunErrors
    from torchcno.runs.rollout_errors import RolloutReport


def evaluate(
    runs: Runs,
    /,
    *,
    split: Annotated[
        Strings, describe("train, val, test or ood; may be repeated", "test, ood")
    ] = (),
    resolutions: Annotated[Numbers, describe("points per axis to evaluate on", "as trained")] = (),
    samples: Annotated[int | None, describe("samples per split", "all of them")] = None,
    save: Annotated[
        Path | None, describe("write samples and predictions to this NetCDF file", "", "FILE")
    ] = None,
    json: Json = None,
    plot: Annotated[Path | None, describe("draw error against resolution", "", "FILE")] = None,
    spectra: Annotated[Path | None, describe("draw spectra of one split", "", "FILE")] = None,
    picture: Annotated[Path | None, describe("draw samples of one split", "", "FILE")] = None,
    rollout: Annotated[
        bool, describe("roll out runs on trajectories: errors against time, picture, animation")
    ] = False,
    until: Annotated[
        float | None, describe("end of the rollout; a benchmark's may go beyond the data", "")
    ] = None,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Measure the errors of trained runs, in and out of distribution.

    The data may have any resolution. Several runs are shown side by side.

    examples:
      cno evaluate runs/flow --rollout --until 2
      cno evaluate runs/p1
      cno evaluate runs/p1 --split ood --resolutions 32,64,128
      cno evaluate runs/p1 --samples 16 --save predictions.nc --picture samples.png
      cno evaluate runs/cno runs/fno --split test --resolutions 32,48,64,96,128 \\
                   --json errors.json --plot errors.png --spectra spectra.png
    """
    from torchcno.disk import write_json
    from torchcno.runs.evaluate import EVALUATED, evaluate_runs, save_evaluations
    from torchcno.runs.folder import read_config

    if not runs:
        raise ValueError("name the folder of a run, or of several.")
    if rollout:
        if resolutions or save or plot or spectra or picture:
            raise ValueError(
                "--rollout draws to the folder of each run; leave --resolutions, --save, --plot, "
                "--spectra and --picture out."
            )
        check_target(json, [".json"])
        show_rollouts(runs, split, samples, until, device, data, json)
        return
    if until is not None:
        raise ValueError("--until is the end of a rollout; add --rollout, or leave it out.")
    if (save or picture) and len(runs) > 1:
        raise ValueError("--save and --picture are for one run; evaluate the others by themselves.")
    for target in (plot, spectra, picture):
        check_target(target, PICTURES)
    check_target(save, [".nc"])
    check_target(json, [".json"])
    if save:
        refuse_existing(save)
    if (plot or spectra) and resolutions:
        for run in runs:
            training = read_config(run).resolution
            if training not in resolutions:
                raise ValueError(
                    f"--plot and --spectra need the training resolution; add {training}, that of "
                    f"{run}, to --resolutions."
                )
    splits = split or EVALUATED
    found = evaluate_runs(runs, splits, resolutions, samples, device, data)
    show_runs(found, splits[0])
    if save:
        save_evaluations(found[0].evaluations, save)
        print(f"Every sample is in {save}.")
    if json:
        write_json({one.name: one.as_dict() for one in found}, json)
        print(f"All statistics are in {json}.")
    if plot:
        from torchcno.runs.pictures.drawing import save_figure
        from torchcno.runs.pictures.equivalence import draw_resolutions

        save_figure(draw_resolutions([one.curve(splits[0]) for one in found]), plot)
        print(f"Drawn to {plot}.")
    if spectra:
        from torchcno.runs.pictures.drawing import save_figure
        from torchcno.runs.pictures.equivalence import draw_run_spectra

        save_figure(draw_run_spectra(found, splits[0]), spectra)
        print(f"Drawn to {spectra}.")
    if picture:
        from torchcno.runs.pictures.drawing import save_figure
        from torchcno.runs.pictures.fields import draw_predictions

        save_figure(draw_predictions(found[0].evaluations[0]), picture)
        print(f"Drawn to {picture}.")


def show_rollouts(
    runs: Sequence[Path],
    split: Sequence[str],
    samples: int | None,
    until: float | None,
    device: str,
    data: Path | None,
    json: Path | None,
) -> None:
    """Roll out each run: a table, and numbers, a picture and an animation in its folder."""
    from torchcno.disk import write_json
    from torchcno.runs.folder import RunFolder
    from torchcno.runs.pictures.drawing import save_figure
    from torchcno.runs.pictures.rollout import draw_rollout_errors, draw_strip, write_animation
    from torchcno.runs.rollout_errors import evaluate_rollout

    if len(split) > 1:
        raise ValueError("--rollout takes one split; give --split once.")
    reports = []
    for run in runs:
        report = evaluate_rollout(run, until, split[0] if split else None, samples, device, data)
        file = RunFolder(run).rollout_file
        write_json(report.as_dict(), file)
        curves, strip, film = (file.with_name(f"rollout{end}") for end in (
            ".png", "-states.png", ".gif",
        ))  # fmt: skip
        save_figure(draw_rollout_errors(report.errors, report.trained_until), curves)
        save_figure(draw_strip(report), strip)
        write_animation(report, film)
        show_rollout(report)
        print(f"Numbers, pictures and the animation: {file}, {curves}, {strip}, {film}.")
        reports.append(report)
    if json:
        write_json({report.name: report.as_dict() for report in reports}, json)
        print(f"All numbers are in {json}.")


def show_rollout(report: RolloutReport) -> None:
    """Errors at a few times, a row per predictor, and how long each follows the truth."""
    times = report.truth.times.tolist()
    last = len(times) - 1
    numbers = sorted({max(1, round(last * part)) for part in (0.25, 0.5, 0.75, 1)})
    rows = [
        (
            one.name,
            *(f"{100 * one.metrics['relative_l1'][j]:.3g} %" for j in numbers),
            f"{one.metrics['vrmse'][-1]:.3g}",
            f"{'≥ ' if one.lasting > 0.5 else ''}{one.correlated_until:.3g}",
            "–" if one.seconds is None else f"{one.seconds:.3g}",
        )
        for one in report.errors
        if one.name != "truth"
    ]
    heads = ["", *(f"t = {times[j]:.3g}" for j in numbers), "VRMSE", "until", "seconds"]
    title = (
        f"{report.name}: relative L1 errors of {len(report.truth)} {report.split} rollouts against "
        "time, medians; the VRMSE at the end; until when the correlation is 0.9 or more"
    )
    show_table(title, heads, rows)


def points(evaluation: Evaluation) -> str:
    """The grid of an evaluation: 64², or 48 × 64."""
    shape = evaluation.fields.grid.shape
    if len(shape) > 1 and len(set(shape)) == 1:
        return f"{shape[0]}{'²³'[len(shape) - 2]}"
    return " × ".join(map(str, shape))


def show_runs(runs: Sequence[RunErrors], split: str) -> None:
    """Every error, and the scaled L1 error at each resolution over that of training."""
    show_errors(
        {
            f"{run.name + ' ' if len(runs) > 1 else ''}{e.split} {points(e)}": e.summary
            for run in runs
            for e in run.evaluations
        }
    )
    for run in runs:
        for resolution, reason in run.refused.items():
            print(f"{run.name} does not take {resolution} points: {reason}")
    curves = {run.name: run.curve(split).relative for run in runs}
    if any(len(relative) > 1 for relative in curves.values()):
        resolutions = sorted({n for relative in curves.values() for n in relative})
        rows = (
            (name, *(f"{relative[n]:.3f}" if n in relative else "–" for n in resolutions))
            for name, relative in curves.items()
        )
        title = f"scaled L1 on {split}, over that at the training resolution"
        show_table(title, ["", *map(str, resolutions)], rows)
