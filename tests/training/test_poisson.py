"""The engine at work: a small CNO learns the Poisson problem of the paper."""

import torch

from torchcno.data.fields import Fields
from torchcno.data.normalization import Normalization
from torchcno.metrics import relative_l1
from torchcno.models.cno import CNO, CNOConfig
from torchcno.problems.poisson import Poisson
from torchcno.training import Pairs, Recipe, fit


def test_a_small_cno_learns_poisson_on_64_by_64_points(tmp_path):
    problem, generator = Poisson(), torch.Generator().manual_seed(0)
    grid = problem.grid(64)
    sources = problem.sample_inputs(grid, 80, generator)
    fields = Fields(sources.float(), problem.solve(sources).float(), grid)
    scaled = Normalization.fit(Fields(*fields[:64], grid))
    inputs, targets = (
        scaled.normalize_inputs(fields.inputs),
        scaled.normalize_outputs(fields.outputs),
    )
    train, val = Pairs(inputs[:64], targets[:64]), Pairs(inputs[64:], targets[64:])
    torch.manual_seed(0)
    model = CNO(
        CNOConfig(
            size=(64, 64),
            levels=3,
            width=8,
            lift_width=8,
            neck_blocks=1,
            skip_blocks=1,
            boundary=problem.boundary,
            layout=problem.layout,
        )
    )
    recipe = Recipe(
        epochs=6,
        batch_size=4,
        learning_rate=5e-3,
        schedule="cosine",
        warmup=1 / 6,
        averaging_half_life=0.3,
        patience=None,
        evaluate_every=6,
    )
    best = fit(model, train, val, recipe, tmp_path, seed=0).best_validation_error
    constant = relative_l1(targets[:64].mean().expand_as(val.targets), val.targets).mean()
    assert best < 0.07
    assert best < 0.4 * constant
