"""The authors' files, written here in their layout: value i in sample i, so that order shows."""

import h5py
import numpy as np
import pytest
import torch

from torchcno.data.rpb_files import ARCHIVES, read_fields, read_normalization

POINTS = 4


def named(toy, name):
    """A problem of that name on few points; the layout of its file is what is tested."""
    namesake = {"name": name, "resolution": POINTS, "normalized": name != "airfoil"}
    return type("Namesake", (type(toy),), namesake)()


def write(path, group, numbers, constants=()):
    with h5py.File(path, "w") as file:
        for key, value in constants:
            file[key] = value
        for i in numbers:
            file[f"{group.format(i)}/input"] = np.full((POINTS, POINTS), float(i))
            file[f"{group.format(i)}/output"] = np.full((POINTS, POINTS), -2.0 * i)


# problem: file, group, first sample of train, val, test and the length of each
LAYOUTS = {
    "poisson": ("PoissonData_64x64", "Sample_{}", (0, 1024), (1024, 128), (1152, 256)),
    "wave": ("WaveData_64x64", "Sample_{}_t_5", (0, 512), (1024, 128), (1152, 256)),
    "allen-cahn": ("AllenCahn_64x64", "Sample_{}", (0, 256), (256, 128), (384, 128)),
    "smooth-transport": ("ContTranslation_64x64", "Sample_{}", (0, 512), (512, 256), (768, 256)),
    "discontinuous-transport": (
        "DiscTranslation_64x64",
        "Sample_{}",
        (0, 512),
        (512, 256),
        (768, 256),
    ),
    "navier-stokes": ("NavierStokes_64x64", "Sample_{}", (0, 750), (768, 128), (896, 128)),
    "darcy": ("Darcy_64x64", "sample_{}", (0, 256), (256, 128), (384, 128)),
    "airfoil": ("Airfoil_128x128", "Sample_{}", (0, 750), (750, 128), (878, 128)),
}
CONSTANTS = {
    "poisson": ("min_inp", "max_inp", "min_out", "max_out"),
    "wave": ("min_u0", "max_u0", "min_u", "max_u"),
    "allen-cahn": ("min_u0", "max_u0", "min_u", "max_u"),
    "darcy": ("min_inp", "max_inp", "min_out", "max_out"),
}


def test_splits_are_the_stretches_of_the_authors_files():
    assert set(LAYOUTS) == set(ARCHIVES)
    for name, (_, _, *stretches) in LAYOUTS.items():
        for split, (start, count) in zip(("train", "val", "test"), stretches, strict=True):
            assert ARCHIVES[name].samples(split) == range(start, start + count)


@pytest.mark.parametrize("name", LAYOUTS)
def test_samples_come_in_numeric_order(toy, tmp_path, name):
    stem, group, _, (start, count), _ = LAYOUTS[name]
    write(tmp_path / f"{stem}_IN.h5", group, range(start - 2, start + count + 2))
    data = read_fields(named(toy, name), "val", tmp_path)
    numbers = torch.arange(start, start + count).float()
    assert data.inputs.shape == (count, 1, POINTS, POINTS)
    assert torch.equal(data.inputs[:, 0, 1, 2], numbers)
    assert torch.equal(data.outputs[:, 0, 2, 1], -2 * numbers)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"navier-stokes"}))
def test_ood_samples_begin_their_own_file(toy, tmp_path, name):
    stem, group, *_, (_, count) = LAYOUTS[name]
    write(tmp_path / f"{stem}_OUT.h5", group, range(count))
    data = read_fields(named(toy, name), "ood", tmp_path)
    assert torch.equal(data.inputs[:, 0, 0, 0], torch.arange(count).float())


def test_the_shear_layers_ood_file_is_band_limited_to_half_its_points(toy, tmp_path):
    fine = np.cos(2 * np.pi * np.arange(2 * POINTS) / (2 * POINTS))
    nyquist = np.cos(np.pi * np.arange(2 * POINTS))  # beyond the coarse grid: filtered, not folded
    with h5py.File(tmp_path / "NavierStokes_128x128_OUT.h5", "w") as file:
        for i in range(128):
            file[f"Sample_{i}/input"] = np.broadcast_to(fine + nyquist, (2 * POINTS,) * 2)
            file[f"Sample_{i}/output"] = np.broadcast_to(fine, (2 * POINTS,) * 2)
    data = read_fields(named(toy, "navier-stokes"), "ood", tmp_path)
    coarse = torch.from_numpy(fine[::2]).float().expand_as(data.inputs)
    assert data.grid.shape == (POINTS, POINTS)
    assert torch.allclose(data.inputs, coarse, atol=1e-6)
    assert torch.allclose(data.outputs, coarse, atol=1e-6)


class TestNormalization:
    @pytest.mark.parametrize("name", CONSTANTS)
    def test_stored_constants(self, toy, tmp_path, name):
        stem, group, *_ = LAYOUTS[name]
        stored = zip(CONSTANTS[name], (-1.5, 2.5, -0.1, 0.3), strict=True)
        write(tmp_path / f"{stem}_IN.h5", group, range(1), constants=stored)
        constants = read_normalization(named(toy, name), tmp_path)
        assert constants.input_min == -1.5
        assert constants.input_max == 2.5
        assert constants.output_min == -0.1
        assert constants.output_max == 0.3

    @pytest.mark.parametrize("name", ["navier-stokes", "darcy"])
    def test_extremes_of_the_training_stretch_alone(self, toy, tmp_path, name):
        stem, group, (_, train), *_ = LAYOUTS[name]
        write(tmp_path / f"{stem}_IN.h5", group, range(train + 2))
        constants = read_normalization(named(toy, name), tmp_path)
        assert (constants.input_min, constants.input_max) == (0, train - 1)
        assert (constants.output_min, constants.output_max) == (-2 * (train - 1), 0)

    @pytest.mark.parametrize("name", ["smooth-transport", "discontinuous-transport", "airfoil"])
    def test_fields_taken_as_they_are(self, toy, tmp_path, name):
        u = torch.linspace(-1, 2, 7)
        assert torch.equal(read_normalization(named(toy, name), tmp_path).normalize_inputs(u), u)


class TestWrongFiles:
    def test_a_missing_file(self, toy, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"Darcy_64x64_IN\.h5 is missing"):
            read_fields(named(toy, "darcy"), "train", tmp_path)

    def test_missing_groups(self, toy, tmp_path):
        write(tmp_path / "Darcy_64x64_IN.h5", "sample_{}", range(300))
        with pytest.raises(ValueError, match="has no 'sample_300/input'"):
            read_fields(named(toy, "darcy"), "val", tmp_path)

    def test_no_hdf5(self, toy, tmp_path):
        (tmp_path / "Darcy_64x64_IN.h5").write_text("<html>404</html>")
        with pytest.raises(OSError, match="no readable HDF5 file"):
            read_fields(named(toy, "darcy"), "train", tmp_path)

    def test_a_problem_without_published_files(self, toy, tmp_path):
        with pytest.raises(ValueError, match="unknown problem with published files 'toy'"):
            read_fields(toy, "train", tmp_path)
