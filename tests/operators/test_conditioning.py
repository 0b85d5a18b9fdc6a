"""Scalars that scale and shift fields."""

import pytest
import torch
from torch import nn

from torchcno.operators import Activation, Block, Convolution, WindowedSinc
from torchcno.operators.conditioning import (
    Conditioner,
    Modulation,
    as_rows,
    check_names,
    conditioning_of,
    is_conditioned,
    modulate,
    with_constant_channels,
)


def modulation(batch=3, channels=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(2)
    shape = (batch, channels)
    return Modulation(*(torch.randn(shape, dtype=dtype, generator=generator) for _ in range(2)))


@pytest.mark.parametrize("space", [(5,), (4, 6), (2, 3, 4)])
def test_modulations_compose_as_affine_maps(space):
    v, (a, b) = torch.randn(3, 2, *space, dtype=torch.float64), modulation()
    there = modulate(v, Modulation(a, b))
    back = modulate(there, Modulation(1 / (1 + a) - 1, -b / (1 + a)))
    torch.testing.assert_close(back, v, rtol=1e-12, atol=1e-12)


def test_no_modulation_and_one_of_zeros_are_the_identity_to_the_last_bit():
    v, zero = torch.randn(3, 2, 4, 4), torch.zeros(3, 2)
    assert modulate(v, None) is v
    assert torch.equal(modulate(v, Modulation(zero, zero)), v)


def test_fields_stay_as_they_lie_and_what_they_are():
    scale, shift = modulation(dtype=torch.float32)
    for v in (torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4, dtype=torch.float16)):
        last = v.to(memory_format=torch.channels_last)
        moved = modulate(last, Modulation(scale, shift))
        assert moved.is_contiguous(memory_format=torch.channels_last)
        assert moved.dtype == v.dtype


@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_a_conditional_norm(training):
    torch.manual_seed(0)
    activation = Activation(2, (4, 4), (4, 4), "tanh", WindowedSinc(), "zero", 2)
    block = Block(Convolution(1, 2, 3, 2), nn.BatchNorm2d(2), activation).double().train(training)
    conditioner = Conditioner(1, [2]).double()
    nn.init.normal_(conditioner.scales_and_shifts.weight)

    def work(v, time):
        return block(v, iter(conditioner(time)))

    v = torch.randn(3, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    time = torch.rand(3, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(work, (v, time))


def test_a_block_with_a_modulation_is_its_four_parts():
    torch.manual_seed(0)
    activation = Activation(2, (8, 8), (4, 4), "leaky_relu", WindowedSinc(), "zero", 2)
    nn.init.normal_(activation.bias)
    block = Block(Convolution(1, 2, 3, 2), nn.BatchNorm2d(2), activation).double()
    v, m = torch.randn(3, 1, 8, 8, dtype=torch.float64), modulation()
    y = block(v, iter([m]))
    block.norm.reset_running_stats()
    parts = block.activation(modulate(block.norm(block.convolution(v)), m))
    torch.testing.assert_close(y, parts, rtol=1e-11, atol=1e-11)


def test_one_product_has_the_channels_of_all_norms():
    conditioner = Conditioner(2, [3, 5])
    nn.init.normal_(conditioner.scales_and_shifts.weight)
    rows = torch.rand(4, 2)
    first, second = conditioner(rows)
    assert first.scale.shape == first.shift.shape == (4, 3)
    assert second.scale.shape == second.shift.shape == (4, 5)
    for row, scale in zip(rows, second.scale, strict=True):  # a row depends on its scalars alone
        torch.testing.assert_close(conditioner(row[None])[1].scale[0], scale)


def test_times_closer_than_half_precision_stay_apart_under_autocast():
    conditioner = Conditioner(1, [4])
    nn.init.normal_(conditioner.scales_and_shifts.weight)
    times = torch.tensor([[0.5], [0.5 + 1e-4]])
    with torch.autocast("cpu", torch.bfloat16):
        early, late = conditioner(times)[0].scale
    assert early.dtype == torch.float32
    assert not torch.equal(early, late)


class TestRows:
    u = torch.zeros(3, 1, 4, 4)

    def test_every_form_is_one_row_per_sample(self):
        times = torch.tensor([0.1, 0.2, 0.3])
        assert torch.equal(as_rows(times, ("time",), self.u), times[:, None])
        assert torch.equal(as_rows(times[:, None], ("time",), self.u), times[:, None])
        for one in (0.5, torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([[0.5]])):
            assert torch.equal(as_rows(one, ("time",), self.u), torch.full((3, 1), 0.5))
        two = torch.rand(3, 2)
        assert torch.equal(as_rows(two, ("time", "viscosity"), self.u), two)
        assert torch.equal(as_rows(two[0], ("time", "viscosity"), self.u), two[:1].expand(3, 2))
        whole = as_rows(torch.tensor([1, 2, 3]), ("time",), self.u)
        assert torch.equal(whole, torch.tensor([[1.0], [2.0], [3.0]]))
        assert as_rows(None, (), self.u) is None

    @pytest.mark.parametrize(
        ("given", "names", "message"),
        [
            (None, ("time",), r"depends on time; call network\(u, conditions\).*\(batch, 1\)"),
            (0.5, (), "has none; leave them out"),
            (torch.rand(2), ("time",), r"shape \(2,\) do not fit 3 samples .* give \(3, 1\)"),
            (torch.rand(3, 2), ("time",), r"shape \(3, 2\) do not fit"),
            (torch.rand(3), ("time", "viscosity"), r"give \(3, 2\), or \(1, 2\) for all"),
            (0.5, ("time", "viscosity"), r"shape \(\) do not fit"),
            (torch.rand(3, 1, 1), ("time",), r"shape \(3, 1, 1\) do not fit"),
            (torch.rand(3) * 1j, ("time",), "give real numbers"),
        ],
    )
    def test_others_are_refused_with_a_remedy(self, given, names, message):
        with pytest.raises(ValueError, match=message):
            as_rows(given, names, self.u)


def test_constant_channels_come_behind_the_fields():
    u, rows = torch.randn(2, 1, 3, 4), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    joined = with_constant_channels(u, rows)
    assert torch.equal(joined[:, :1], u)
    assert torch.equal(joined[:, 1:], rows[:, :, None, None].expand(2, 2, 3, 4))
    assert with_constant_channels(u, None) is u


def test_names_are_words_and_each_comes_once():
    assert check_names("time") == check_names(["time"]) == ("time",)
    assert check_names(()) == ()
    with pytest.raises(ValueError, match="twice; give each name once"):
        check_names(("time", "time"))
    with pytest.raises(ValueError, match="give words such as 'time'"):
        check_names(("",))


def test_a_module_without_a_configuration_has_no_scalars():
    assert conditioning_of(nn.Identity()) == ()
    assert not is_conditioned(nn.Identity())
