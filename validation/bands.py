"""In which wavenumbers are trained networks wrong?

    python validation/bands.py [poisson] [--budget paper]

The error of every finished run of a problem over the truth, in octaves of the largest wavenumber of
an axis: 1 is as good as zero. Of the two samples that `examples.npz` keeps of each split;
`spectra.npz` of a run, where a study made one, has all of the test set. Beyond what the truth
consists of no ratio is given.

Writes `results/validation-bands-PROBLEM.json`.
"""

import argparse
import json
from pathlib import Path

from torchcno.evaluation.spectra import error_by_band
from torchcno.experiments.evidence import read_examples
from torchcno.experiments.paper import COMPARED
from torchcno.experiments.run_config import read_config
from torchcno.experiments.studies import BUDGETS, planned
from torchcno.problems import PROBLEMS

RESULTS = Path(__file__).parents[1] / "results"
SPLITS = ("test", "ood")
NOTHING = 10.0  # an error so many times the truth says that there is no truth


def bands(folder: Path, split: str) -> dict[str, float] | None:
    """The relative error in each octave; None where no samples are kept."""
    examples = read_examples(folder, split)
    if examples is None:
        return None
    truth, prediction = examples.output.double(), examples.prediction.double()
    config = read_config(folder)
    layout = PROBLEMS[config.problem.name]().grid(config.resolution).layout
    return {
        f"{band.low} to {band.high - 1}": round(band.relative, 4)
        for band in error_by_band(prediction, truth, layout)
        if band.relative < NOTHING
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", nargs="?", default="poisson", choices=PROBLEMS)
    parser.add_argument("--budget", default="paper", choices=BUDGETS)
    given = parser.parse_args()
    found = {}
    for model in COMPARED:
        folder = RESULTS / "runs" / planned(BUDGETS[given.budget], given.problem, model).name
        if (folder / "result.json").exists():
            found[folder.name] = {split: bands(folder, split) for split in SPLITS}
            print(folder.name, *(f"\n  {split} {found[folder.name][split]}" for split in SPLITS))
    path = RESULTS / f"validation-bands-{given.problem}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
