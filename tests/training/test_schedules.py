import pytest
import torch

from torchcno.training import Recipe
from torchcno.training.recipe import learning_rate


def test_step_falls_by_gamma_every_ten_epochs():
    recipe = Recipe(schedule="step", learning_rate=1e-3, gamma=0.5)
    rates = [learning_rate(recipe, time) for time in (0.01, 9.99, 10.01, 19.99, 35.0)]
    assert rates == pytest.approx([1e-3, 1e-3, 5e-4, 5e-4, 1.25e-4])


def test_cosine_rises_linearly_then_falls_to_zero():
    recipe = Recipe(schedule="cosine", learning_rate=1e-3, warmup=1 / 11, epochs=110)
    assert learning_rate(recipe, 2.5) == pytest.approx(2.5e-4)
    assert learning_rate(recipe, 10) == pytest.approx(1e-3)
    assert learning_rate(recipe, 60) == pytest.approx(5e-4)
    assert learning_rate(recipe, 110) == pytest.approx(0, abs=1e-12)


def test_one_cycle_is_torchs_with_the_papers_constants():
    recipe = Recipe(schedule="one-cycle", learning_rate=5e-4, epochs=101)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    reference = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-4, total_steps=101, pct_start=0.3, div_factor=1e4
    )
    # torch's clock starts at 0 and ends at step 100, its peak is at step 0.3 · 101 − 1.
    for step in range(101):
        rate = optimizer.param_groups[0]["lr"]
        peak = 0.3 * 101 - 1
        part = 0.3 * step / peak if step <= peak else 0.3 + 0.7 * (step - peak) / (100 - peak)
        assert learning_rate(recipe, 101 * part) == pytest.approx(rate, rel=1e-9, abs=1e-14)
        optimizer.step()
        if step < 100:
            reference.step()
