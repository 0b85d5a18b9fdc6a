import dataclasses

import pytest
import torch

from torchcno.problems.airfoil import (
    MeshConfig,
    Naca4,
    Tabulated,
    c_mesh,
    mesh_quality,
    perturbed,
    rae2822,
)
from torchcno.problems.airfoil.geometry import HicksHenne


def random_shapes(n, bumps):
    generator = torch.Generator().manual_seed(0)
    psi = torch.rand(n, 2 * bumps, generator=generator, dtype=torch.float64)
    return perturbed(rae2822(), psi)


def test_the_default_has_the_nodes_of_the_paper():
    assert c_mesh(rae2822()).nodes.shape == (1, 2, 43, 243)


@pytest.mark.parametrize("bumps", [10, 15])
def test_no_cell_is_turned_over_and_the_cut_is_closed(bumps):
    quality = mesh_quality(c_mesh(random_shapes(200, bumps)))
    assert quality.least_area.min() > 0
    assert quality.closed.max() < 1e-30


def test_cells_tile_what_lies_between_wall_and_far_field(small):
    mesh = c_mesh(rae2822(), small)
    p = mesh.nodes[0]
    rim = torch.cat([p[:, 0], p[:, 1:, -1], p[:, -1, :-1].flip(1), p[:, 1:-1, 0].flip(1)], dim=1)
    x, y = rim
    enclosed = 0.5 * (x * y.roll(-1) - y * x.roll(-1)).sum()
    torch.testing.assert_close(mesh.areas.sum(), enclosed.abs())


def test_refinement_keeps_the_nodes(small):
    coarse, fine = c_mesh(rae2822(), small), c_mesh(rae2822(), small.refined(2))
    torch.testing.assert_close(fine.nodes[..., ::2, ::2], coarse.nodes, rtol=1e-12, atol=1e-12)


def test_the_wall_nodes_lie_on_the_airfoil(small):
    mesh = c_mesh(random_shapes(3, 10), small)
    wall = mesh.nodes[:, :, 0, small.wake : -small.wake]
    below, above = wall[..., :-1].tensor_split(2, dim=2)
    above = torch.cat([above, wall[..., -1:]], dim=2)
    for side, nodes in enumerate((below, above)):
        for sample in range(3):
            x, y = nodes[sample]
            surface = random_shapes(3, 10).surfaces(x.clamp(0, 1))[side][sample]
            torch.testing.assert_close(y, surface, rtol=0, atol=1e-9)


@pytest.mark.parametrize("distance", [5.0, 20.0])
def test_the_far_field_is_no_nearer_than_said(small, distance):
    p = c_mesh(rae2822(), dataclasses.replace(small, far_field=distance)).nodes[0]
    for edge in (p[:, -1], p[..., 0], p[..., -1]):
        assert torch.hypot(edge[0] - 0.5, edge[1]).min() >= distance


def test_indices_invert_the_mesh(small):
    """Also under the rear of RAE2822's lower surface, which rises above y = 0."""
    mesh = c_mesh(random_shapes(2, 10), small)
    for sample in (0, 1):
        for row in (1, 7):
            i, j = mesh.indices(*mesh.nodes[sample, :, row])
            expected = torch.arange(small.around + 1, dtype=torch.float64)
            torch.testing.assert_close(i[sample], expected, rtol=0, atol=1e-9)
            assert (j[sample] - row).abs().max() < 1e-9


def test_a_shape_that_makes_no_mesh_is_seen():
    lower, upper = torch.zeros(2, 3, 4, dtype=torch.float64)
    upper[1, 0] = -0.1  # the nose points down so steeply that √x does not order its points
    lower[1, 0] = -0.1
    lower[2, 1] = 0.2  # the lower surface bulges through the upper one
    mesh = c_mesh(HicksHenne(rae2822(), lower, upper))
    assert (mesh_quality(mesh).least_area > 0).tolist() == [True, False, True]
    assert mesh.valid.tolist() == [True, False, False]


def test_a_shape_that_is_open_at_an_end_is_refused_and_the_remedy_closes_it():
    open_by = 0.0025
    points = rae2822().points
    nose = min(range(len(points)), key=lambda k: points[k][0])
    behind = tuple((x, y + x * open_by * (k < nose)) for k, (x, y) in enumerate(points))
    with pytest.raises(ValueError, match=r"0\.0025 apart at the trailing edge"):
        c_mesh(Tabulated(behind))
    closed = tuple(
        (x, y - x * open_by / 2 * (1 if k < nose else -1)) for k, (x, y) in enumerate(behind)
    )
    assert mesh_quality(c_mesh(Tabulated(closed))).closed.max() < 1e-15

    class Slit(Naca4):
        def surfaces(self, x):
            lower, upper = super().surfaces(x)
            return lower, upper + 0.01 * (1 - x)

    with pytest.raises(ValueError, match=r"0\.01 apart at the nose"):
        c_mesh(Slit())


def test_bad_meshes_are_refused():
    with pytest.raises(ValueError, match="make no C-mesh"):
        MeshConfig(around=81)
    with pytest.raises(ValueError, match=r"far_field is 1\.0; use 2 or more"):
        MeshConfig(far_field=1.0)
    with pytest.raises(ValueError, match=r"trailing_edge is 0\.0; use more than 0"):
        MeshConfig(trailing_edge=0.0)
    with pytest.raises(ValueError, match="must not exceed 1"):
        MeshConfig(nose=1.1)
    with pytest.raises(ValueError, match=r"wall is 0\.0; use more than 0"):
        MeshConfig(wall=0.0)
    for focus in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"focus is {focus}; use"):
            MeshConfig(focus=focus)
