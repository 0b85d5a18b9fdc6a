import torch

from torchcno.data.fields import Fields
from torchcno.evaluation.mean_field import mean_field
from torchcno.grids import Grid


def test_no_constant_predictor_is_better_in_the_mean_square():
    generator = torch.Generator().manual_seed(0)
    train = Fields(
        *torch.randn(2, 7, 1, 6, 6, generator=generator), grid=Grid((6, 6), layout="periodic")
    )
    prediction = mean_field(train)

    def loss(v):
        return (v - train.outputs).square().mean()

    for _ in range(5):
        other = prediction + 0.01 * torch.randn(1, 1, 6, 6, generator=generator)
        assert loss(prediction) < loss(other)
