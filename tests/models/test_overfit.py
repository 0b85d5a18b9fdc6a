"""Every network, made small, can learn eight pairs of the Poisson equation by heart."""

from typing import Any

import pytest
import torch
from torch import Tensor

from torchcno.metrics import relative_l1
from torchcno.models import MODELS
from torchcno.problems.poisson import Poisson

SIZE = 16
STEPS = 400
TINY_CNO = dict(levels=1, width=16, neck_blocks=1, skip_blocks=1, lift_width=16)
# fmt: off
TINY: dict[str, dict[str, Any]] = {
    "cno":                  TINY_CNO,
    "cno-no-filters":       TINY_CNO,
    "cno-no-skip-blocks":   TINY_CNO | {"skip_blocks": 0},
    "time-cno":             TINY_CNO | {"norm": "batch"},
    "fno":                  dict(layers=3, width=12, modes=6, hidden_width=32),
    "unet":                 dict(channels=8),
    "resnet":               dict(channels=12, residual_blocks=2),
    "deeponet":             dict(bases=64, trunk_layers=4, trunk_width=128, branch_levels=1,
                                 branch_width=8, residual_blocks=1),
    "ffnn":                 dict(layers=3, width=64),
    "galerkin-transformer": dict(blocks=2, heads=2, width=16, decoder_width=16, modes=6,
                                 dropout=0.0),
}
LEARNING_RATES = {  # of the others 1e-2
    "deeponet": 5e-3, "cno": 1.5e-2, "cno-no-filters": 1.5e-2, "cno-no-skip-blocks": 1.5e-2,
}
# fmt: on


def unit_range(v: Tensor) -> Tensor:
    return ((v - v.min()) / (v.max() - v.min())).float()


@pytest.fixture(scope="module")
def pairs() -> tuple[Tensor, Tensor]:
    problem = Poisson(K=6)
    f = problem.sample_inputs(problem.grid(SIZE), 8, torch.Generator().manual_seed(0))
    return unit_range(f), unit_range(problem.solve(f))


SLOW = ("cno", "time-cno", "unet", "resnet", "galerkin-transformer")  # five seconds and more


def slow_if_large(name: str) -> Any:
    """`test_poisson.py` shows that the CNO learns; its ablations are the CNO with less in it."""
    return pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else [])


@pytest.mark.parametrize("name", [slow_if_large(name) for name in MODELS])
def test_overfits(name: str, pairs: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    model = MODELS[name](MODELS[name].Config(size=(SIZE, SIZE), **TINY.get(name, {})))
    f, u = pairs
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATES.get(name, 1e-2), total_steps=STEPS
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        error = relative_l1(model(f), u).mean()
        if error < 0.008:  # a margin, so that rounding on another machine does not decide
            break
        error.backward()
        optimizer.step()
        schedule.step()
    # As in training: batch norm's running variance is the unbiased one, 8/7 of that of 8 samples.
    assert relative_l1(model(f), u).mean() < 0.01
