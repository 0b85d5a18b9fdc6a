from itertools import chain

import pytest
import torch
from torch import Generator, Tensor, nn

from torchcno.problems import NavierStokes, SmoothTransport
from torchcno.training.augmentation import (
    GROUPS,
    ZEROS,
    Mover,
    average_over_group,
    axis_exchange,
    flow_reflection,
    move_back,
    move_by,
    odd_square_symmetry,
    square_group,
    square_symmetry,
    translation,
)
from torchcno.training.moving_kernels import take_moved


def move(symmetry, u, generator, zero=0.0):
    """All samples of u, moved by one element of the symmetry."""
    numbers = torch.tensor([*chain(*symmetry(u.shape[2:], u.shape[1], generator))])
    return Mover(u.shape[2:], u.device, zero)(u, torch.arange(len(u)), numbers)


def draws(symmetry, u, n=200, zero=0.0):
    generator = Generator().manual_seed(0)
    return [move(symmetry, u, generator, zero) for _ in range(n)]


def test_square_symmetries_are_the_eight_of_the_square():
    u = torch.arange(16.0).view(1, 1, 4, 4)
    found = {tuple(v.flatten().tolist()) for v in draws(square_symmetry, u)}
    rotations = [torch.rot90(w, k, (2, 3)) for w in (u, u.flip(3)) for k in range(4)]
    assert found == {tuple(v.flatten().tolist()) for v in rotations}


def test_odd_square_symmetries_are_those_of_the_square_and_their_negatives():
    u = torch.arange(1.0, 10.0).view(1, 1, 3, 3)
    found = {tuple(v.flatten().tolist()) for v in draws(odd_square_symmetry, u)}
    even = {tuple(v.flatten().tolist()) for v in draws(square_symmetry, u)}
    assert found == even | {tuple(-x for x in v) for v in even}


def test_a_wind_along_the_diagonal_blows_as_well_on_exchanged_axes():
    problem = SmoothTransport()
    state = problem.sample_inputs(problem.grid(16), 1, Generator().manual_seed(0))
    start, end = problem.observe(state), problem.observe(problem.solve(state))
    images, ends = draws(axis_exchange, start, n=20), draws(axis_exchange, end, n=20)
    for of_start, of_end in zip(images, ends, strict=True):
        # vT is three of these grid steps along each axis.
        torch.testing.assert_close(of_start[..., :-3, :-3], of_end[..., 3:, 3:])
    assert not torch.allclose(start, start.mT, atol=0.1)
    assert all(torch.equal(v, start) or torch.equal(v, start.mT) for v in images)
    assert {torch.equal(v, start) for v in images} == {True, False}


def test_translations_are_all_those_of_the_torus():
    u = torch.arange(12.0).view(1, 1, 3, 4)
    found = {tuple(v.flatten().tolist()) for v in draws(translation, u)}
    shifts = [u.roll((i, j), (2, 3)) for i in range(3) for j in range(4)]
    assert found == {tuple(v.flatten().tolist()) for v in shifts}


MIRRORS = {  # (u, v) to its image
    "none": lambda u, v: (u, v),
    "y": lambda u, v: (u.flip(-2), -v.flip(-2)),
    "x": lambda u, v: (-u.flip(-1), v.flip(-1)),
    "both": lambda u, v: (-u.flip(-2, -1), -v.flip(-2, -1)),
}


@pytest.mark.parametrize("components", ["u", "uv"])
def test_reflections_are_the_mirror_images_of_a_flow(components):
    # Steps small enough: which one a flow takes depends on where the grid meets its largest speed.
    problem = NavierStokes(components, N=32, T=0.1, cfl=0.1)
    start = problem.sample_inputs(problem.grid(32), 1, Generator().manual_seed(0))
    end = problem.solve(start)
    images = []
    for mirror in MIRRORS.values():
        of_start, of_end = (torch.stack(mirror(*w.unbind(1)), 1) for w in (start, end))
        torch.testing.assert_close(problem.solve(of_start), of_end, rtol=0, atol=1e-6)
        images.append(0.5 + problem.observe(of_end) / 8)
    found = draws(flow_reflection, 0.5 + problem.observe(end) / 8, zero=0.5)
    for image in images:
        assert any(torch.allclose(image, v) for v in found)
    for v in found:
        assert any(torch.allclose(image, v) for image in images)


def test_three_channels_are_no_plane_velocity():
    u = torch.rand(1, 3, 4, 4)
    with pytest.raises(ValueError, match="are no velocity"):
        draws(flow_reflection, u, n=1)


def test_a_mask_is_mirrored_and_has_no_sign():
    mask = torch.rand(1, 2, 4, 4) < 0.5
    images = [mask.flip(axes) for axes in ([], [-1], [-2], [-1, -2])]
    for moved in draws(flow_reflection, mask):
        assert any(torch.equal(moved, image) for image in images)


def test_channels_and_samples_move_together():
    u = torch.rand(3, 2, 5, 5)
    for symmetry in (square_symmetry, axis_exchange, translation):
        whole = move(symmetry, u, Generator().manual_seed(1))
        single = move(symmetry, u[1:2, 1:], Generator().manual_seed(1))
        assert torch.equal(whole[1:2, 1:], single)


@pytest.mark.parametrize("symmetry", [square_symmetry, axis_exchange])
def test_a_rectangle_has_not_the_symmetries_of_the_square(symmetry):
    with pytest.raises(ValueError, match=r"\(4, 6\)"):
        symmetry(torch.Size((4, 6)), 1, Generator())


@pytest.mark.parametrize("symmetry", [square_symmetry, translation])
def test_cubes_and_lines_move_as_squares_do(symmetry):
    for space in ((5,), (3, 3, 3)):
        u = torch.rand(2, 1, *space)
        for moved in draws(symmetry, u, n=20):
            assert torch.equal(moved.flatten(1).sort().values, u.flatten(1).sort().values)
    line = torch.arange(4.0).view(1, 1, 4)
    found = {tuple(v.flatten().tolist()) for v in draws(square_symmetry, line)}
    assert found == {(0, 1, 2, 3), (3, 2, 1, 0)}


def test_any_samples_move_as_all_do():
    u, batch = torch.rand(6, 1, 4, 4), torch.tensor([4, 0, 4])
    numbers = torch.tensor([*chain(*translation(u.shape[2:], 1, Generator().manual_seed(0)))])
    mover = Mover(u.shape[2:], u.device)
    assert torch.equal(mover(u, batch, numbers), mover(u, torch.arange(6), numbers)[batch])


@pytest.mark.parametrize("group", GROUPS)
def test_an_average_over_a_group_is_equivariant_to_rounding(group):
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.GELU(), torch.nn.Conv2d(4, 1, 3, padding=1)
    ).double()
    u = torch.rand(2, 1, 6, 6, dtype=torch.float64)
    mover, everyone = Mover(u.shape[2:], u.device, ZEROS.get(group, 0.0)), torch.arange(2)
    v, alone = average_over_group(network, group, u), network(u)
    largest = 0.0
    for move in GROUPS[group](u.shape[2:], 1):
        numbers = torch.tensor([*chain(*move)])
        assert torch.equal(move_by(u, move, mover.zero), mover(u, everyone, numbers))
        assert torch.equal(move_back(move_by(u, move), move), u)
        moved = average_over_group(network, group, mover(u, everyone, numbers))
        torch.testing.assert_close(moved, mover(v, everyone, numbers), rtol=0, atol=1e-12)
        single = network(mover(u, everyone, numbers)) - mover(alone, everyone, numbers)
        largest = max(largest, float(single.detach().abs().max()))
    assert largest > 1e-3  # the network by itself has not the symmetry


@pytest.mark.parametrize("points", [1, 3 * 36, 5 * 36, 10**9])
def test_an_average_is_the_same_in_batches_of_any_size(monkeypatch, points):
    u, scale = torch.rand(2, 1, 6, 6, dtype=torch.float64), torch.tensor([[2.0], [-3.0]]).double()

    def network(v, rows):
        return rows[:, :, None, None] * v.cumsum(2) * v

    moves = square_group(u.shape[2:], 1)
    alone = [move_back(network(move_by(u, move), scale), move) for move in moves]
    monkeypatch.setattr("torchcno.training.augmentation.AT_ONCE", points)
    averaged = average_over_group(network, "square", u, scale)
    torch.testing.assert_close(averaged, torch.stack(alone).mean(0))


def test_an_average_is_exported_for_any_batch():
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, u: Tensor) -> Tensor:
            return average_over_group(self.network, "odd-square", u)

    averaged = Averaged()
    batch = torch.export.Dim("batch", min=1)
    written = torch.export.export(averaged, (torch.rand(2, 1, 6, 6),), dynamic_shapes=({0: batch},))
    for samples in (1, 5):
        u = torch.rand(samples, 1, 6, 6)
        torch.testing.assert_close(written.module()(u), averaged(u))


def test_rectangles_are_not_averaged_over_the_square():
    with pytest.raises(ValueError, match="as many points along every axis"):
        average_over_group(lambda u: u, "square", torch.rand(1, 1, 4, 6))


@pytest.mark.parametrize("space", [(7,), (6, 6), (4, 4, 4)])
@pytest.mark.parametrize("symmetry", [translation, odd_square_symmetry])
def test_one_program_takes_and_moves_as_operations_do(space, symmetry):
    fields = torch.randn(5, 2, *space, generator=Generator().manual_seed(0))
    batch, mover = torch.tensor([3, 0, 3]), Mover(torch.Size(space), torch.device("cpu"), 0.3)
    generator = Generator().manual_seed(1)
    for u in (
        fields,
        fields > 0,
        fields.flip(1)[:, :1],
        fields.transpose(0, 1).clone().transpose(0, 1),
    ):
        numbers = torch.tensor([*chain(*symmetry(u.shape[2:], 2, generator))])
        expected = mover(u, batch % len(u), numbers)
        moved = take_moved(u, batch % len(u), numbers, mover.n, mover.strides, mover.zero)
        assert torch.equal(moved, expected)
