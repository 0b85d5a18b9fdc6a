"""A data file explains itself to a stranger, and is believed only whole."""

import dataclasses
import hashlib
import json

import h5netcdf
import numpy as np
import pytest
import torch
import xarray

from torchcno.data import files
from torchcno.data.generate import generate
from torchcno.data.samples import Samples


@pytest.fixture
def path(toy, tmp_path):
    return generate(toy, "ood", folder=tmp_path, samples=3)


def test_a_stranger_understands_it(toy, path):
    assert path.name == "toy-ood-16.nc"
    with xarray.open_dataset(path) as data:
        assert dict(data.sizes) == {
            "sample": 3,
            "input_channel": 1,
            "output_channel": 1,
            "y": 16,
            "x": 16,
        }
        assert data.input.dtype == data.output.dtype == np.float32
        assert np.array_equal(data.x, np.arange(16) / 16)
        assert data.input.long_name == "wave u"
        assert data.output.long_name == "amplified wave v"
        assert data.description == "Amplification: v = a u of a sum u of K random waves."
        assert (data.problem, data.split, data.seed) == ("toy", "ood", 0)
        assert (data.grid, data.boundary) == ("periodic", "periodic")
        assert data.recipe_version == toy.version == 1
        recipe = json.loads(data.recipe)
        assert recipe["K"] == 5  # the constant out of distribution
        assert np.allclose(data.output, recipe["a"] * data.input, rtol=1e-6)
        values = data.input.values.tobytes() + data.output.values.tobytes()
        assert data.sha256 == hashlib.sha256(values).hexdigest()


@pytest.mark.parametrize(("dimension", "axes"), [(1, ("x",)), (3, ("z", "y", "x"))])
def test_other_dimensions_drop_or_add_axes(toy, tmp_path, dimension, axes):
    problem = dataclasses.replace(toy, dimension=dimension)
    path = generate(problem, "val", folder=tmp_path, samples=2, resolution=8)
    with xarray.open_dataset(path) as data:
        assert data.output.dims == ("sample", "output_channel", *axes)
    (inputs, _), grid = files.read(path, 2)
    assert grid == problem.grid(8)
    assert np.array_equal(inputs, Samples(problem, "val", 8).make(range(2))[0])


def test_what_is_read_is_what_was_made(toy, path):
    pair, grid = files.read(path, 3)
    made = Samples(toy, "ood", 16).make(range(3))
    assert grid == toy.grid(16)
    assert all(torch.equal(torch.from_numpy(a), b) for a, b in zip(pair, made, strict=True))


def test_a_file_without_a_version_is_of_the_first(toy, path):
    with h5netcdf.File(path, "a") as file:
        del file.attrs["recipe_version"], file.attrs["sha256_description"]
    assert files.read_header(path).identity == Samples(toy, "ood", 16).identity


class TestNotBelieved:
    def test_fewer_samples_than_asked_for(self, path):
        with pytest.raises(ValueError, match=r"toy-ood-16\.nc holds 3 of 4 samples"):
            files.read(path, 4)

    def test_one_altered_bit(self, toy, path):
        raw = bytearray(path.read_bytes())
        value = files.read(path, 1)[0][0].tobytes()[:64]
        raw[raw.index(value)] ^= 1
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=r"toy-ood-16\.nc are not those that were written"):
            files.read(path, 1)

    @pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
    def test_a_truncated_file(self, path, kept):
        raw = path.read_bytes()
        path.write_bytes(raw[: int(kept * len(raw))])
        with pytest.raises(OSError, match=r"toy-ood-16\.nc is damaged .* delete it, or generate"):
            files.read(path, 1)

    @pytest.mark.parametrize("name", [b"recipe", b"extent"])
    def test_damaged_metadata(self, path, name):
        raw = bytearray(path.read_bytes())
        raw[raw.index(name)] ^= 1
        path.write_bytes(raw)
        with pytest.raises(OSError, match=r"toy-ood-16\.nc is damaged .* delete it, or generate"):
            files.read(path, 1)

    @pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"CDF\x01 the classic NetCDF format"])
    def test_no_netcdf4_file(self, path, content):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"toy-ood-16\.nc is not a NetCDF4 file; delete it"):
            files.read_header(path)

    def test_someone_elses_netcdf_file(self, path):
        path.unlink()
        foreign = xarray.Dataset({"output": ("x", np.zeros(3))}, attrs={"problem": "mine"})
        foreign.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(ValueError, match=r"toy-ood-16\.nc is a NetCDF file, but no data file"):
            files.read_header(path)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.nc"):
            files.read_header(tmp_path / "nowhere.nc")

    def test_more_values_than_bytes(self, tmp_path):
        path = tmp_path / "toy-ood-16.nc"
        with h5netcdf.File(path, "w") as file:
            file.dimensions = {"sample": 10**6, "channel": 1, "y": 160, "x": 144}
            for name in ("input", "output"):
                file.create_variable(
                    name, ("sample", "channel", "y", "x"), "<f4", chunks=(1, 1, 1, 1)
                )
            file.attrs.update(problem="toy", recipe="", sha256="")
        with pytest.raises(
            OSError, match=r"toy-ood-16\.nc has \d+ bytes and claims to hold 184 GB"
        ):
            files.read(path, 1)

    def test_a_file_that_was_not_read_is_not_called_damaged(self, path, monkeypatch):
        def fail(*words, **options):
            raise OSError("Unable to read file (errno = 5, error message = 'Input/output error')")

        monkeypatch.setattr(h5netcdf, "File", fail)
        with pytest.raises(OSError, match=r"cannot be read: the disk failed") as error:
            files.read(path, 1)
        assert not isinstance(error.value, files.Damaged)
