"""In which wavenumbers are trained networks wrong?

    python validation/bands.py [poisson]

For every finished run of Table 1, in octaves of the largest wavenumber of an axis: the error over
the truth, where 1 is as good as zero, and what share of the squared error lies there. Of the first
sample of each split; the spectra of a run, where a study made them, are of all of the test set.

Writes `results/validation-bands-PROBLEM.json`.
"""

import argparse
import json
from itertools import product
from pathlib import Path

from torchcno.evaluation.spectra import error_by_band
from torchcno.paper.published import COMPARED, PROBLEM_TITLES
from torchcno.paper.records import Record
from torchcno.paper.results import Results
from torchcno.paper.studies import BUDGETS, planned
from torchcno.runs.evaluate import EVALUATED

RESULTS = Path(__file__).parents[1] / "results"
# Samples are kept in half precision. Where the truth is no more than its rounding, an error has
# nothing to be compared with.
ROUNDING = 10.0


def bands(run: Record, split: str) -> dict[str, dict[str, float]] | None:
    """Error over truth and share of the error, octave by octave; None where no samples are kept."""
    examples, config = run.examples(split), run.config
    if examples is None or config is None:
        return None
    layout = config.problem.grid(config.resolution).layout
    return {
        f"{band.low} to {band.high - 1}": {
            "relative": round(band.relative, 4),
            "share": round(band.share, 4),
        }
        for band in error_by_band(examples.prediction, examples.output[:1], layout)
        if band.relative < ROUNDING
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", nargs="?", default="poisson", choices=PROBLEM_TITLES)
    problem = parser.parse_args().problem
    found, results = {}, Results(RESULTS)
    for budget, model in product(("paper", "best"), COMPARED):
        run = results.record(planned(BUDGETS[budget], problem, model))
        if run is not None:
            found[run.name] = {split: bands(run, split) for split in EVALUATED}
            for split, octaves in found[run.name].items():
                words = (f"{k}: {octave['relative']}" for k, octave in (octaves or {}).items())
                print(f"{run.name}, {split}", *words, sep="   ")
    path = RESULTS / f"validation-bands-{problem}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
