"""What a run of the CNO takes per step on a GPU: `python benchmarks/run_speed.py OUT.json`.

A step by itself, with AdamW and Muon, in float16 and TF32; and whole runs by the preset `best` on
random fields, with what is around a step: batches, symmetries, averaging, evaluation.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from torchcno.arithmetic import FIELDS, LOSS_FACTORS, Precision, arithmetic
from torchcno.runs.config import RunConfig
from torchcno.runs.presets import build_model
from torchcno.training.folder import TrainingFolder
from torchcno.training.loop import Epoch, Member, fit_together
from torchcno.training.losses import LOSSES
from torchcno.training.optimizers import make_optimizer
from torchcno.training.pairs import MixedPrecision, Pairs
from torchcno.training.step import graphed_step

CALLS = 150
EPOCHS = 31  # evaluated every ten
STEADY = slice(11, 30)  # of these epochs the mean is taken
DEVICE = torch.device("cuda")


def milliseconds(work: Callable[[], object]) -> float:
    for _ in range(10):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / CALLS


def time_step(precision: Precision, optimizer: str) -> float:
    with arithmetic(precision):
        network = build_model("cno", "navier-stokes", preset="best").to(DEVICE).train()
        moves = make_optimizer(optimizer, network, 1e-4, 1e-6, DEVICE)
        trained = MixedPrecision(network, FIELDS.get(precision))
        factor = LOSS_FACTORS.get(precision, 1.0)
        step = graphed_step(trained, moves, LOSSES["relative-l1"], factor)
        batch = [torch.rand(32, 1, 64, 64, device=DEVICE) for _ in range(2)]
        return milliseconds(lambda: step(*batch))


def time_run(problem: str, members: int = 1) -> dict[str, float]:
    """Of a run by `best`, or of several members of it together: a step is one of all of them."""
    run = RunConfig.resolve(problem, "cno")
    recipe = replace(run.train, epochs=EPOCHS)
    samples = run.problem.samples["train"]
    train, val = (
        Pairs(*(torch.rand(n, 1, 64, 64) for _ in range(2)))
        for n in (samples, run.problem.samples["val"])
    )
    epochs: list[Epoch] = []

    def note(number: int, epoch: Epoch) -> None:
        if number == 0:
            epochs.append(epoch)

    with tempfile.TemporaryDirectory() as name:
        crew = [
            Member(
                build_model("cno", problem, preset="best"),
                TrainingFolder(Path(name) / str(seed)),
                seed,
            )
            for seed in range(members)
        ]
        fit_together(crew, train, val, recipe, on_epoch=note)
    steps = samples // recipe.batch_size
    bare = sorted(members * epoch.seconds for epoch in epochs[2:] if epoch.validation_error is None)
    steady = [members * epoch.seconds for epoch in epochs[STEADY]]
    return {
        "ms_per_step": 1e3 * bare[len(bare) // 2] / steps,
        "ms_per_step_all_included": 1e3 * sum(steady) / len(steady) / steps,
        "first_epoch_s": members * epochs[0].seconds,
    }


def main() -> None:
    rows: dict[str, object] = {
        f"step {precision} {optimizer} best": time_step(precision, optimizer)
        for precision in ("fp16-mixed", "tf32")
        for optimizer in ("adamw", "muon")
    }
    for problem in ("navier-stokes", "allen-cahn"):
        rows[f"run {problem}"] = time_run(problem)
    text = json.dumps(rows, indent=1)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
