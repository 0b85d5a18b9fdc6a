"""A run with all that has state: dropout, batch norm, complex weights, averaging, augmentation.

As a script, `python small_run.py FOLDER SEED SECONDS`: a run that rests between epochs, SECONDS in
all, is killed after random times of up to a third of that, at most a dozen times, each time going
on from its checkpoint; how often is printed: three times at least, however fast the machine.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcno.training import Epoch, Fit, Pairs, Recipe, fit, load_tensors


class SpectralFilter(nn.Module):
    """v̂ = w û with complex weights."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n // 2 + 1, dtype=torch.complex64))

    def forward(self, u: Tensor) -> Tensor:
        return torch.fft.irfft2(self.weight * torch.fft.rfft2(u.float()), s=u.shape[-2:])


def network(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.Dropout(0.1),
        nn.ReLU(),
        SpectralFilter(8),
        nn.Conv2d(width, 1, 1),
    )


def data(n: int, seed: int) -> Pairs:
    u = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return Pairs(u, (u + u.roll(1, -1) + u.roll(-1, -1)) / 3)


RECIPE = Recipe(
    epochs=8,
    batch_size=5,
    learning_rate=1e-2,
    schedule="cosine",
    warmup=0.2,
    averaging_half_life=1,
    frozen_statistics=0.4,
    augmentation="translations",
    evaluate_every=2,
    patience=None,
    checkpoint_every=0.02,
)


def rows(folder: Path) -> list[dict]:
    """The metrics, but for the time they took."""
    parsed = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("seconds", "check")} for row in parsed]


def assert_same_run(folder: Path, other: Path) -> None:
    """Metrics, weights and states of two runs are the same to the last bit."""
    assert rows(folder) == rows(other)
    weights = [(f / "model.safetensors").read_bytes() for f in (folder, other)]
    assert weights[0] == weights[1]
    states = [load_tensors(f / "checkpoint" / "state.safetensors")[0] for f in (folder, other)]
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


def run(folder: Path, resume: bool = False, rest: float = 0.0) -> Fit:
    torch.set_num_threads(1)
    train, val = data(103, 1), data(20, 2)

    def on_epoch(epoch: Epoch) -> None:
        time.sleep(rest)

    return fit(network(), train, val, RECIPE, folder, seed=3, on_epoch=on_epoch, resume=resume)


def die_and_go_on(folder: Path, seed: int, seconds: float) -> int:
    """Run to the end in processes that are killed after random times; how many were."""
    rest = seconds / RECIPE.epochs
    moments, deaths = random.Random(seed), 0
    while True:
        child = os.fork()
        if child == 0:
            run(folder, resume=True, rest=rest)
            os._exit(0)
        if deaths < 12:
            time.sleep(moments.uniform(0, seconds / 3))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the resumed run failed"
            return deaths
        deaths += 1


if __name__ == "__main__":
    print(die_and_go_on(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
