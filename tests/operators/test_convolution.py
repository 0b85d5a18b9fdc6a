import pytest
import torch
from torch import nn

from torchcno.operators.boundary import extend
from torchcno.operators.convolution import Convolution


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


def test_each_axis_has_its_own_boundary():
    torch.manual_seed(0)
    mixed = Convolution(2, 3, 3, 2, ("zero", "periodic")).double()
    plain = nn.Conv2d(2, 3, 3).double()
    plain.load_state_dict(mixed.state_dict())
    x = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    around = torch.cat([x[..., -1:], x, x[..., :1]], dim=-1)
    torch.testing.assert_close(mixed(x), plain(nn.functional.pad(around, (0, 0, 1, 1))))
    with pytest.raises(ValueError, match="one for all, or one per axis"):
        Convolution(1, 1, 3, 2, ("zero",) * 3)
