from dataclasses import replace
from itertools import product as product_of

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call

from torchcno.models.fno import FNO, FNOConfig, Pointwise, SpectralConvolution

SMALL = FNOConfig(layers=2, width=4, modes=3, hidden_width=8)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def waves(n: int, k_y: int, k_x: int) -> Tensor:
    """cos 2π(k_y y + k_x x) + sin 2π(k_y y + k_x x) on n × n periodic points."""
    t = torch.arange(n, dtype=torch.float64) / n
    phase = 2 * torch.pi * (k_y * t[:, None] + k_x * t)
    return phase.cos() + phase.sin()


def random_band(n: int, band: int) -> Tensor:
    """Two channels of random waves with |k| ≤ band, the same function for every n."""
    generator = torch.Generator().manual_seed(1)
    v = torch.zeros(1, 2, n, n, dtype=torch.float64)
    for k_y in range(-band, band + 1):
        for k_x in range(band + 1):
            a = torch.randn(2, 1, 1, generator=generator, dtype=torch.float64)
            v += a * waves(n, k_y, k_x)
    return v


def test_spectral_convolution_is_its_fourier_sum() -> None:
    n, k = 12, 3
    convolution = SpectralConvolution(2, 3, k)
    v = torch.randn(4, 2, n, n, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64) / n
    expected = torch.zeros(4, 3, n, n, dtype=torch.float64)
    for row, k_y in enumerate([0, 1, 2, -3, -2, -1]):
        for k_x in range(k):
            wave = torch.exp(2j * torch.pi * (k_y * t[:, None] + k_x * t))
            v_hat = (v * wave.conj()).mean((2, 3))
            coefficient = v_hat @ convolution.weight[row, k_x].to(v_hat.dtype)
            # A real field has each mode k_x > 0 twice: with its conjugate at −k.
            twice = 1 if k_x == 0 else 2
            expected += twice * (coefficient[:, :, None, None] * wave).real
    torch.testing.assert_close(convolution(v), expected)


@pytest.mark.parametrize(("k_y", "k_x"), [(5, 0), (0, 4), (5, 2), (-6, 1), (-7, 7)])
def test_spectral_convolution_sees_no_mode_above_k_max(k_y: int, k_x: int) -> None:
    convolution = SpectralConvolution(2, 2, modes=4)
    v = torch.randn(1, 2, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(convolution(v + waves(16, k_y, k_x)), convolution(v))


def test_spectral_convolution_makes_no_mode_above_k_max() -> None:
    spectrum = torch.fft.rfft2(SpectralConvolution(2, 2, modes=4)(torch.randn(1, 2, 16, 16)))
    k_y = torch.fft.fftfreq(16, 1 / 16).abs()
    outside = (k_y[:, None] > 4) | (torch.arange(9) >= 4)
    assert spectrum[..., outside].abs().max() < 1e-5 * spectrum.abs().max()


@pytest.mark.parametrize("n", [8, 9, 16, 48])
def test_spectral_convolution_is_the_same_operator_on_every_grid(n: int) -> None:
    """Also where the grid resolves fewer modes than there are weights."""
    convolution = SpectralConvolution(2, 2, modes=6)
    fine, coarse = random_band(6 * n, band=2), random_band(n, band=2)
    torch.testing.assert_close(convolution(fine)[..., ::6, ::6], convolution(coarse))


def test_commutes_with_periodic_translations_without_coordinates() -> None:
    model = FNO(FNOConfig(layers=2, width=4, modes=3, hidden_width=8, coordinates=False)).double()
    u = torch.randn(2, 1, 16, 20, dtype=torch.float64)
    shift = dict(shifts=(5, -3), dims=(2, 3))
    torch.testing.assert_close(model(u.roll(**shift)), model(u).roll(**shift))


def test_coordinates_break_that_symmetry() -> None:
    model = FNO(SMALL).double()
    u = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    assert not torch.allclose(model(u.roll(5, 3)), model(u).roll(5, 3))


def test_padding_parts_the_two_ends_of_an_axis() -> None:
    """What a spectral layer carries over the edge of a periodic grid, the padded one does not."""
    convolved = {}
    for pad in (0, 16):
        torch.manual_seed(0)
        model = FNO(FNOConfig(layers=1, width=4, modes=8, hidden_width=8, pad=pad)).double()
        u = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
        change = torch.zeros_like(u)
        change[..., -1] = 1.0
        model.layers[0].spectral.weight.data.fill_(1.0)  # a smooth kernel around each point
        convolved[pad] = (model(u + change) - model(u)).abs()[..., 0].mean()
    assert convolved[16] < 0.2 * convolved[0]


def test_pointwise_is_a_convolution_with_one_weight_a_point() -> None:
    layer, v = Pointwise(3, 5), torch.randn(2, 3, 4, 6)
    expected = torch.nn.functional.conv2d(v, layer.weight[:, :, None, None], layer.bias)
    torch.testing.assert_close(layer(v), expected)


def test_the_activation_is_the_one_of_the_configuration() -> None:
    """For a network without spectral weights: one of pointwise layers with that σ between them."""
    u, outputs = torch.randn(2, 1, 12, 12), []
    for name, sigma in (("gelu", F.gelu), ("leaky_relu", F.leaky_relu)):
        torch.manual_seed(0)
        model = FNO(replace(SMALL, activation=name, coordinates=False))
        for layer in model.layers:
            layer.spectral.weight.data.zero_()
        v = model.lift[2](sigma(model.lift[0](u)))
        for layer in model.layers:
            v = sigma(layer.pointwise(v))
        outputs.append(model(u))
        torch.testing.assert_close(outputs[-1], model.project[2](sigma(model.project[0](v))))
    assert not torch.allclose(*outputs)
    with pytest.raises(ValueError, match="gelu, leaky_relu"):
        FNOConfig(activation="tanh")


def test_half_precision_stays_near_single() -> None:
    model, u = FNO(SMALL), torch.randn(2, 1, 12, 12)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(u).float()
    assert (low - model(u)).norm() < 0.05 * model(u).norm()


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (torch.float32, torch.complex64),
        (torch.float64, torch.complex128),
        (torch.bfloat16, torch.complex64),  # half precision has too few bits for them
        (torch.float16, torch.complex64),
    ],
)
def test_a_cast_leaves_complex_weights_complex(dtype: torch.dtype, stored: torch.dtype) -> None:
    """A cast to a real type would drop the imaginary part: they take the complex one beside it."""
    convolution = SpectralConvolution(2, 2, modes=3)
    v = torch.randn(2, 2, 8, 8)
    expected = convolution(v)
    expected.sum().backward()
    weight, gradient = convolution.weight.detach().clone(), convolution.weight.grad.clone()
    convolution.to(dtype)
    assert convolution.weight.dtype == convolution.weight.grad.dtype == stored
    assert torch.equal(convolution.weight, weight.to(stored))
    assert torch.equal(convolution.weight.grad, gradient.to(stored))
    tolerance = dict(rtol=0.02, atol=0.02) if dtype.itemsize == 2 else dict(rtol=0, atol=1e-5)
    torch.testing.assert_close(convolution(v.to(dtype)).float(), expected, **tolerance)
    convolution.float()
    assert torch.equal(convolution.weight, weight)  # there and back: the same bits


def test_a_double_network_has_the_derivatives_of_float64() -> None:
    """By differences of 1e-6 in its spectral weights, which float32 would round away."""
    model = FNO(replace(SMALL, size=(8, 8), activation="gelu")).double()
    name, u = "layers.0.spectral.weight", torch.randn(1, 1, 8, 8, dtype=torch.float64)

    def output(weight: Tensor) -> Tensor:
        return functional_call(model, {name: weight}, u)

    assert gradcheck(output, model.get_parameter(name), fast_mode=True)


def test_a_double_network_keeps_steps_that_float32_rounds_away() -> None:
    model = FNO(SMALL).double()
    weight, step = model.layers[0].spectral.weight, 1e-12j
    before = weight.detach().clone()
    weight.data += step
    torch.testing.assert_close(weight - before, torch.full_like(before, step), rtol=1e-3, atol=0)


def test_weights_leave_the_meta_device_as_others_do() -> None:
    with torch.device("meta"):
        model = FNO(SMALL)
    model = model.to(torch.float64).to_empty(device="cpu")
    assert model.layers[0].spectral.weight.device.type == "cpu"
    assert model.layers[0].spectral.weight.is_complex()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 16), r"3 axes; give \(batch, channel, y, x\)"),
        ((2, 3, 16, 16), r"3 channels, but the model takes 1; build it with in_channels=3"),
        ((2, 1, 16, 1), r"16 × 1 points is too small; give at least 2"),
    ],
)
def test_says_what_it_accepts(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FNO(SMALL)(torch.zeros(shape))


def test_refuses_a_size_of_four_axes() -> None:
    with pytest.raises(ValueError, match=r"size \(8, 8, 8, 8\) .* give \(x\) or \(y, x\) or"):
        FNOConfig(size=(8, 8, 8, 8))


@pytest.mark.parametrize("space", [(10,), (6, 9, 8)])
def test_a_spectral_convolution_multiplies_modes_in_any_dimension(space: tuple[int, ...]) -> None:
    """Against the fast Fourier transform, with the kept modes by their numbers."""
    modes = 3
    convolution = SpectralConvolution(2, 3, modes, (16,) * len(space)).double()
    v = torch.randn(4, 2, *space, dtype=torch.float64)
    v_hat = torch.fft.rfftn(v, dim=tuple(range(2, v.ndim)))
    product = torch.zeros(4, 3, *v_hat.shape[2:], dtype=torch.complex128)
    signed = range(-modes, modes)  # as an index: from the end where it is negative
    for k in product_of(*[signed] * (len(space) - 1), range(modes)):
        product[(..., *k)] = v_hat[(..., *k)] @ convolution.weight[k]
    expected = torch.fft.irfftn(product, s=space, dim=tuple(range(2, v.ndim)))
    torch.testing.assert_close(convolution(v), expected)


@pytest.mark.parametrize("space", [(20,), (8, 12, 10)])
def test_commutes_with_translations_in_any_dimension(space: tuple[int, ...]) -> None:
    model = FNO(replace(SMALL, size=(16,) * len(space), coordinates=False)).double()
    u = torch.randn(2, 1, *space, dtype=torch.float64)
    shift = dict(shifts=range(3, 3 + len(space)), dims=range(2, u.ndim))
    shift = {key: tuple(value) for key, value in shift.items()}
    torch.testing.assert_close(model(u.roll(**shift)), model(u).roll(**shift))
