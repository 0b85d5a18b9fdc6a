import pytest
import torch

from torchcno.models.unet import UNet, UNetConfig


@pytest.fixture
def model() -> UNet:
    torch.manual_seed(0)
    return UNet(UNetConfig(in_channels=2, out_channels=3, channels=2)).double().eval()


def test_commutes_with_translations_by_the_coarsest_step(model: UNet) -> None:
    """By 16 points and away from the edge: beyond that, max-pooling is not equivariant."""
    u = torch.zeros(1, 2, 288, 288, dtype=torch.float64)
    u[..., 136:152, 136:152] = torch.randn(16, 16, dtype=torch.float64)
    inside = slice(110, 178)
    v, shifted = model(u), model(u.roll((16, -16), (2, 3)))
    torch.testing.assert_close(
        shifted.roll((-16, 16), (2, 3))[..., inside, inside], v[..., inside, inside]
    )
    assert v[..., inside, inside].std() > 0


@pytest.mark.parametrize("n", [32, 40, 56, 72, 104])
def test_a_longer_axis_changes_nothing_far_from_its_end(model: UNet, n: int) -> None:
    """Whatever an odd size on the way down adds or drops, it does so at the far end."""
    u = torch.randn(1, 2, 16, n + 128, dtype=torch.float64)
    whole, part = model(u), model(u[..., : n + 120])
    near = slice(0, n // 2)
    torch.testing.assert_close(part[..., near], whole[..., near])


@pytest.mark.parametrize("shape", [(16, 16), (40, 72), (33, 47), (120, 17), (33,), (17, 16, 18)])
def test_output_lies_on_the_grid_of_the_input(shape: tuple[int, ...]) -> None:
    model = UNet(UNetConfig(2, 3, (16,) * len(shape), channels=2)).double().eval()
    u = torch.randn(1, 2, *shape, dtype=torch.float64)
    assert model(u).shape == (1, 3, *shape)


@pytest.mark.parametrize("others", [(), (16, 16)])
def test_commutes_with_translations_along_x_in_any_dimension(others: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = UNet(UNetConfig(size=(*others, 16), channels=2)).double().eval()
    u = torch.zeros(1, 1, *others, 288, dtype=torch.float64)
    u[..., 136:152] = torch.randn(*others, 16, dtype=torch.float64)
    inside = slice(110, 178)
    v, shifted = model(u), model(u.roll(16, -1)).roll(-16, -1)
    torch.testing.assert_close(shifted[..., inside], v[..., inside])
    assert v[..., inside].std() > 0


def test_says_what_it_accepts(model: UNet) -> None:
    with pytest.raises(ValueError, match="15 × 64 points is too small; give at least 16"):
        model(torch.zeros(1, 2, 15, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match="1 channels, but the model takes 2"):
        model(torch.zeros(1, 1, 64, 64, dtype=torch.float64))
