from contextlib import nullcontext

import pytest
import torch
from torch import nn

import torchcno.operators.convolution as convolution_module
from torchcno.operators.convolution import Convolution, extend


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(("boundary", "mode"), [("zero", "zeros"), ("periodic", "circular")])
def test_is_torch_s_convolution(dims, boundary, mode):
    torch.manual_seed(0)
    ours = Convolution(3, 4, 5, dims, boundary)
    theirs = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](3, 4, 5, padding=2, padding_mode=mode)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, *(8, 7, 6)[:dims])
    torch.testing.assert_close(ours(x), theirs(x))


def test_initial_values_are_torch_s():
    torch.manual_seed(0)
    ours = Convolution(3, 4, 3, 2)
    torch.manual_seed(0)
    theirs = nn.Conv2d(3, 4, 3)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


@pytest.mark.parametrize(("boundary", "sign"), [("even", 1), ("odd", -1)])
@pytest.mark.parametrize("kernel_size", [3, 5])
def test_reflections_are_periodic_on_the_doubled_domain(boundary, sign, kernel_size):
    torch.manual_seed(0)
    folded = Convolution(2, 3, kernel_size, 2, boundary).double()
    periodic = Convolution(2, 3, kernel_size, 2, "periodic").double()
    periodic.load_state_dict(folded.state_dict())
    x = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    doubled = x
    for axis in (-1, -2):
        doubled = torch.cat([doubled, sign * doubled.flip(axis)], dim=axis)
    expected = periodic(doubled)[..., :6, :8]
    torch.testing.assert_close(folded(x), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("boundary", "mode"), [("even", torch.cos), ("odd", torch.sin)])
def test_reflections_are_those_of_cell_centred_samples(boundary, mode):
    """On an inclusive grid the sample on the edge comes twice, and the others one late."""
    n, margin = 8, 3
    inside, j = slice(margin, -margin), torch.arange(-margin, n + margin, dtype=torch.float64)
    centred, inclusive = mode(torch.pi * (j + 0.5) / n), mode(torch.pi * j / (n - 1))
    extended = extend(centred[inside], margin, boundary, -1)
    torch.testing.assert_close(extended, centred, rtol=0, atol=1e-14)
    late = torch.cat([inclusive[1 : margin + 1], inclusive[inside], inclusive[-margin - 1 : -1]])
    extended = extend(inclusive[inside], margin, boundary, -1)
    torch.testing.assert_close(extended, late, rtol=0, atol=1e-14)


def test_a_constant_stays_one_with_periodic_and_even_boundaries():
    for boundary in ("periodic", "even"):
        y = Convolution(1, 1, 3, 2, boundary).double()(torch.ones(1, 1, 5, 6).double())
        torch.testing.assert_close(y, y[..., :1, :1].expand_as(y), rtol=0, atol=1e-15)


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="kernel_size 4 has no middle; use an odd number"):
        Convolution(1, 1, 4, 2)
    with pytest.raises(ValueError, match="use a smaller kernel_size or fewer levels"):
        extend(torch.ones(1, 1, 2), 3, "periodic", -1)


@pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_a_batch_norm_that_comes_next_takes_the_bias_and_remembers_it(boundary, momentum):
    torch.manual_seed(0)
    convolution = Convolution(2, 3, 3, 2, boundary).double()
    x = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    results, remembered = [], []
    for told in (False, True):
        norm = nn.BatchNorm2d(3, momentum=momentum).double()
        for _ in range(3):
            y = norm(convolution(x, norm if told else None))
        gradients = torch.autograd.grad(y.pow(3).sum(), convolution.parameters())
        results.append([y, *gradients, norm.running_mean, norm.running_var])
        remembered.append(norm.eval()(convolution(x, norm)))  # evaluation has the bias, told or not
    for full, short in zip(*results, strict=True):
        torch.testing.assert_close(short, full, atol=1e-11, rtol=1e-11)
    torch.testing.assert_close(*remembered)
    if momentum < 1:
        assert torch.equal(results[1][2], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("boundary", ["zero", "odd"])
def test_gradients_made_aside_are_those_of_the_chain(monkeypatch, boundary, centred, dims):
    torch.manual_seed(0)
    kernel = Convolution(2, 3, 3, dims, boundary).double()
    after = Convolution(3, 1, 3, dims, boundary).double()
    norm = (nn.BatchNorm1d, nn.BatchNorm2d)[dims - 1](3).double() if centred else nn.Identity()
    x = torch.randn(4, 2, *[8] * dims, dtype=torch.float64)

    def loss() -> torch.Tensor:
        return after(norm(kernel(x, norm)).tanh()).pow(2).sum()

    def gradients() -> list[torch.Tensor]:
        parameters = (*kernel.parameters(), *after.parameters())
        for parameter in parameters:
            parameter.grad = None
        loss().backward()
        return [parameter.grad for parameter in parameters]

    in_order = gradients()
    monkeypatch.setattr(convolution_module, "current_aside", lambda: "a stream")
    monkeypatch.setattr(convolution_module, "put_aside", lambda stream, *read: nullcontext())
    for ours, theirs in zip(gradients(), in_order, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    loss().backward()
    torch.testing.assert_close(kernel.weight.grad, 2 * in_order[0])  # added to what is there
    kernel.weight.requires_grad_(False)
    assert gradients()[0] is None


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("channels_in", "channels_out"), [(1, 8), (3, 1), (8, 2), (16, 16)])
def test_channels_filled_up_with_zeros_change_nothing(channels_in, channels_out, last, half):
    torch.manual_seed(0)
    convolution = Convolution(channels_in, channels_out, 3, 2).cuda()
    if last:
        weight = convolution.weight.data
        convolution.weight.data = weight.clone(memory_format=torch.channels_last)
    x = torch.randn(4, channels_in, 16, 16, device="cuda", requires_grad=True)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, convolution.weight, convolution.bias, padding=1)

    results = []
    for convolve in (convolution, plain):
        with torch.autocast("cuda", torch.float16, enabled=half):
            y = convolve(x)
        gradients = torch.autograd.grad(y.float().pow(2).sum(), (x, *convolution.parameters()))
        results.append((y.detach(), *gradients))
    for ours, theirs in zip(*results, strict=True):
        atol = (1e-2 if half else 2e-3) * float(theirs.norm())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of torch's own
@pytest.mark.parametrize("boundary", ["periodic", "even", "odd"])
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("margin", [1, 3, 4])  # 4: the whole axis, the ends overlap
def test_the_gradient_of_a_continuation_is_its_adjoint(boundary, axis, margin):
    torch.manual_seed(0)
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True)

    def extended(x):
        return extend(x, margin, boundary, axis)

    assert torch.autograd.gradcheck(extended, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: extended(x).pow(3), x)


def test_a_continuation_can_be_mapped_over():
    x = torch.randn(5, 2, 8)
    mapped = torch.func.vmap(lambda x: extend(x, 2, "odd", -1))(x)
    assert torch.equal(mapped, extend(x, 2, "odd", -1))
