import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcno.models.deeponet import (
    DeepONet,
    DeepONetConfig,
    UpsampledActivation,
    bicubic_doubling,
)
from torchcno.models.inputs import coordinates


@pytest.fixture
def model() -> DeepONet:
    torch.manual_seed(0)
    config = DeepONetConfig(
        in_channels=2,
        out_channels=3,
        size=(10, 12),
        bases=7,
        trunk_layers=2,
        trunk_width=8,
        branch_levels=2,
        residual_blocks=1,
        branch_width=4,
    )
    return DeepONet(config).double().eval()


def test_is_linear_in_its_branch_output(model: DeepONet) -> None:
    torch.nn.init.zeros_(model.bias)
    positions = torch.rand(2, 5, 6, dtype=torch.float64)
    a, b = torch.randn(2, 4, 3 * 7, dtype=torch.float64)
    torch.testing.assert_close(
        model.expand(2 * a - 3 * b, positions),
        2 * model.expand(a, positions) - 3 * model.expand(b, positions),
    )


def test_output_channels_are_expansions_in_the_same_basis(model: DeepONet) -> None:
    positions = torch.rand(2, 5, 6, dtype=torch.float64)
    beta = torch.randn(4, 7, dtype=torch.float64)
    v = model.expand(beta.repeat(1, 3), positions)
    tau = model.trunk(positions.flatten(1).T)
    expected = (beta @ tau.T).view(4, 5, 6) / 7**0.5
    for channel in range(3):
        torch.testing.assert_close(v[:, channel], expected)


def test_basis_functions_do_not_depend_on_the_other_positions(model: DeepONet) -> None:
    """So that the output is a function: evaluated anywhere, it takes the same values."""
    fine = coordinates(torch.zeros(1, 1, 19, 23, dtype=torch.float64))
    coarse = coordinates(torch.zeros(1, 1, 10, 12, dtype=torch.float64))
    beta = torch.randn(1, 3 * 7, dtype=torch.float64)
    torch.testing.assert_close(model.expand(beta, fine)[..., ::2, ::2], model.expand(beta, coarse))


def test_forward_is_the_expansion_of_the_branch(model: DeepONet) -> None:
    u = torch.randn(4, 2, 10, 12, dtype=torch.float64)
    torch.testing.assert_close(model(u), model.expand(model.branch(u), coordinates(u)))


def test_activation_on_the_finer_grid_keeps_constants() -> None:
    v = torch.tensor([3.0, -2.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    back = F.avg_pool2d(UpsampledActivation((4, 4))(v), 2)
    torch.testing.assert_close(back, torch.tensor([3.0, -0.02]).view(1, 2, 1, 1).expand_as(v))


PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [(1, 2), (4, 4), (7, 5), (64, 33)])
def test_matrices_are_bicubic_interpolation(
    size: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    activation = UpsampledActivation(size).to(dtype)
    v = torch.randn(3, 2, *size, dtype=dtype, requires_grad=True)
    expected = F.leaky_relu(F.interpolate(v, scale_factor=2, mode="bicubic"))
    torch.testing.assert_close(activation(v), expected, rtol=tolerance, atol=tolerance)
    cotangent = torch.randn_like(expected)
    by_products, by_points = (
        torch.autograd.grad(w, v, cotangent)[0] for w in (activation(v), expected)
    )
    torch.testing.assert_close(by_products, by_points, rtol=tolerance, atol=tolerance)


def by_points(branch: nn.Sequential, u: Tensor) -> Tensor:
    """The branch with torch's own interpolation."""
    for block in branch:
        if isinstance(block, UpsampledActivation):
            u = F.leaky_relu(F.interpolate(u, scale_factor=2, mode="bicubic"))
        else:
            u = block(u)
    return u


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [(10, 12), (11, 9)])
def test_branch_is_that_of_pointwise_interpolation(
    size: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    config = DeepONetConfig(in_channels=2, size=size, bases=7, branch_levels=3, branch_width=4)
    branch = DeepONet(config).to(dtype).branch
    u = torch.randn(3, 2, *size, dtype=dtype)
    torch.testing.assert_close(branch(u), by_points(branch, u), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_matrices_are_exact_in_eleven_bits(n: int) -> None:
    """Those of float16, and of TF32 on the matrix units of a GPU."""
    matrix = bicubic_doubling(n)
    assert torch.equal(matrix.half().float(), matrix)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [4, 6])
def test_branch_tells_inputs_apart_from_the_start(levels: int, seed: int) -> None:
    """By far more than TF32 rounds, 5e-4; else training would not leave the mean output."""
    torch.manual_seed(seed)
    config = DeepONetConfig(branch_levels=levels, branch_width=8, residual_blocks=2, bases=100)
    coarse = torch.rand(6, 1, 8, 8)
    with torch.no_grad():
        beta = DeepONet(config).branch(F.interpolate(coarse, (64, 64), mode="bilinear"))
    assert (beta.std(0).norm() / beta.mean(0).norm()) > 5e-3


def test_says_which_size_it_needs(model: DeepONet) -> None:
    with pytest.raises(ValueError, match=r"size \(20, 24\), but the model accepts only \(10, 12\)"):
        model(torch.zeros(1, 2, 20, 24, dtype=torch.float64))
