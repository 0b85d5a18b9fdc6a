import pytest
import torch

from torchcno.models.resnet import ResNet, ResNetConfig


@pytest.fixture
def model() -> ResNet:
    torch.manual_seed(0)
    config = ResNetConfig(in_channels=2, out_channels=3, channels=2, residual_blocks=2)
    return ResNet(config).double().eval()


def test_commutes_with_translations_by_the_coarsest_step(model: ResNet) -> None:
    u = torch.zeros(1, 2, 96, 96, dtype=torch.float64)
    u[..., 44:52, 44:52] = torch.randn(8, 8, dtype=torch.float64)
    v, shifted = model(u), model(u.roll((4, -8), (2, 3)))
    inside = slice(40, 56)
    torch.testing.assert_close(
        shifted.roll((-4, 8), (2, 3))[..., inside, inside], v[..., inside, inside]
    )
    assert v[..., inside, inside].std() > 0


@pytest.mark.parametrize("n", [93, 94, 95, 97])
def test_sizes_off_the_multiples_of_4_keep_the_points_in_place(model: ResNet, n: int) -> None:
    u = torch.randn(1, 2, 8, 96 + 4, dtype=torch.float64)
    near = slice(0, 40)  # out of reach of the far end
    part, whole = model(u[..., :n]), model(u)
    torch.testing.assert_close(part[..., near], whole[..., near])
    assert part.shape == (1, 3, 8, n)


def test_residual_blocks_start_from_the_identity(model: ResNet) -> None:
    """With the last norm's scale at zero a block hands on its input."""
    for block in model.residual:
        torch.nn.init.zeros_(block.body[-1].weight)
    v = torch.randn(1, 8, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(model.residual(v), v)


def test_says_what_it_accepts(model: ResNet) -> None:
    with pytest.raises(ValueError, match="3 × 64 points is too small; give at least 4"):
        model(torch.zeros(1, 2, 3, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match="1 channels, but the model takes 2"):
        model(torch.zeros(1, 1, 64, 64, dtype=torch.float64))
