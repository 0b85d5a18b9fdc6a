"""`cno evaluate`: the errors of trained runs."""

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table

from torchcno.cli.arguments import PICTURES, check_target, parse, parser_of
from torchcno.cli.terminal import error_table, table
from torchcno.disk import write_json
from torchcno.problems.problem import SPLITS
from torchcno.runs.evaluate import EVALUATED, RunErrors, evaluate_runs, save_evaluations
from torchcno.runs.folder import read_config


def main(arguments: Sequence[str]) -> None:
    """Evaluate, print the errors and, if asked, save and draw them."""
    given = parse(evaluate_parser(), arguments)
    if given.save and len(given.runs) > 1:
        raise ValueError("--save is for one run; evaluate the others by themselves.")
    for picture in (given.plot, given.spectra):
        check_target(picture, PICTURES)
    check_target(given.save, [".nc"])
    check_target(given.json)
    splits = given.split or EVALUATED
    resolutions = whole_numbers(given.resolutions or "")
    if (given.plot or given.spectra) and resolutions:
        refuse_other_resolutions(given.runs, resolutions)
    found = evaluate_runs(given.runs, splits, resolutions, given.samples, given.device)
    report(found, splits[0], Console())
    if given.save:
        save_evaluations(found[0].evaluations, given.save)
        print(f"Every sample is in {given.save}.")
    if given.json:
        write_json({run.name: run.as_dict() for run in found}, given.json)
        print(f"All statistics are in {given.json}.")
    if given.plot:
        from torchcno.runs.pictures.equivalence import draw_resolutions

        draw_resolutions([run.curve(splits[0]) for run in found]).savefig(given.plot, dpi=150)
        print(f"Drawn to {given.plot}.")
    if given.spectra:
        from torchcno.runs.pictures.equivalence import draw_run_spectra

        draw_run_spectra(found, splits[0]).savefig(given.spectra, dpi=150)
        print(f"Drawn to {given.spectra}.")


def evaluate_parser() -> ArgumentParser:
    """The parser of `cno evaluate`."""
    parser = parser_of(
        "evaluate RUN [RUN ...] [--split SPLIT ...] [--resolutions N,N,...] [options]",
        "Relative errors of trained runs, in and out of distribution, at any resolution.",
        """
        cno evaluate runs/p1
        cno evaluate runs/p1 --split ood --resolutions 32,64,128
        cno evaluate runs/p1 --samples 16 --save predictions.nc
        cno evaluate runs/cno runs/fno runs/unet --split test --resolutions 32,48,64,96,128 \\
                     --json resolution.json --plot resolution.png --spectra spectra.png
        """,
    )
    parser.add_argument("runs", type=Path, nargs="+", help="the runs' folders")
    parser.add_argument(
        "--split",
        action="append",
        help=f"{', '.join(SPLITS)}; may be repeated (default: test and ood)",
    )
    parser.add_argument("--resolutions", type=str, help="points an axis (default: as in training)")
    parser.add_argument(
        "--samples", type=int | None, help="of each split (default: the paper's number)"
    )
    parser.add_argument(
        "--save", type=Path | None, help="fields and errors of every sample, as NetCDF"
    )
    parser.add_argument("--json", type=Path | None, help="a file for all statistics")
    parser.add_argument(
        "--plot", type=Path | None, help="a picture: error against resolution, on the first split"
    )
    parser.add_argument(
        "--spectra",
        type=Path | None,
        help="a picture: spectra of truth and predictions on the first split, at the training "
        "resolution",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return parser


def report(runs: Sequence[RunErrors], split: str, console: Console) -> None:
    """The tables: every error, and how the published one changes with the resolution."""
    console.print(
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
            console.print(f"{run.name} does not take {resolution} points: {reason}", markup=False)
    if any(len(run.curve(split).relative) > 1 for run in runs):
        console.print(change_table(runs, split))


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
    for run in runs:
        training = read_config(run).resolution
        if training not in resolutions:
            raise ValueError(
                f"--plot and --spectra need the training resolution; add {training}, that of "
                f"{run}, to --resolutions."
            )


def whole_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "32,64,128"."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ValueError(f"--resolutions is {text!r}; give numbers such as 32,64,128.") from None
