import math

import pytest
import torch

from torchcno.training import loss_kernels
from torchcno.training.losses import (
    channel_l1_loss,
    relative_l1_loss,
    relative_l2_loss,
    weighted_l2_loss,
)


def test_relative_l1_is_one_ratio_for_the_whole_batch():
    # Sample by sample the errors are 1 and 0.1; together they are (1 + 1) / (1 + 10).
    target = torch.stack([torch.full((1, 4, 4), 1.0), torch.full((1, 4, 4), 10.0)])
    loss = relative_l1_loss(target + 1, target)
    torch.testing.assert_close(loss, torch.tensor(2 / 11))


def test_channel_l1_weighs_all_channels_alike_whatever_their_units():
    target, error = torch.rand(2, 3, 2, 4, 4, dtype=torch.float64) + 0.1
    units = torch.tensor([1.0, 1e5], dtype=torch.float64).reshape(2, 1, 1)
    alone = [relative_l1_loss((target + error)[:, [c]], target[:, [c]]) for c in range(2)]
    loss = channel_l1_loss(units * (target + error), units * target)
    torch.testing.assert_close(loss, (alone[0] + alone[1]) / 2)


def test_channel_l1_is_finite_where_a_channel_is_zero():
    target = torch.rand(3, 2, 4, 4)
    target[:, 1] = 0
    assert channel_l1_loss(target + 0.1, target).isfinite()
    assert channel_l1_loss(target, target) == 0


def test_relative_l2_is_the_mean_of_the_samples_ratios():
    target = torch.stack([torch.full((1, 4, 4), 1.0), torch.full((1, 4, 4), 10.0)])
    torch.testing.assert_close(relative_l2_loss(target + 1, target), torch.tensor(0.55))


@pytest.mark.parametrize("n", [16, 64])
def test_weighted_l2_of_a_scaled_target_is_the_scale_in_both_parts(n):
    target = torch.rand(3, 2, n, n, dtype=torch.float64)
    expected = 0.2 * (1 + math.sqrt(0.1 / n / 2))
    assert weighted_l2_loss(1.2 * target, target).item() == pytest.approx(expected)


def test_weighted_l2_sees_gradients_where_values_agree_in_norm():
    # A constant offset has no gradient: only the first part is left.
    target = torch.rand(3, 1, 16, 16, dtype=torch.float64)
    offset = weighted_l2_loss(target + 0.1, target)
    torch.testing.assert_close(offset, relative_l2_loss(target + 0.1, target))
    checkerboard = 0.1 * (-1.0) ** torch.arange(16, dtype=torch.float64)
    # Central differences of a checkerboard vanish too, so the wave has two points up and two down.
    wave = checkerboard[:8].repeat_interleave(2)
    assert weighted_l2_loss(target + wave, target) > relative_l2_loss(target + wave, target)


@pytest.mark.parametrize("samples", [1, 40])
def test_programs_of_the_relative_l1_have_its_value_and_gradient(samples):
    target = torch.randn(samples, 2, 16, 17)
    prediction = (target + torch.randn_like(target)).requires_grad_()
    prediction.data[0, 0, 0, 0] = target[0, 0, 0, 0]  # where |·| has a kink
    expected = relative_l1_loss(prediction, target)
    (gradient,) = torch.autograd.grad(1024 * expected, prediction)
    loss = loss_kernels.relative_l1(prediction, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(1024 * loss, prediction)[0], gradient)


def test_a_prediction_that_is_no_number_makes_none_of_loss_and_gradient():
    target, prediction = torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    prediction[0, 0, 1, 1] = torch.nan
    prediction.requires_grad_()
    loss = loss_kernels.relative_l1(prediction, target)
    loss.backward()
    assert loss.isnan()
    assert torch.equal(prediction.grad.isnan(), prediction.isnan())


@pytest.mark.gpu
def test_the_relative_l1_on_the_gpu_is_that_on_the_cpu():
    target = torch.randn(8, 1, 64, 64)
    prediction = (target + torch.randn_like(target)).requires_grad_()
    loss = relative_l1_loss(prediction, target)
    (gradient,) = torch.autograd.grad(loss, prediction)
    there = prediction.detach().cuda().requires_grad_()
    on_gpu = relative_l1_loss(there, target.cuda())
    torch.testing.assert_close(on_gpu.cpu(), loss)
    torch.testing.assert_close(torch.autograd.grad(on_gpu, there)[0].cpu(), gradient)
