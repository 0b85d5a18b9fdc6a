"""How far does a linear map come? Ridge regression from the training samples of each problem.

    python validation/linear.py [--problem wave ...] [--data FOLDER] [--out results]

The penalty is the one with the smallest median error on the validation set, as a network's
configuration is chosen. Writes `validation-linear.json`, problem by problem, with errors as
`result.json` has them; Table 1 of the report shows them beside the networks'. Makes the data that
is not there yet.
"""

import argparse
from pathlib import Path
from typing import Any

from torchcno.data.dataset import load
from torchcno.data.normalization import Normalization
from torchcno.disk import read_json, write_json
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.evaluation.linear import PENALTIES, linear_map
from torchcno.problems import PROBLEMS, SPLITS
from torchcno.problems.problem import Problem


def measure(problem: Problem, folder: Path | None) -> dict[str, Any]:
    """The errors of one problem, and the penalty."""
    sets = {split: load(problem, split, folder=folder) for split in SPLITS}
    train = sets.pop("train")
    scaling = Normalization.fit(train) if problem.normalized else Normalization.identity()

    predict = linear_map(train)

    def errors(split: str, penalty: float) -> dict[str, dict[str, float]]:
        fields = sets[split]
        prediction = predict(fields.inputs, penalty)
        return summary(sample_errors(prediction, fields, scaling, problem.mask))

    def median(penalty: float) -> float:
        return published_error(errors("val", penalty))

    penalty = min(PENALTIES, key=median)
    return {
        "samples": len(train),
        "penalty": penalty,
        "errors": {split: errors(split, penalty) for split in sets},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    path = given.out / "validation-linear.json"
    report = read_json(path) if path.exists() else {}
    for name in given.problem:
        report[name] = measure(PROBLEMS[name](), given.data)
        write_json(report, path)
        found = {
            split: round(published_error(errors), 3)
            for split, errors in report[name]["errors"].items()
        }
        print(name, found, f"penalty {report[name]['penalty']:g}", flush=True)


if __name__ == "__main__":
    main()
