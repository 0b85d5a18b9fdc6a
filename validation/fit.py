"""Which networks are held back by their training, and which by the number of samples?

    python validation/fit.py

For every finished run of Table 1: the training loss of the epoch that was chosen, the mean test
error, both relative L1 errors in percent, and the optimiser's steps up to that epoch. Where the two
are alike, the network fits its samples no better than others: steps, rates and the noise of picking
an epoch decide. Where the test error is much larger, the samples are learnt, and what the network
makes of that elsewhere decides. (The Galerkin transformer's loss is another one, and left out.)

Writes `results/validation-fit.json`.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

from torchcno.paper.published import COMPARED, PROBLEM_TITLES
from torchcno.paper.records import CURVE, Record
from torchcno.paper.results import Results
from torchcno.paper.studies import BUDGETS, planned

RESULTS = Path(__file__).parents[1] / "results"


def fit(run: Record) -> dict[str, Any] | None:
    """Steps, training loss and test error of a run; None where its loss is no relative L1 error."""
    config, curve = run.config, run.curve()
    if config is None or curve is None or config.train.loss != "relative-l1":
        return None
    epochs = [dict(zip(CURVE, row, strict=True)) for row in curve.tolist()]
    chosen = next(row for row in epochs if row["epoch"] == run["best_epoch"])
    test = run["errors"]["test"]["relative_l1_mean_percent"]["normalized"]
    loss = 100 * chosen["train_loss"]
    samples = config.train.samples or config.problem.samples["train"]
    return {
        "steps": run["best_epoch"] * (samples // config.train.batch_size),
        "training_loss_percent": round(loss, 4),
        "test_error_percent": round(test, 4),
        "test_over_training": round(test / loss, 3),
    }


def main() -> None:
    found, results = {}, Results(RESULTS)
    for problem, model in product(PROBLEM_TITLES, COMPARED):
        run = results.record(planned(BUDGETS["paper"], problem, model))
        if run is not None and (measured := fit(run)):
            found[run.name] = measured
            print(f"{run.name:45}", *(f"{key} {value:<8}" for key, value in measured.items()))
    path = RESULTS / "validation-fit.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
