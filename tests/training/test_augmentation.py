import pytest
import torch
from torch import Generator

from torchcno.problems import NavierStokes, SmoothTransport
from torchcno.training.augmentation import (
    axis_exchange,
    flow_reflection,
    square_symmetry,
    translation,
)


def draws(symmetry, u, n=200):
    generator = Generator().manual_seed(0)
    return [symmetry(u.shape[2:], generator)(u) for _ in range(n)]


def test_square_symmetries_are_the_eight_of_the_square():
    u = torch.arange(16.0).view(1, 1, 4, 4)
    found = {tuple(v.flatten().tolist()) for v in draws(square_symmetry, u)}
    rotations = [torch.rot90(w, k, (2, 3)) for w in (u, u.flip(3)) for k in range(4)]
    assert found == {tuple(v.flatten().tolist()) for v in rotations}


def test_a_wind_along_the_diagonal_blows_as_well_on_exchanged_axes():
    problem = SmoothTransport()
    state = problem.sample_inputs(problem.grid(16), 1, Generator().manual_seed(0))
    start, end = problem.observe(state), problem.observe(problem.solve(state))
    exchanges = [axis_exchange(start.shape[2:], Generator().manual_seed(i)) for i in range(20)]
    for exchange in exchanges:
        # vT is three of these grid steps along each axis.
        before, after = exchange(start)[..., :-3, :-3], exchange(end)[..., 3:, 3:]
        torch.testing.assert_close(before, after)
    assert not torch.allclose(start, start.mT, atol=0.1)
    images = [exchange(start) for exchange in exchanges]
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
    found = draws(flow_reflection, 0.5 + problem.observe(end) / 8)
    for image in images:
        assert any(torch.allclose(image, v) for v in found)
    for v in found:
        assert any(torch.allclose(image, v) for image in images)


def test_three_channels_are_no_plane_velocity():
    u = torch.rand(1, 3, 4, 4)
    with pytest.raises(ValueError, match="3 channels are no plane velocity"):
        draws(flow_reflection, u, n=1)


def test_a_mask_is_mirrored_and_has_no_sign():
    mask = torch.rand(1, 3, 4, 4) < 0.5
    images = [mask.flip(axes) for axes in ([], [-1], [-2], [-1, -2])]
    for moved in draws(flow_reflection, mask):
        assert any(torch.equal(moved, image) for image in images)


def test_channels_and_samples_move_together():
    u = torch.rand(3, 2, 5, 5)
    for symmetry in (square_symmetry, axis_exchange, translation):
        whole = symmetry(u.shape[2:], Generator().manual_seed(1))(u)
        single = symmetry(u.shape[2:], Generator().manual_seed(1))(u[1:2, 1:])
        assert torch.equal(whole[1:2, 1:], single)


@pytest.mark.parametrize("symmetry", [square_symmetry, axis_exchange])
def test_a_rectangle_has_not_the_symmetries_of_the_square(symmetry):
    with pytest.raises(ValueError, match=r"\(4, 6\)"):
        symmetry(torch.Size((4, 6)), Generator())
