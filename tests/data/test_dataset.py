"""Fields keep their function under resampling, and `load` never returns another recipe's data."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from torchcno.data.dataset import data_folder, load, load_trajectories
from torchcno.data.fields import Fields
from torchcno.data.generate import generate
from torchcno.grids import Grid
from torchcno.spectral import NATURAL_EXTENSION


def fields(layout, n, function):
    grid = Grid((n, n), layout)
    u = function(*grid.mesh()).to(torch.float32)[None, None]
    return Fields(u, 2 * u, grid)


# Functions in the band-limited space of 12 points.
WAVES = {
    "periodic": lambda y, x: torch.sin(2 * torch.pi * (2 * x + y)) + 0.5,
    "inclusive": lambda y, x: (1 + x) * (2 - y) + torch.sin(3 * torch.pi * x) * y,
    "cell-centred": lambda y, x: torch.cos(3 * torch.pi * x) * torch.cos(torch.pi * y),
}


@pytest.mark.parametrize("layout", NATURAL_EXTENSION)
@pytest.mark.parametrize("resolution", [12, 17, 40])
def test_resampling_keeps_a_band_limited_function(layout, resolution):
    coarse = fields(layout, 20, WAVES[layout]).resampled(resolution)
    exact = fields(layout, resolution, WAVES[layout])
    assert coarse.grid == exact.grid
    assert torch.allclose(coarse.inputs, exact.inputs, atol=1e-6)
    assert torch.allclose(coarse.outputs, exact.outputs, atol=2e-6)


def test_resampling_takes_one_number_of_points_an_axis():
    square = fields("periodic", 20, WAVES["periodic"])
    oblong = square.resampled(12, 40)
    exact = WAVES["periodic"](*Grid((12, 40), "periodic").mesh()).float()
    assert oblong.grid.shape == (12, 40)
    assert torch.allclose(oblong.inputs[0, 0], exact, atol=1e-6)
    with pytest.raises(ValueError, match=r"3 numbers .* give one for all axes, or 2"):
        square.resampled(8, 8, 8)


def test_samples_and_batches():
    grid = Grid((4, 4), "periodic")
    u = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 1, 4, 4)
    data = Fields(u, -u, grid)
    assert len(data) == 3
    assert data[1][1].unique().item() == -1
    batch = next(iter(torch.utils.data.DataLoader(data, batch_size=3)))
    assert torch.equal(batch[0], u)


def test_fields_of_another_grid_are_refused():
    u = torch.zeros(3, 1, 4, 4)
    with pytest.raises(ValueError, match=r"do not pair up on a grid of shape \(4, 5\)"):
        Fields(u, u, Grid((4, 5), "periodic"))


def test_no_samples_and_no_points_are_refused():
    u = torch.zeros(3, 1, 4, 4)
    with pytest.raises(ValueError, match="are empty; give samples"):
        Fields(u[:0], u[:0], Grid((4, 4), "periodic"))
    with pytest.raises(ValueError, match=r"shape \(0, 0\) is too small"):
        Fields(u, u, Grid((4, 4), "periodic")).resampled(0)


class TestLoad:
    def test_a_missing_file_is_made_on_first_use_and_read_afterwards(self, toy, tmp_path):
        first = load(toy, "train", folder=tmp_path)
        toy.solved.clear()
        second = load(toy, "train", folder=tmp_path, samples=4)
        assert toy.solved == []
        assert len(first) == toy.samples["train"]
        assert torch.equal(second.inputs, first.inputs[:4])
        assert second.grid == toy.grid(16)

    def test_the_data_folder(self, toy, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCHCNO_DATA", str(tmp_path / "data"))
        load(toy, "val")
        assert (tmp_path / "data" / "toy-val-16.nc").exists()
        monkeypatch.delenv("TORCHCNO_DATA")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
        assert data_folder() == tmp_path / "caches" / "torchcno"
        assert data_folder(tmp_path) == tmp_path

    def test_more_samples_extend_the_file(self, toy, tmp_path):
        few = load(toy, "train", folder=tmp_path, samples=3)
        many = load(toy, "train", folder=tmp_path, samples=9)
        assert torch.equal(many.outputs[:3], few.outputs)
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_resolution_is_solved_for_not_resampled(self, toy, tmp_path):
        fine = load(toy, "train", folder=tmp_path, resolution=32, samples=2)
        assert (tmp_path / "toy-train-32.nc").exists()
        coarse = load(toy, "train", folder=tmp_path, samples=2)
        assert torch.allclose(fine.inputs[..., ::2, ::2], coarse.inputs, atol=1e-6)

    def test_a_shape_has_a_file_of_its_own(self, toy, tmp_path):
        wide = load(toy, "train", folder=tmp_path, resolution=(8, 12), samples=2)
        assert wide.grid.shape == (8, 12)
        assert (tmp_path / "toy-train-8x12.nc").exists()
        square = load(toy, "train", folder=tmp_path, resolution=(8, 8), samples=2)
        again = load(toy, "train", folder=tmp_path, resolution=8, samples=2)
        assert torch.equal(square.inputs, again.inputs)
        assert torch.equal(wide.inputs[:, :, ::4, ::6], square.inputs[:, :, ::4, ::4])

    def test_recipes_and_seeds_side_by_side(self, toy, tmp_path):
        variants = [(toy, 0), (toy, 1), *((dataclasses.replace(toy, a=a), 0) for a in (3.0, 4.0))]
        for _ in range(2):  # made, then read
            inputs = []
            for problem, seed in variants:
                data = load(problem, "train", folder=tmp_path, samples=2, seed=seed)
                assert torch.allclose(data.outputs, problem.a * data.inputs, rtol=1e-6)
                inputs.append(data.inputs)
            assert not torch.equal(inputs[0], inputs[1])
        assert len(list(tmp_path.rglob("toy-train-16.nc"))) == len(variants)

    @pytest.mark.parametrize("first", [2.0, 3.0])
    def test_a_users_own_file_is_used_where_it_matches(self, toy, tmp_path, first):
        generate(dataclasses.replace(toy, a=first), "train", folder=tmp_path)
        toy.solved.clear()
        for a in (2.0, 3.0):
            data = load(dataclasses.replace(toy, a=a), "train", folder=tmp_path, samples=1)
            assert torch.allclose(data.outputs, a * data.inputs, rtol=1e-6)
        assert sum(toy.solved) == 1  # the recipe that was not there

    def test_a_file_that_says_one_recipe_under_anothers_name_is_refused(self, toy, tmp_path):
        other = dataclasses.replace(toy, a=3.0)
        load(other, "train", folder=tmp_path)
        (misplaced,) = tmp_path.rglob("*.nc")
        generate(toy, "train", folder=misplaced.parent, overwrite=True)
        with pytest.raises(ValueError, match="another recipe"):
            load(other, "train", folder=tmp_path)

    def test_an_outdated_file_is_named_and_neither_used_nor_replaced(
        self, toy, corrected, tmp_path
    ):
        load(toy, "train", folder=tmp_path)
        path = tmp_path / "toy-train-16.nc"
        before = path.read_bytes()
        with pytest.raises(ValueError, match=rf"{path} .* version 1 .* version 2.* Delete"):
            load(corrected, "train", folder=tmp_path)
        assert path.read_bytes() == before
        path.unlink()
        data = load(corrected, "train", folder=tmp_path)
        assert torch.allclose(data.outputs, -2 * data.inputs, rtol=1e-6)
        with pytest.raises(ValueError, match=r"by version 2 .* makes version 1"):
            load(toy, "train", folder=tmp_path)

    def test_versions_of_a_recipe_that_is_not_the_default_lie_side_by_side(
        self, toy, corrected, tmp_path
    ):
        for _ in range(2):  # made, then read
            for problem, sign in ((toy, 1), (corrected, -1)):
                data = load(dataclasses.replace(problem, a=3.0), "train", folder=tmp_path)
                assert torch.allclose(data.outputs, 3 * sign * data.inputs, rtol=1e-6)
        assert len(list(tmp_path.rglob("toy-train-16.nc"))) == 2

    def test_a_damaged_file_is_not_replaced_in_silence(self, toy, tmp_path):
        load(toy, "train", folder=tmp_path)
        path = tmp_path / "toy-train-16.nc"
        path.write_bytes(path.read_bytes()[:-500])
        with pytest.raises(OSError, match=r"toy-train-16\.nc is damaged"):
            load(toy, "train", folder=tmp_path)


# In a process of its own: the types that tests check are those of the fields once they are made.
ARRAYS = """
import numpy as np
from torchcno import Fields, Grid

x = np.random.default_rng(0).random((3, 1, 4, 6))
fields = Fields(x, 2 * x, Grid([4, 6], "periodic"))
assert fields.resampled(4, 6).outputs.shape == x.shape
assert np.array_equal(fields.outputs.numpy(), 2 * x)
assert fields.grid == Grid((4, 6), "periodic")
try:
    Fields(x, 1j * x, fields.grid)
except ValueError as error:
    assert "outputs are complex; give real and imaginary part as channels" in str(error)
else:
    raise AssertionError("complex fields were taken")
"""


def test_fields_may_be_arrays_of_numpy_on_a_grid_of_a_list_and_are_real():
    subprocess.run([sys.executable, "-c", ARRAYS], check=True)


class TestLoadTrajectories:
    def test_they_begin_and_end_where_the_pairs_do(self, decay, tmp_path):
        pairs = load(decay, "ood", folder=tmp_path)
        trajectories = load_trajectories(decay, "ood", [0.0, 0.4, 1.0], folder=tmp_path)
        assert trajectories.grid == pairs.grid
        assert torch.equal(trajectories.at(0), pairs.inputs)
        assert torch.equal(trajectories.at(-1), pairs.outputs)

    def test_a_file_is_made_once_and_other_times_have_their_own(self, decay, tmp_path):
        tenths = [0.1 * i for i in range(4)]  # the last is not 0.3 in binary
        first = load_trajectories(decay, "val", tenths, folder=tmp_path)
        decay.solved.clear()
        again = load_trajectories(decay, "val", [0, 0.1, 0.2, 0.3], folder=tmp_path)
        assert not decay.solved
        assert torch.equal(first.states, again.states)
        other = load_trajectories(decay, "val", [0.0, 0.1], folder=tmp_path)
        assert torch.equal(other.states, first.states[:, :2])
        assert len(list(tmp_path.glob("decay-*/decay-trajectories-val-16.nc"))) == 2

    def test_a_file_of_generate_is_found(self, decay, tmp_path):
        path = generate(decay, "val", folder=tmp_path, times=[0.0, 1.0])
        decay.solved.clear()
        loaded = load_trajectories(decay, "val", [0.0, 1.0], folder=tmp_path)
        assert not decay.solved
        assert (path.parent, len(loaded)) == (tmp_path, 5)
