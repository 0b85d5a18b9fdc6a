import torch

from torchcno.data.fields import Fields
from torchcno.evaluation.linear import linear_map
from torchcno.grids import Grid

GRID = Grid((4, 4), layout="periodic")


def fields(n: int, operator: torch.Tensor, seed: int) -> Fields:
    u = torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Fields(u, 3 + (u.flatten(1) @ operator.T).view(u.shape), GRID)


def test_enough_samples_of_an_affine_operator_give_the_operator():
    operator = torch.randn(16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train, test = fields(40, operator, seed=1), fields(5, operator, seed=2)
    prediction = linear_map(train)(test.inputs, 1e-14)
    torch.testing.assert_close(prediction, test.outputs)


def test_no_other_linear_map_has_a_smaller_penalised_sum_of_squares():
    generator = torch.Generator().manual_seed(3)
    u, v = torch.randn(2, 30, 1, 4, 4, generator=generator, dtype=torch.float64)
    train = Fields(u, v, GRID)
    penalty = 0.05
    x, y = (t.flatten(1) - t.flatten(1).mean(0) for t in (u, v))
    sigma = torch.linalg.matrix_norm(x, 2) ** 2
    # The rows of W are what it makes of the unit vectors, beyond what it makes of zero.
    basis = torch.cat([torch.zeros(1, 16), torch.eye(16)]).double().view(17, 1, 4, 4)
    found = linear_map(train)(basis + u.mean(0), penalty)
    w = (found[1:] - found[:1]).flatten(1)
    gradient = 2 * x.T @ (x @ w - y) + 2 * penalty * sigma * w
    assert gradient.abs().max() < 1e-10 * sigma


def test_a_large_penalty_leaves_the_mean_field():
    operator = torch.eye(16, dtype=torch.float64)
    train = fields(20, operator, seed=4)
    prediction = linear_map(train)(train.inputs, 1e12)
    torch.testing.assert_close(prediction, train.outputs.mean(0).expand(20, 1, 4, 4))
