"""Files laid out as those of The Well and of PDEBench."""

import h5py
import numpy as np
import pytest
import torch

from torchcno import Fields, Trajectories

N, T, SHAPE = 3, 5, (6, 8)
RNG = np.random.default_rng(0)


def write_well(path):
    with h5py.File(path, "w") as file:
        file.attrs.update(n_trajectories=N, n_spatial_dims=2, grid_type="cartesian")
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        dimensions["time"] = np.arange(T, dtype="f4")
        dimensions["x"] = np.arange(SHAPE[0], dtype="f4") / SHAPE[0]
        dimensions["y"] = (np.arange(SHAPE[1], dtype="f4") + 0.5) / SHAPE[1]
        for axis, kind in (("x", "PERIODIC"), ("y", "WALL")):
            condition = file.create_group(f"boundary_conditions/{axis}")
            condition.attrs.update(associated_dims=[axis], bc_type=kind)
        whole = {"sample_varying": True, "time_varying": True, "dim_varying": [True, True]}
        arrays = {
            "t0_fields/pressure": (RNG.random((N, T, *SHAPE)), whole),
            "t0_fields/geometry": (
                RNG.random(SHAPE),
                {**whole, "sample_varying": False, "time_varying": False},
            ),
            "t1_fields/velocity": (RNG.random((N, T, *SHAPE, 2)), whole),
            "t2_fields/stress": (RNG.random((N, T, *SHAPE, 2, 2)), whole),
            "scalars/Re": (RNG.random(N), {"sample_varying": True, "time_varying": False}),
        }
        for name, (values, attributes) in arrays.items():
            file[name] = values.astype("f4")
            file[name].attrs.update(attributes)
    return {name.split("/")[1]: values.astype("f4") for name, (values, _) in arrays.items()}


def test_a_file_of_the_well(tmp_path):
    arrays = write_well(tmp_path / "well.hdf5")
    fields = Fields.open(tmp_path / "well.hdf5", format="the-well")
    assert fields.grid.layouts == ("periodic", "cell-centred")
    assert fields.grid.extent[1] == pytest.approx((0, 1))
    assert fields.output_names == (
        "pressure", "velocity_0", "velocity_1", "stress_0", "stress_1", "stress_2", "stress_3"
    )  # fmt: skip
    last = fields.output_names.index("velocity_1")
    assert np.array_equal(fields.outputs[:, last], arrays["velocity"][:, -1, ..., 1])
    inputs = dict(zip(fields.input_names, fields.inputs.movedim(1, 0), strict=True))
    assert np.array_equal(inputs["pressure"], arrays["pressure"][:, 0])
    assert np.array_equal(inputs["geometry"][1], arrays["geometry"])
    assert torch.equal(inputs["Re"][:, 0, 0], torch.tensor(arrays["Re"]))


def test_trajectories_of_the_well(tmp_path):
    arrays = write_well(tmp_path / "well.hdf5")
    found = Trajectories.open(tmp_path / "well.hdf5", format="the-well")
    assert found.times.tolist() == list(range(T))
    assert found.names[:3] == ("pressure", "velocity_0", "velocity_1")
    assert np.array_equal(found.states[:, :, 2], arrays["velocity"][..., 1])
    assert found.parameter_names == ("Re",)
    assert np.array_equal(found.parameters[:, 0].float(), arrays["Re"])
    assert found.grid.layouts == ("periodic", "cell-centred")


def test_trajectories_of_pdebench(tmp_path):
    u = RNG.random((N, T, 16)).astype("f4")
    with h5py.File(tmp_path / "burgers.hdf5", "w") as file:
        file["tensor"], file["x-coordinate"] = u, (np.arange(16) + 0.5) / 16
        file["t-coordinate"] = np.arange(T + 1.0)
    fields = Fields.open(tmp_path / "burgers.hdf5", format="pdebench", layout="periodic")
    assert np.array_equal(fields.inputs[:, 0], u[:, 0])
    assert np.array_equal(fields.outputs[:, 0], u[:, -1])
    first = Fields.open(
        tmp_path / "burgers.hdf5", format="pdebench", layout="periodic", times=(1, 2)
    )
    assert np.array_equal(first.outputs[:, 0], u[:, 2])
    whole = Trajectories.open(tmp_path / "burgers.hdf5", format="pdebench", layout="periodic")
    assert np.array_equal(whole.states[:, :, 0], u)
    assert whole.times.tolist() == list(range(T))  # the file has the end of the last step, too


def test_a_compressible_flow_of_pdebench(tmp_path):
    arrays = {name: RNG.random((N, T, *SHAPE)).astype("f4") for name in ("density", "Vx", "Vy")}
    with h5py.File(tmp_path / "cfd.hdf5", "w") as file:
        file.update(arrays)
    fields = Fields.open(tmp_path / "cfd.hdf5", format="pdebench", layout="periodic")
    assert fields.input_names == ("density", "Vx", "Vy")
    assert np.array_equal(fields.outputs[:, 2], arrays["Vy"][:, -1])


def test_darcy_flow_of_pdebench(tmp_path):
    nu, u = RNG.random((N, *SHAPE)).astype("f4"), RNG.random((N, 1, *SHAPE)).astype("f4")
    with h5py.File(tmp_path / "darcy.hdf5", "w") as file:
        file["nu"], file["tensor"] = nu, u
    fields = Fields.open(tmp_path / "darcy.hdf5", format="pdebench", layout="cell-centred")
    assert np.array_equal(fields.inputs[:, 0], nu)
    assert np.array_equal(fields.outputs, u)


def test_a_group_per_sample_of_pdebench(tmp_path):
    u = RNG.random((N, T, *SHAPE, 2)).astype("f4")
    with h5py.File(tmp_path / "react.h5", "w") as file:
        for i in range(N):
            file[f"{i:04d}/data"] = u[i]
            file[f"{i:04d}/grid/x"] = np.linspace(-1, 1, SHAPE[0])
            file[f"{i:04d}/grid/t"] = np.linspace(0, 2, T)
    fields = Fields.open(tmp_path / "react.h5", format="pdebench", layout="inclusive")
    assert np.array_equal(fields.outputs, np.moveaxis(u[:, -1], -1, 1))
    assert fields.grid.extent[0] == pytest.approx((-1, 1))
    whole = Trajectories.open(tmp_path / "react.h5", format="pdebench", layout="inclusive")
    assert np.array_equal(whole.states, np.moveaxis(u, -1, 2))
    assert whole.step == pytest.approx(0.5)


@pytest.mark.parametrize("format", ["the-well", "pdebench"])
def test_a_file_that_is_laid_out_otherwise_is_refused(tmp_path, format):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a"] = np.zeros(3)
    with pytest.raises(ValueError, match="is it of"):
        Fields.open(tmp_path / "other.h5", format=format)
