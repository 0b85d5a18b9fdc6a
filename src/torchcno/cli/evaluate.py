"""`cno evaluate`: the errors of a trained run."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from torchcno.cli.arguments import parse, parser_of
from torchcno.cli.terminal import error_table
from torchcno.experiments.evaluate import evaluate_run, save_evaluations
from torchcno.problems.problem import SPLITS


def main(arguments: Sequence[str]) -> None:
    """Evaluate, print the errors and, if asked, save every sample."""
    parser = parser_of(
        "evaluate RUN [--split SPLIT ...] [--resolutions N,N,...] [options]",
        "Relative errors of a trained run, in and out of distribution, at any resolution.",
        """
        cno evaluate runs/p1
        cno evaluate runs/p1 --split ood --resolutions 32,64,128
        cno evaluate runs/p1 --samples 16 --save predictions.nc
        """,
    )
    parser.add_argument("run", type=Path, help="the run's folder")
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
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    given = parse(parser, arguments)
    evaluations = evaluate_run(
        given.run,
        given.split or ("test", "ood"),
        whole_numbers(given.resolutions or ""),
        given.samples,
        given.device,
    )
    Console().print(error_table({f"{e.split} {e.resolution}²": e.summary for e in evaluations}))
    if given.save:
        save_evaluations(evaluations, given.save)
        print(f"Every sample is in {given.save}.")


def whole_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "32,64,128"."""
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise ValueError(f"--resolutions is {text!r}; give numbers such as 32,64,128.") from None
