"""The CPU's compiled loops are the definition, outputs and gradients."""

import pytest
import torch
from numba import njit

from torchcno.operators.activation import SIGMAS, Activation, filtered_activation
from torchcno.operators.filters import WindowedSinc
from torchcno.operators.fused import cpu_activation
from torchcno.operators.resampling import activation_matrices

CASES = [
    # batch, channels, points in, points out: several samples a group, one, a last group of fewer
    (3, 5, (12, 10), (12, 10)),
    (5, 30, (16, 8), (8, 16)),
    (2, 70, (8, 8), (12, 4)),
    (1, 40, (64, 64), (64, 64)),  # too large for all rows to be kept
    (4, 3, (20,), (10,)),
]


def case(batch, channels, size_in, size_out, boundary, taps=6):
    torch.manual_seed(0)
    pairs = [
        activation_matrices(n, m, 2, WindowedSinc(taps), boundary)
        for n, m in zip(size_in, size_out, strict=True)
    ]
    ups, downs = [up.float() for up, _ in pairs], [down.float() for _, down in pairs]
    x, dy = torch.randn(batch, channels, *size_in), torch.randn(batch, channels, *size_out)
    return x, torch.randn(channels), ups, downs, dy


def forward(x, bias, ups, downs, sigma):
    return cpu_activation.launch_forward(x, bias, ups, downs, sigma)[0]


def backward(dy, x, bias, ups, downs, sigma):
    _, signs = cpu_activation.launch_forward(x, bias, ups, downs, sigma, keep=True)
    dx = cpu_activation.launch_backward(dy, x, signs, ups, downs, sigma)
    return dx, cpu_activation.bias_gradient(dx)


def definition(x, bias, ups, downs, dy, sigma):
    """Y, dX and db in float64."""
    x, bias = x.double().requires_grad_(), bias.double().requires_grad_()
    ups, downs = [up.double() for up in ups], [down.double() for down in downs]
    y = filtered_activation(x, bias, ups, downs, SIGMAS[sigma])
    return y.detach(), *torch.autograd.grad(y, (x, bias), dy.double())


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("boundary", ["zero", "periodic", "even", "odd"])
@pytest.mark.parametrize("shapes", CASES, ids=str)
def test_the_loops_are_the_definition(shapes, boundary, channels_last):
    x, bias, ups, downs, dy = case(*shapes, boundary)
    if channels_last and x.ndim == 4:
        x, dy = (t.contiguous(memory_format=torch.channels_last) for t in (x, dy))
    for sigma in ("leaky_relu", "relu"):
        y = forward(x, bias, ups, downs, sigma)
        dx, dbias = backward(dy, x, bias, ups, downs, sigma)
        for result, truth in zip(
            (y, dx, dbias), definition(x, bias, ups, downs, dy, sigma), strict=True
        ):
            assert (result - truth).norm() < 1e-6 * truth.norm()
        assert y.stride() == torch.empty_like(dy).stride()
        assert dx.stride() == x.stride()


def test_gradients_need_one_bit_per_point_of_the_fine_grid():
    x, bias, ups, downs, _ = case(3, 8, (12, 10), (12, 10), "periodic")
    for keep in (True, False):
        _, signs = cpu_activation.launch_forward(x, bias, ups, downs, "relu", keep)
        assert 8 * signs.numel() == (3 * 8 * 24 * 20 if keep else 0)


@pytest.mark.parametrize("boundary", ["zero", "periodic"])
@pytest.mark.parametrize("taps", [2, 5, 9])
def test_filters_have_any_number_of_taps(taps, boundary):
    x, bias, ups, downs, dy = case(2, 3, (12, 20), (20, 12), boundary, taps)
    y = forward(x, bias, ups, downs, "leaky_relu")
    gradients = backward(dy, x, bias, ups, downs, "leaky_relu")
    truths = definition(x, bias, ups, downs, dy, "leaky_relu")
    for result, truth in zip((y, *gradients), truths, strict=True):
        assert (result - truth).norm() < 1e-6 * truth.norm()


def test_fields_of_another_layout_come_back_contiguous():
    # As torch.compile is told that they do.
    x, bias, ups, downs, _ = case(2, 3, (16, 16), (16, 16), "zero")
    turned = x.transpose(2, 3)
    y = forward(turned, bias, ups, downs, "leaky_relu")
    assert y.is_contiguous()
    assert torch.equal(y, forward(turned.contiguous(), bias, ups, downs, "leaky_relu"))


def test_a_matrix_may_change_in_place():
    x, bias, ups, downs, _ = case(2, 3, (8, 8), (8, 8), "zero")
    before = forward(x, 0 * bias, ups, downs, "leaky_relu")
    downs[0].mul_(2)
    torch.testing.assert_close(forward(x, 0 * bias, ups, downs, "leaky_relu"), 2 * before)


@pytest.fixture
def threads():
    """A setter of torch's number of threads, undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_threads_change_no_bit(threads, mode):
    with mode():
        x, bias, ups, downs, dy = case(27, 9, (16, 16), (8, 8), "zero")
    results = []
    for number in (1, 2):
        threads(number)
        with mode():
            y = forward(x, bias, ups, downs, "leaky_relu")
            results.append((y, backward(dy, x, bias, ups, downs, "leaky_relu")[0]))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_matrices_that_changed_in_place_are_read_again():
    x, bias, ups, downs, _ = case(3, 5, (12, 10), (12, 10), "zero")
    y = forward(x, bias, ups, downs, "leaky_relu")
    downs[0] *= 2
    torch.testing.assert_close(forward(x, bias, ups, downs, "leaky_relu"), 2 * y)


def test_what_is_not_a_number_stays_so_within_the_reach_of_the_filters():
    x, bias, ups, downs, _ = case(1, 2, (32, 32), (32, 32), "zero")
    for point in (3, 3), (0, 0), (31, 0):
        bad = x.clone()
        bad[0, 0, *point] = torch.nan
        y = forward(bad, bias, ups, downs, "leaky_relu")
        distance = torch.stack([(torch.arange(32) - n).abs() for n in point])
        far = (distance[0][:, None] > 6) | (distance[1] > 6)
        assert y[0, 0, *point].isnan()
        assert y[0, 0, far].isfinite().all()
        assert y[0, 1].isfinite().all()


def test_gradients_can_be_differentiated_again():
    torch.manual_seed(0)
    module = Activation(2, (8, 8), (8, 8), "leaky_relu", WindowedSinc(), "zero", 2)
    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    seconds = []
    for way in (module, module.by_matrices):
        (gradient,) = torch.autograd.grad(way(x).square().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(gradient.square().sum(), x)[0])
    torch.testing.assert_close(*seconds)


def test_where_nothing_can_be_kept_loops_are_compiled_all_the_same(monkeypatch):
    def without_a_folder(**options):
        def refuse(function):
            raise RuntimeError(f"cannot cache function {function.__name__!r}: no locator available")

        return refuse if options.get("cache") else njit(**options)

    monkeypatch.setattr(cpu_activation, "njit", without_a_folder)
    next_number = cpu_activation.kept()(lambda number: number + 1)
    assert next_number(2) == 3
    assert next_number.nopython_signatures  # compiled, not interpreted
