"""What the noise of batch statistics costs a trained CNO.

    python validation/batch_statistics.py [poisson|navier-stokes] [--epochs 12] [--rate 1e-5]

Takes the network that comes with the package. Its loss on training batches is measured with the
statistics of each batch, as in training, and with those that it keeps. Then it is trained on, with
either, and its errors are measured again. Writes `results/validation-statistics-PROBLEM.json`.
Poisson takes two cores about 20 minutes.
"""

import argparse
import copy
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcno import PROBLEMS, load_pretrained
from torchcno.data.dataset import load
from torchcno.disk import write_json
from torchcno.metrics import relative_l1
from torchcno.runs.pretrained import pretrained
from torchcno.training import Hardware, Pairs, Recipe, fit
from torchcno.training.losses import relative_l1_loss

MEASURED = 256  # training samples whose loss is measured


@torch.no_grad()
def loss_percent(network: nn.Module, pairs: Pairs, batch_size: int) -> float:
    """The mean loss of batches, in the mode that the network is in."""
    batches = zip(pairs.inputs.split(batch_size), pairs.targets.split(batch_size), strict=True)
    losses = [relative_l1_loss(network(inputs), targets) for inputs, targets in batches]
    return 100 * torch.stack(losses).mean().item()


@torch.no_grad()
def errors_percent(network: nn.Module, pairs: Pairs) -> dict[str, float]:
    """The median and the mean of the samples' relative errors."""
    network.eval()
    batches = zip(pairs.inputs.split(32), pairs.targets.split(32), strict=True)
    errors = torch.cat([relative_l1(network(inputs), targets) for inputs, targets in batches])
    return {"median": 100 * errors.median().item(), "mean": 100 * errors.mean().item()}


def measured(network: nn.Module, sets: dict[str, Pairs], batch_size: int) -> dict[str, Any]:
    """Losses of the training set with either statistics, and errors of the other sets."""
    some = sets["train"].first(MEASURED)
    noisy = copy.deepcopy(network).train()  # it forgets its own statistics
    return {
        "loss_with_statistics_of_the_batch_percent": loss_percent(noisy, some, batch_size),
        "loss_with_its_own_statistics_percent": loss_percent(network.eval(), some, batch_size),
        **{split: errors_percent(network, sets[split]) for split in ("test", "ood")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", nargs="?", default="poisson", choices=pretrained())
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    operator, problem = load_pretrained(given.problem), PROBLEMS[given.problem]()
    scale = operator.normalization
    sets = {
        split: Pairs(scale.normalize_inputs(f.inputs), scale.normalize_outputs(f.outputs))
        for split in ("train", "val", "test", "ood")
        for f in [load(problem, split)]
    }
    recipe = Recipe(
        epochs=given.epochs,
        learning_rate=given.rate,
        schedule="cosine",
        warmup=0.2,
        averaging_half_life=1,
        patience=None,
        evaluate_every=given.epochs,  # the last network is the one that is kept
        precision="32",
    )
    size = recipe.batch_size
    rows = {"as it comes": measured(operator.network, sets, size)}
    path = given.out / f"validation-statistics-{given.problem}.json"
    for name, part in (("trained on, statistics of the batch", 0.0), ("trained on, frozen", 0.999)):
        network, one = copy.deepcopy(operator.network), replace(recipe, frozen_statistics=part)
        with tempfile.TemporaryDirectory() as folder:
            hardware = Hardware(given.device)
            fit(network, sets["train"], sets["val"], one, Path(folder, "run"), hardware=hardware)
        rows[name] = {**measured(network, sets, size), "recipe": asdict(one)}
        write_json(rows, path)
        print(name, rows[name], flush=True)


if __name__ == "__main__":
    main()
