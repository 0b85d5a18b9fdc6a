import pytest
import torch
from torch import nn

from torchcno.training import averaging_kernels
from torchcno.training.averaging import (
    WeightAverage,
    copy_statistics,
    hold_statistics,
    recalibrate_batch_norm,
)
from torchcno.training.tables import BLOCK, make_table


def test_the_average_is_the_normalised_exponential_one():
    model = nn.Linear(3, 1, bias=False).double()
    average = WeightAverage(model, half_life=2.0)
    history = [torch.randn(1, 3, dtype=torch.float64) for _ in range(7)]
    for step, weights in enumerate(history, start=1):
        share = average.share(step)
        average.update([weights], torch.tensor(share) if step % 2 else share)
    decay = 2 ** (-1 / 2)
    parts = torch.tensor([decay ** (7 - s) for s in range(1, 8)], dtype=torch.float64)
    expected = (parts[:, None, None] * torch.stack(history)).sum(0) / parts.sum()
    torch.testing.assert_close(next(average.model.parameters()).data, expected, rtol=1e-6, atol=0)


def test_complex_weights_are_averaged_too():
    model = nn.ParameterDict({"w": nn.Parameter(torch.ones(4, dtype=torch.complex64))})
    average = WeightAverage(model, half_life=1.0)
    average.update([torch.full((4,), 2j)], average.share(1))
    torch.testing.assert_close(average.model["w"].data, torch.full((4,), 2j))


def test_recalibrated_statistics_are_the_mean_of_the_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    inputs = 3 + 2 * torch.randn(40, 2, 8, 8)
    model(100 * inputs)  # statistics of something else
    recalibrate_batch_norm(model, inputs, batch_size=10)
    batches = inputs.split(10)
    means = torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0)
    variances = torch.stack([b.transpose(0, 1).flatten(1).var(1) for b in batches]).mean(0)
    torch.testing.assert_close(model[0].running_mean, means)
    torch.testing.assert_close(model[0].running_var, variances)
    # Nothing random: dropout before the second norm is off, so twice is the same.
    first = model[3].running_mean.clone()
    recalibrate_batch_norm(model, inputs, batch_size=10)
    assert torch.equal(model[3].running_mean, first)
    assert not any(module.training for module in model.modules())
    assert model[0].momentum == 0.1


def test_held_statistics_make_training_mode_that_of_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(0.0))
    u = torch.randn(4, 1, 8, 8)
    expected, before = model.eval()(u), model[1].running_mean.clone()
    model.train()
    assert not torch.allclose(model(u), expected)
    model[1].running_mean.copy_(before)
    model[1].running_var.fill_(1.0)
    hold_statistics(model)
    assert torch.equal(model(u), expected)
    assert torch.equal(model[1].running_mean, before)
    assert model.training
    assert model[2].training  # whatever else knows training is in training


def test_copied_statistics_make_equal_weights_the_same_network():
    torch.manual_seed(0)
    model, other = (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)) for _ in range(2))
    other[0].load_state_dict(model[0].state_dict())
    u = torch.randn(4, 1, 8, 8)
    model(u)  # other statistics than those of a new network
    model.eval()
    other.eval()
    assert not torch.allclose(model(u), other(u))
    copy_statistics(model, other)
    assert torch.equal(model(u), other(u))


def test_one_program_moves_all_averages():
    shapes = [(3, 5, 3, 3), (1,), (70, 90), (BLOCK,)]
    averages, weights = ([torch.randn(shape) for shape in shapes] for _ in range(2))
    share = torch.tensor(0.3, dtype=torch.float64)
    expected = [torch.lerp(a, w, 0.3) for a, w in zip(averages, weights, strict=True)]
    averaging_kernels.move_averages(make_table(averages, weights), share)
    torch.testing.assert_close(averages, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
def test_averages_on_the_gpu_are_those_on_the_cpu():
    def network(seed: int) -> nn.ParameterList:
        torch.manual_seed(seed)
        kernel = torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last)
        return nn.ParameterList([kernel, torch.randn(6), torch.randn(3, dtype=torch.complex64)])

    averages = [WeightAverage(network(0).to(device), half_life=2.0) for device in ("cpu", "cuda")]
    for step in range(1, 5):
        for average, device in zip(averages, ("cpu", "cuda"), strict=True):
            share = torch.tensor(average.share(step), dtype=torch.float64, device=device)
            weights = [w.data for w in network(step).to(device)]
            average.update(weights, share if device == "cuda" else float(share))
    for here, there in zip(*(average.model for average in averages), strict=True):
        torch.testing.assert_close(there.cpu(), here)
