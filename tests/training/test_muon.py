"""Steps of Muon: all directions of a matrix alike, and AdamW for what is no matrix."""

import pytest
import torch
from torch import nn

from torchcno.training import muon, muon_kernels, optimizers
from torchcno.training.muon import LENGTH, MOMENTUM, Muon, orthogonalized


def matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rotation(n: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(matrices(n, n, seed=seed))[0]


@pytest.mark.parametrize(("m", "n"), [(6, 40), (40, 6), (16, 16)])
def test_singular_values_become_about_one_and_vectors_stay(m, n):
    u, _, v = torch.linalg.svd(matrices(3, m, n), full_matrices=False)
    values = torch.logspace(0, -2, min(m, n), dtype=torch.float64)
    result = orthogonalized(u * values @ v)
    inner = u.mT @ result @ v.mT
    diagonal = inner.diagonal(dim1=1, dim2=2)
    assert (diagonal - 1).abs().max() < 0.4
    torch.testing.assert_close(inner, torch.diag_embed(diagonal), atol=1e-12, rtol=0)


def test_rotated_and_scaled_gradients_make_rotated_steps():
    q, g, r = rotation(5, 1), matrices(2, 5, 9), rotation(9, 2)
    torch.testing.assert_close(orthogonalized(1e-9 * q @ g @ r), q @ orthogonalized(g) @ r)


def test_no_gradient_makes_no_step():
    assert orthogonalized(torch.zeros(1, 3, 4)).eq(0).all()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_step_is_as_long_as_one_of_adamw(memory_format):
    weights = [
        nn.Parameter(matrices(8, 4, 3, 3, seed=i).to(memory_format=memory_format)) for i in (1, 2)
    ]
    before = [w.detach().clone() for w in weights]
    for i, w in enumerate(weights):
        w.grad = matrices(8, 4, 3, 3, seed=3 + i)
    Muon(weights, lr=0.1, weight_decay=0.5).step()
    for w, old in zip(weights, before, strict=True):
        step = (w.detach() - 0.95 * old).flatten(1)
        assert step.square().mean().sqrt() == pytest.approx(0.1 * LENGTH, rel=0.2)
        # The first average is 0.05 G, so it looks ahead along G itself.
        direction = orthogonalized(w.grad.flatten(1)[None])[0]
        torch.testing.assert_close(step, -0.1 * LENGTH * 36**0.5 * direction)


def test_gradients_are_averaged_over_the_steps():
    weight = nn.Parameter(matrices(4, 6))
    optimizer = Muon([weight], lr=0.1)
    average, expected = torch.zeros(4, 6, dtype=torch.float64), weight.detach().clone()
    for seed in (1, 2, 3):
        weight.grad = matrices(4, 6, seed=seed)
        average = MOMENTUM * average + (1 - MOMENTUM) * weight.grad
        ahead = MOMENTUM * average + (1 - MOMENTUM) * weight.grad
        expected -= 0.1 * LENGTH * 6**0.5 * orthogonalized(ahead[None])[0]
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected)


def test_what_is_no_matrix_follows_adamw():
    def network() -> nn.ParameterList:
        return nn.ParameterList(
            [matrices(5, dtype=torch.float32), matrices(3, 4, dtype=torch.complex64)]
        )

    ours, theirs = network(), network()
    muon = Muon(ours, lr=0.02, weight_decay=0.1)
    adamw = torch.optim.AdamW(theirs, lr=0.02, weight_decay=0.1)
    for seed in range(5):
        for weights, optimizer in ((ours, muon), (theirs, adamw)):
            for w in weights:
                w.grad = matrices(*w.shape, seed=seed, dtype=w.dtype)
            optimizer.step()
    for mine, w in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, w)


def test_divided_weights_are_refused(monkeypatch):
    monkeypatch.setattr(optimizers, "is_sharded", lambda model: True)
    with pytest.raises(ValueError, match="muon needs weights whole, and the strategy fsdp"):
        optimizers.make_optimizer("muon", nn.Linear(2, 2), 0.1, 0.0, torch.device("cpu"))


def interpreted_step(weights, averages, gradients, rate, decay, factor):
    scaled = [factor * gradient for gradient in gradients]
    frames = muon_kernels.make_frames(weights, averages, scaled)
    for frame in frames:
        muon_kernels.average_and_look_ahead(frame, MOMENTUM, factor)
        x = frame.x.double()
        directions = muon._iterate(x).half()
        muon_kernels.move(frame, directions, torch.tensor(rate), decay, LENGTH)
    return frames


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_matrices_of_all_sizes_move_together_as_each_would(memory_format):
    shapes = [(8, 4, 3, 3), (40, 2, 3, 3), (8, 8, 3, 3), (1, 8, 3, 3), (6, 30, 3, 3)]

    def draw(seed):
        return [
            matrices(*shape, seed=seed + i, dtype=torch.float32).to(memory_format=memory_format)
            for i, shape in enumerate(shapes)
        ]

    weights, averages, gradients = draw(0), draw(10), draw(20)
    before = [w.double() for w in weights]
    reference = [nn.Parameter(w.double()) for w in weights]
    optimizer = Muon(reference, lr=0.1, weight_decay=0.5)
    for w, m, g in zip(reference, averages, gradients, strict=True):
        optimizer._average(w).copy_(m)
        w.grad = g.double()
    optimizer.step()
    interpreted_step(weights, averages, gradients, rate=0.1, decay=0.5, factor=2.0**10)
    for w, m, old, expected in zip(weights, averages, before, reference, strict=True):
        moved = expected.detach()
        assert (w - moved).norm() < 2e-3 * (moved - old).norm()
        torch.testing.assert_close(m.double(), optimizer.state[expected]["exp_avg"])


@pytest.mark.parametrize(
    ("rows", "dtype", "far"), [(70, torch.float32, 1e-6), (64, torch.float16, 1e-3)]
)
def test_one_program_makes_the_polynomial_of_a_square(rows, dtype, far):
    x = matrices(3, rows, 2 * rows)
    square = (x @ x.mT / x.norm(dim=(1, 2), keepdim=True) ** 2).to(dtype)
    expected = muon._polynomial(square.double(), *muon.COEFFICIENTS)
    found = muon_kernels.polynomial(square, *muon.COEFFICIENTS)
    assert found.dtype == dtype
    assert (found.double() - expected).norm() < far * expected.norm()


def test_frames_hold_every_matrix_once_and_little_else():
    shapes = [(128, 1152)] * 16 + [(16, 144), (64, 9), (1, 576), (1024, 4608), (512, 4608)]
    weights = [torch.zeros(shape) for shape in shapes]
    frames = muon_kernels.make_frames(weights, weights, weights)
    assert sorted(i for frame in frames for i in frame.members) == list(range(len(shapes)))
    for frame in frames:
        inside = sum(weights[i].numel() for i in frame.members)
        assert frame.x.numel() <= muon_kernels.WASTE * inside
    assert len(frames) < 6


@pytest.mark.gpu
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_together_on_the_gpu_is_each_in_float64(memory_format):
    shapes = [(128, 128, 3, 3)] * 3 + [(64, 1, 3, 3), (16, 64, 3, 3), (192, 32, 3, 3)]
    ours = [
        nn.Parameter(
            matrices(*shape, seed=i, dtype=torch.float32).cuda().to(memory_format=memory_format)
        )
        for i, shape in enumerate(shapes)
    ]
    theirs = [nn.Parameter(w.detach().double().cpu()) for w in ours]
    rate = torch.tensor(0.02, device="cuda")
    optimizers = (
        Muon(ours, lr=rate, weight_decay=0.1, capturable=True),
        Muon(theirs, lr=float(rate), weight_decay=0.1),
    )
    for step in range(4):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = matrices(*a.shape, seed=100 * step + i)
            a.grad = gradient.to(a).to(memory_format=memory_format)
            b.grad = gradient
        before = [w.detach().clone() for w in theirs]
        for optimizer in optimizers:
            optimizer.step()
        for a, b, old in zip(ours, theirs, before, strict=True):
            move = (b.detach() - old).norm()
            assert (a.detach().double().cpu() - b.detach()).norm() < 0.01 * (step + 1) * move
