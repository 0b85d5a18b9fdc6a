"""The same trajectories from every source, and bit for bit from our own files."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray

from torchcno import Fields, Grid, Trajectories
from torchcno.data.generate import generate

TIMES = np.array([0.0, 0.25, 1.0])
U = np.random.default_rng(0).standard_normal((4, 3, 2, 6, 8)).astype(np.float32)
NU = np.array([1.0, 2.0, 3.0, 4.0])
GRID = Grid((6, 8), "periodic")


def dataset() -> xarray.Dataset:
    return xarray.Dataset(
        {
            "u": (("sample", "time", "y", "x"), U[:, :, 0]),
            "v": (("sample", "time", "y", "x"), U[:, :, 1]),
            "nu": (("sample",), NU),
        },
        {"time": TIMES, "y": GRID.axis(0).numpy(), "x": GRID.axis(1).numpy()},
    )


def write_netcdf(path: Path) -> tuple[Path, dict]:
    dataset().to_netcdf(path / "a.nc", engine="h5netcdf")
    return path / "a.nc", {}


def write_classic(path: Path) -> tuple[Path, dict]:
    dataset().to_netcdf(path / "a.nc", engine="scipy")
    return path / "a.nc", {}


def write_zarr(path: Path) -> tuple[Path, dict]:
    pytest.importorskip("zarr")
    dataset().to_zarr(path / "a.zarr", consolidated=False)
    return path / "a.zarr", {}


def write_hdf5(path: Path) -> tuple[Path, dict]:
    with h5py.File(path / "a.h5", "w") as file:
        file["flow/u"], file["nu"], file["t"] = U, NU, TIMES
    return path / "a.h5", {"states": "flow/u"}


def write_npz(path: Path) -> tuple[Path, dict]:
    np.savez(path / "a.npz", u=U, nu=NU, time=TIMES)
    return path / "a.npz", {"states": "u"}


SOURCES = {
    "netcdf": write_netcdf,
    "classic": write_classic,
    "zarr": write_zarr,
    "hdf5": write_hdf5,
    "npz": write_npz,
    "dataset": lambda path: (dataset(), {}),
    "mapping": lambda path: ({"u": U, "nu": NU, "times": torch.tensor(TIMES)}, {"states": "u"}),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.usefixtures("as_outside_tests")
def test_the_same_trajectories_come_back(kind, tmp_path):
    source, how = SOURCES[kind](tmp_path)
    found = Trajectories.open(source, parameters="nu", layout="periodic", **how)
    assert torch.equal(found.states, torch.from_numpy(U))
    assert found.times.tolist() == TIMES.tolist()
    assert found.grid == GRID
    assert found.parameters[:, 0].tolist() == NU.tolist()
    assert found.parameter_names == ("nu",)


@pytest.mark.usefixtures("as_outside_tests")
def test_one_array_needs_its_times():
    found = Trajectories.open(U, times=TIMES, layout="periodic")
    assert torch.equal(found.states, torch.from_numpy(U))
    single = Trajectories.open(U[:, :, 0], times=TIMES, grid=GRID)
    assert torch.equal(single.states, torch.from_numpy(U[:, :, :1]))
    with pytest.raises(ValueError, match=r"does not say its times; give them: times="):
        Trajectories.open(U, layout="periodic")
    with pytest.raises(ValueError, match="do not fit 2 times"):
        Trajectories.open(U, times=[0, 1], layout="periodic")


def test_variables_are_channels_with_their_names():
    assert Trajectories.open(dataset(), layout="periodic").names == ("u", "v")
    swapped = Trajectories.open(dataset(), states=["v", "u"], layout="periodic")
    assert torch.equal(swapped.states, torch.from_numpy(U[:, :, ::-1].copy()))


def test_one_trajectory_needs_no_samples():
    found = Trajectories.open(dataset().isel(sample=1), states=["u", "v"], layout="periodic")
    assert torch.equal(found.states, torch.from_numpy(U[1:2]))


def test_axes_may_have_any_order_and_name():
    renamed = dataset().rename(time="t", sample="member").transpose("y", "t", "x", "member")
    found = Trajectories.open(renamed, states=["u", "v"], time="t", layout="periodic")
    assert torch.equal(found.states, torch.from_numpy(U))
    assert found.times.tolist() == TIMES.tolist()


def test_what_does_not_change_in_time_is_the_same_at_all_times():
    static = dataset().assign(depth=(("y", "x"), U[0, 0, 0]))
    found = Trajectories.open(static, states=["u", "depth"], layout="periodic")
    assert torch.equal(found.states[:, :, 1], torch.from_numpy(U[0, 0, 0]).expand(4, 3, 6, 8))


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_dates_are_seconds_since_the_first(kind):
    hours = np.array([3, 4, 6]) * 3600 * 10**9
    dated = dataset().assign_coords(time=hours.astype(kind))
    found = Trajectories.open(dated, states="u", layout="periodic").times
    assert found.diff().tolist() == [3600.0, 7200.0]


def test_a_pair_of_times_is_what_fields_open():
    pair = Fields.open(dataset(), inputs="u", outputs="u", times=(0, 2), layout="periodic")
    found = Trajectories.open(dataset(), states="u", layout="periodic").as_fields(0, 2)
    assert torch.equal(found.inputs, pair.inputs)
    assert torch.equal(found.outputs, pair.outputs)
    assert found.grid == pair.grid


def test_a_file_of_generate_is_trajectories(decay, tmp_path):
    path = generate(decay, "val", folder=tmp_path, times=[0.0, 0.5, 1.0])
    found = Trajectories.open(path)
    assert found.times.tolist() == [0.0, 0.5, 1.0]
    assert found.grid == decay.grid(decay.resolution)
    assert len(found) == decay.samples["val"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("grid", [GRID, Grid((6, 8), ("inclusive", "periodic"), ((0, 2), (1, 4)))])
def test_what_is_written_is_read_bit_for_bit(dtype, grid, tmp_path):
    states = torch.from_numpy(U).to(dtype) / 3
    numbers = torch.from_numpy(NU)[:, None]
    whole = Trajectories(states, torch.tensor(TIMES), grid, ("u", "v"), numbers, ("nu",))
    found = Trajectories.open(whole.write(tmp_path / "folder" / "a.nc"))
    assert torch.equal(found.states, states)
    assert found.states.dtype == dtype
    assert torch.equal(found.times, whole.times)
    assert torch.equal(found.parameters, numbers)
    assert (found.grid, found.names, found.parameter_names) == (grid, ("u", "v"), ("nu",))
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a.nc"]


def test_a_file_is_whole_or_not_there_and_never_written_over(tmp_path, monkeypatch):
    whole = Trajectories(torch.from_numpy(U), torch.tensor(TIMES), GRID)
    path = whole.write(tmp_path / "a.nc")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="delete it, or choose another name"):
        whole.write(path)
    with pytest.raises(ValueError, match=r"call it a\.nc"):
        whole.write(tmp_path / "a.npy")
    monkeypatch.setattr("torchcno.data.files.checksum_of_description", lambda file: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        whole.write(tmp_path / "b.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["a.nc"]
    assert path.read_bytes() == before


def test_changed_values_are_noticed(tmp_path):
    path = Trajectories(torch.from_numpy(U), torch.tensor(TIMES), GRID).write(tmp_path / "a.nc")
    content, value = path.read_bytes(), U[0].tobytes()[:64]
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, bytes(64)))
    with pytest.raises(ValueError, match="are not those that were written"):
        Trajectories.open(path)


@pytest.mark.parametrize(
    ("change", "how", "words"),
    [
        (lambda d: d.drop_vars("time"), {}, "does not say its times"),
        (lambda d: d.isel(time=[0, 2, 1]), {}, "times do not increase: 1 is followed by 0.25"),
        (lambda d: d.isel(time=[0]), {}, "1 time is no trajectory"),
        (lambda d: d[["nu"]], {}, "say which variables are states"),
        (lambda d: d, {"states": "w"}, "no variable 'w'; name one of u"),
        (lambda d: d, {"states": "nu"}, "nu has no axis 'time'; it has sample"),
        (lambda d: d, {"time": "t"}, "say which variables are states"),
        (lambda d: d, {"states": "u", "time": "t"}, "u has no axis 't'"),
        (lambda d: d, {"parameters": "u"}, "u of shape .* is no parameter of 4 trajectories"),
        (lambda d: d.where(d.nu < 3), {}, "NaN or infinite in 2 of 4 trajectories, first in numb"),
    ],
)
def test_what_is_no_trajectory_says_what_to_give(change, how, words):
    with pytest.raises(ValueError, match=words):
        Trajectories.open(change(dataset()), layout="periodic", **how)


@pytest.mark.parametrize(
    "damage", [lambda c: c[: len(c) // 2], lambda c: b"no file", lambda c: b""]
)
def test_a_damaged_file_is_named(damage, tmp_path):
    path = Trajectories(torch.from_numpy(U), torch.tensor(TIMES), GRID).write(tmp_path / "a.nc")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises((ValueError, OSError), match=r"a\.nc"):
        Trajectories.open(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Trajectories.open(tmp_path / "nowhere.nc")
