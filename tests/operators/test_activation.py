"""The activation against the reference's numbers, and what it leaves of a band."""

from pathlib import Path

import numpy as np
import pytest
import torch

from torchcno.operators.activation import (
    SIGMAS,
    Activation,
    PointwiseActivation,
    filtered_activation,
)
from torchcno.operators.filters import Ideal, WindowedSinc
from torchcno.operators.resampling import activation_matrices

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("activation_*.npz"))


def load(path):
    """A fixture's tensors, and the module it describes."""
    data = np.load(path)
    filter = WindowedSinc(
        int(data["filter_size"]), float(data["half_width_mult"]), float(data["cutoff_den"])
    )
    size_in, size_out = (int(data["in_size"]),) * 2, (int(data["out_size"]),) * 2
    upsampling = int(data["lrelu_upsampling"])
    module = Activation(3, size_in, size_out, "leaky_relu", filter, "zero", upsampling)
    tensors = {name: torch.from_numpy(data[name]) for name in data.files if data[name].ndim}
    with torch.no_grad():
        module.bias.copy_(tensors["bias"])
    return tensors, module


def in_double_with_rounded_taps(module):
    """The reference's float64 numbers were made with taps that had been rounded to float32."""
    rounded = {name: value.double() for name, value in module.named_buffers()}
    module.double()
    for name, value in rounded.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
class TestReference:
    def test_float32(self, path):
        data, module = load(path)
        for way in (module, module.by_matrices, module.by_bands):
            torch.testing.assert_close(way(data["input"]), data["output"], rtol=0, atol=1e-5)

    def test_float64(self, path):
        data, module = load(path)
        in_double_with_rounded_taps(module)
        for way in (module, module.by_matrices, module.by_bands):
            x = data["input"].double().requires_grad_()
            y = way(x)
            torch.testing.assert_close(y, data["output_f64"], rtol=0, atol=1e-12)
            grad_x, grad_bias = torch.autograd.grad(y.square().sum(), (x, module.bias))
            torch.testing.assert_close(grad_x, data["grad_input_f64"], rtol=0, atol=1e-11)
            torch.testing.assert_close(grad_bias, data["grad_bias_f64"], rtol=1e-12, atol=1e-11)

    def test_float64_with_exact_taps(self, path):
        data, module = load(path)
        y = module.double()(data["input"].double())
        torch.testing.assert_close(y, data["output_f64"], rtol=0, atol=1e-6)

    def test_fine_grid(self, path):
        data, module = load(path)
        in_double_with_rounded_taps(module)
        x = data["input"][0, 0].double() + module.bias[0]
        fine = module.ups[0] @ x @ module.ups[1].T
        torch.testing.assert_close(fine, data["upsampled_00_f64"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("boundary", ["zero", "periodic", "even", "odd"])
@pytest.mark.parametrize("upsampling", [1, 2, 4])
@pytest.mark.parametrize(
    ("size_in", "size_out"),
    [((40,), (40,)), ((24, 16), (12, 32)), ((10, 12, 8), (10, 6, 16))],
)
@pytest.mark.parametrize("sigma", ["leaky_relu", "polynomial"])  # σ(0) = 0, and not
def test_bands_are_the_matrices(size_in, size_out, upsampling, boundary, sigma):
    torch.manual_seed(0)
    filter = WindowedSinc()
    module = Activation(2, size_in, size_out, sigma, filter, boundary, upsampling).double()
    torch.nn.init.normal_(module.bias)
    x = torch.randn(1, 2, *size_in, dtype=torch.float64)
    torch.testing.assert_close(module.by_bands(x), module.by_matrices(x), rtol=0, atol=1e-13)


def test_large_grids_never_meet_a_matrix():
    n = 20_000  # whose matrices would take gigabytes
    module = Activation(1, (n,), (n,), "tanh", WindowedSinc(), "periodic", 2)
    x = torch.sin(2 * torch.pi * (torch.arange(n) + 0.5) / n)[None, None]
    torch.testing.assert_close(module(x), torch.tanh(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("boundary", ["periodic", "even"])
@pytest.mark.parametrize("filter", [WindowedSinc(), Ideal()])
@pytest.mark.parametrize("sigma", sorted(SIGMAS))
def test_a_constant_goes_through_sigma(sigma, filter, boundary):
    module = Activation(1, (12, 8), (6, 16), sigma, filter, boundary, 2).double()
    x = torch.full((1, 1, 12, 8), -0.7, dtype=torch.float64)
    expected = SIGMAS[sigma](x[0, 0, 0, 0]).expand(1, 1, 6, 16)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-14)


def test_polynomial_on_twice_the_points_is_free_of_aliasing():
    """More points than N_σ = 2 change nothing; fewer do."""
    torch.manual_seed(0)
    project, _ = activation_matrices(16, 16, 1, Ideal(), "periodic")
    x = torch.randn(1, 1, 16, 16, dtype=torch.float64)
    x = project @ x @ project.T
    two, four, one = (
        Activation(1, (16, 16), (16, 16), "polynomial", Ideal(), "periodic", n).double()(x)
        for n in (2, 4, 1)
    )
    torch.testing.assert_close(two, four, rtol=0, atol=1e-13)
    assert (one - four).abs().max() > 1e-2


def test_aliasing_of_a_rational_function_falls_exponentially_with_the_points():
    """It is analytic about the real axis; the kink of ReLU leaves a power of N_σ."""
    torch.manual_seed(0)
    project, _ = activation_matrices(16, 16, 1, Ideal(), "periodic")
    x = project @ torch.randn(1, 1, 16, 16, dtype=torch.float64) @ project.T

    def errors(sigma):
        one, two, four, eight, exact = (
            Activation(1, (16, 16), (16, 16), sigma, Ideal(), "periodic", n).double()(x).detach()
            for n in (1, 2, 4, 8, 32)
        )
        return [float((y - exact).abs().max()) for y in (one, two, four, eight)]

    one, two, four, eight = errors("rational")
    assert eight < 1e-6
    assert 100 * one / two < 15 * two / four < four / eight
    one, two, four, eight = errors("relu")
    assert max(one / two, two / four, four / eight) < 10


@pytest.mark.parametrize("sigma", sorted(SIGMAS))
def test_gradients(sigma):
    torch.manual_seed(0)
    matrices = [activation_matrices(n, m, 2, WindowedSinc(), "odd") for n, m in ((4, 4), (6, 3))]
    ups, downs = ([pair[i] for pair in matrices] for i in (0, 1))
    x = torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, bias: filtered_activation(x, bias, ups, downs, SIGMAS[sigma]), (x, bias)
    )


def test_gradients_of_bands():
    torch.manual_seed(0)
    module = Activation(1, (4, 6), (4, 3), "tanh", WindowedSinc(3, 1.0), "odd", 2).double()
    x = torch.randn(1, 1, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module.by_bands, x)
    assert torch.autograd.gradgradcheck(module.by_bands, x)


@pytest.mark.parametrize("upsampling", [2, 2.5])  # in one pass, or by matrices
def test_a_constant_per_channel_comes_before_sigma_as_the_bias_does(upsampling):
    torch.manual_seed(0)
    module = Activation(3, (8, 8), (8, 8), "leaky_relu", WindowedSinc(), "zero", upsampling)
    torch.nn.init.normal_(module.bias)
    x, constant = torch.randn(2, 3, 8, 8), torch.randn(3, requires_grad=True)
    ways = [module, module.by_matrices] + [module.by_bands] * (module.bands is not None)
    for way in ways:
        expected = way(x + constant.view(-1, 1, 1))
        torch.testing.assert_close(way(x, constant), expected)
        found = [
            torch.autograd.grad(y.square().sum(), constant) for y in (way(x, constant), expected)
        ]
        torch.testing.assert_close(*found)


def test_sigmas():
    t = torch.tensor([-1.0, 2.0])
    torch.testing.assert_close(SIGMAS["leaky_relu"](t), 2**0.5 * torch.tensor([-0.2, 2.0]))
    # The polynomial is ReLU's projection on quadratics: the error is orthogonal to 1, t and t².
    t = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    error = (SIGMAS["polynomial"](t) - t.relu()) * torch.exp(-t * t / 2)
    for power in range(3):
        assert abs(torch.trapezoid(error * t**power, t)) < 1e-6
    # The rational one is the nearest of its kind: no coefficient makes the error less.
    error = (SIGMAS["rational"](t) - t.relu()) * torch.exp(-t * t / 2)
    q = 1 / (1 + 0.31727447 * t * t)
    for direction in (t, q, t * t * q, (t * q) ** 2):
        assert abs(torch.trapezoid(error * direction, t)) < 1e-6


def test_casting_starts_from_exact_numbers():
    module = Activation(1, (8,), (8,), "relu", Ideal(), "periodic", 2).half().double()
    torch.testing.assert_close(module.ups[0], activation_matrices(8, 8, 2, Ideal(), "periodic")[0])


def test_pointwise_pools_and_repeats():
    x = torch.arange(8.0).view(1, 1, 2, 4)
    module = PointwiseActivation(1, (2, 4), (4, 2), "relu")
    expected = torch.tensor([[0.5, 2.5], [0.5, 2.5], [4.5, 6.5], [4.5, 6.5]])[None, None]
    torch.testing.assert_close(module(x), expected)


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="did you mean 'gelu'"):
        Activation(1, (8,), (8,), "gleu", Ideal(), "periodic", 2)
    with pytest.raises(ValueError, match="use 1 or more"):
        Activation(1, (8,), (8,), "gelu", Ideal(), "periodic", 0.9)
    with pytest.raises(ValueError, match="use `by_matrices`"):
        Activation(1, (8,), (8,), "gelu", Ideal(), "periodic", 2).by_bands(torch.ones(1, 1, 8))


@pytest.mark.parametrize("boundary", [("zero", "periodic"), ("odd", "even"), ("periodic", "odd")])
def test_each_axis_has_its_own_boundary(boundary):
    torch.manual_seed(0)
    sizes = (12, 16), (6, 8)
    mixed = Activation(2, *sizes, "leaky_relu", WindowedSinc(), boundary, 2).double()
    x = torch.randn(1, 2, *sizes[0], dtype=torch.float64)
    torch.testing.assert_close(mixed.by_bands(x), mixed.by_matrices(x))
    for i, name in enumerate(boundary):
        alike = Activation(2, *sizes, "leaky_relu", WindowedSinc(), name, 2).double()
        assert torch.equal(mixed.ups[i], alike.ups[i])
        assert torch.equal(mixed.downs[i], alike.downs[i])
