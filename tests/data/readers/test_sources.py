"""The same fields come back whatever they were kept in, and nothing of them is lost in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import xarray
from torch.utils.data import DataLoader, TensorDataset

from torchcno import Fields, Grid
from torchcno.data.opening import open_stored
from torchcno.sizes import available_memory

N, SHAPE = 6, (4, 8)
GRID = Grid(SHAPE, ("inclusive", "periodic"), ((0.0, 1.0), (0.0, 2.0)))
RNG = np.random.default_rng(0)
A, U = RNG.random((2, N, *SHAPE)).astype(np.float32)
W = RNG.random((N, 2, *SHAPE)).astype(np.float32)  # a vector
NU = RNG.random(N).astype(np.float32)  # a number per sample
HOLE = RNG.random(SHAPE) > 0.3  # a geometry, the same for all
HOW = {"inputs": ["a", "nu"], "outputs": ["u", "w"], "layout": ("inclusive", "periodic")}


def dataset() -> xarray.Dataset:
    y, x = (GRID.axis(i).numpy() for i in range(2))
    return xarray.Dataset(
        {
            "a": (("sample", "y", "x"), A),
            "u": (("sample", "y", "x"), U),
            "w": (("sample", "component", "y", "x"), W),
            "nu": (("sample",), NU),
            "hole": (("y", "x"), HOLE.astype(np.int8)),
        },
        {"y": y, "x": x},
    )


def write_hdf5(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file.update({"a": A, "u": U, "w": W, "nu": NU, "hole": HOLE.astype(np.int8)})
    return path


def write_npz(path: Path) -> Path:
    np.savez(path, a=A, u=U, w=W, nu=NU, hole=HOLE)
    return path


def write_netcdf(path: Path, **options: Any) -> Path:
    dataset().to_netcdf(path, **options)
    return path


def write_zarr(path: Path, **options: Any) -> Path:
    pytest.importorskip("zarr")
    dataset().to_zarr(path, consolidated=False, **options)
    return path


def write_plain_zarr(path: Path) -> Path:
    group = pytest.importorskip("zarr").create_group(path)
    for name, values in (("a", A), ("u", U), ("w", W), ("nu", NU)):
        group.create_array(name, data=values)
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "netcdf 4": lambda p: write_netcdf(p / "f.nc", engine="h5netcdf"),
    "netcdf 3": lambda p: write_netcdf(p / "f.nc", engine="scipy", format="NETCDF3_64BIT"),
    "zarr 2": lambda p: write_zarr(p / "f.zarr", zarr_format=2),
    "zarr 3": lambda p: write_zarr(p / "f.zarr", zarr_format=3),
    "plain zarr": lambda p: write_plain_zarr(p / "f.zarr"),
    "hdf5": lambda p: write_hdf5(p / "f.h5"),
    "npz": lambda p: write_npz(p / "f.npz"),
    "xarray": lambda p: dataset(),
    "xarray, other axes": lambda p: dataset().transpose("component", "sample", "y", "x"),
    "mapping": lambda p: {"a": A, "u": U, "w": W, "nu": NU},
    "mapping of tensors": lambda p: {"a": torch.tensor(A), "u": U, "w": W, "nu": NU.tolist()},
}
NAMED = ("netcdf 4", "netcdf 3", "zarr 2", "zarr 3", "xarray", "xarray, other axes")


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.filterwarnings("ignore:.*zarr.*:UserWarning", "ignore:.*Zarr.*")
def test_the_same_fields_come_back(kind, tmp_path):
    source = SOURCES[kind](tmp_path)
    fields = Fields.open(source, **HOW)
    inputs, outputs = fields
    assert torch.equal(inputs[:, 0], torch.tensor(A))
    assert torch.equal(inputs[:, 1], torch.tensor(NU)[:, None, None].expand(N, *SHAPE))
    assert torch.equal(outputs, torch.cat([torch.tensor(U)[:, None], torch.tensor(W)], dim=1))
    assert fields.input_names == ("a", "nu")
    assert fields.output_names == ("u", "w_0", "w_1")
    assert fields.grid.layouts == GRID.layouts
    if kind in NAMED:
        assert np.allclose(fields.grid.extent, GRID.extent)
    stored = open_stored(source, **HOW)
    picked = stored[[4, 1, 1]].load()
    assert torch.equal(picked.inputs, fields.inputs[[4, 1, 1]])
    assert torch.equal(stored[3][1], fields[3][1])
    parts = zip(stored.split(2, 3, seed=1), fields.split(2, 3, seed=1), strict=True)
    assert all(torch.equal(a.load().outputs, b.outputs) for a, b in parts)


PAIRS: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda p: (A[:, None], W),
    "dataset": lambda p: TensorDataset(torch.tensor(A[:, None]), torch.tensor(W)),
    "loader": lambda p: DataLoader(
        TensorDataset(torch.tensor(A[:, None]), torch.tensor(W)), batch_size=4
    ),
    "data arrays": lambda p: (dataset()["a"], dataset()["w"]),
    "npy": lambda p: tuple(
        np.save(p / f"{name}.npy", values) or p / f"{name}.npy"
        for name, values in (("a", A[:, None]), ("w", W))
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_need_no_names(kind, tmp_path):
    inputs, outputs = Fields.open(PAIRS[kind](tmp_path), layout="periodic")
    assert torch.equal(inputs, torch.tensor(A[:, None]))
    assert torch.equal(outputs, torch.tensor(W))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.astype(">f4"),
        lambda a: a.astype(">f8"),
        lambda a: a.astype(np.longdouble),
        lambda a: np.asfortranarray(a),
        lambda a: np.flip(np.flip(a, -1).copy(), -1),
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: torch.tensor(a).requires_grad_(),
        lambda a: torch.tensor(np.moveaxis(a, 1, -1)).movedim(-1, 1),
    ],
)
def test_byte_order_strides_and_kind_of_numbers_make_no_difference(change, as_outside_tests):
    inputs, outputs = Fields(change(W), change(W[:, :1]), Grid(SHAPE, "periodic"))
    torch.testing.assert_close(inputs, torch.tensor(W), check_dtype=False, rtol=1e-7, atol=0)
    assert inputs.is_floating_point()
    assert outputs.shape == (N, 1, *SHAPE)


@pytest.mark.parametrize("kind", ["i1", "u2", "<i4", ">i8", "?"])
def test_whole_numbers_are_numbers(kind, as_outside_tests):
    values = (10 * W).astype(kind)
    inputs, _ = Fields(values, values, Grid(SHAPE, "periodic"))
    assert torch.equal(inputs.double(), torch.tensor(values.astype(float)))


REFUSED = {
    "imaginary": (W + 1j, "real and imaginary part as channels"),
    "masked": (np.ma.masked_less(W, 0.5), "masked values"),
    "text": (W.astype(str), "real numbers"),
    "objects": (W.astype(object), "real numbers"),
    "sparse": (torch.tensor(W).to_sparse(), "to_dense"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_lose_something_is_refused(kind, as_outside_tests):
    bad, remedy = REFUSED[kind]
    with pytest.raises(ValueError, match=remedy):
        Fields(bad, W, Grid(SHAPE, "periodic"))
    if kind not in ("masked", "sparse"):
        with pytest.raises(ValueError, match=remedy):
            Fields.open((bad, W), layout="periodic")


class TestMissing:
    def test_values_that_are_missing_are_refused_with_what_to_do(self):
        broken = W.copy()
        broken[3, 0, 1, 1] = np.nan
        for source in ((A[:, None], broken), (A[:, None], np.ma.masked_invalid(broken))):
            with pytest.raises(ValueError, match=r"first in sample 3.*mask='missing'"):
                Fields.open(source, layout="periodic")

    def test_missing_outputs_do_not_count(self):
        holes = np.broadcast_to(HOLE, W.shape)
        fields = Fields.open(
            (A[:, None], np.where(holes, W, np.nan)), layout="periodic", mask="missing"
        )
        assert torch.equal(fields.counts(), torch.tensor(holes))
        assert torch.equal(fields.outputs, torch.tensor(np.where(holes, W, 0)))
        assert torch.equal(fields[2:4].mask, torch.tensor(holes[2:4]))

    def test_a_mask_by_name_is_where_outputs_count(self, tmp_path):
        path = write_netcdf(tmp_path / "f.nc", engine="h5netcdf")
        fields = Fields.open(path, **HOW, mask="hole")
        assert torch.equal(fields.counts()[0, 0], torch.tensor(HOLE))
        given = Fields.open(path, **HOW, mask=HOLE)
        assert torch.equal(given.counts(), fields.counts())

    def test_values_missing_where_the_mask_counts_are_refused(self):
        broken = np.where(HOLE, W, np.nan)
        broken[0, 0][HOLE] = np.nan
        with pytest.raises(ValueError, match="first in sample 0"):
            Fields.open((A[:, None], broken), layout="periodic", mask=HOLE)


def test_a_file_with_fill_values_has_missing_values(tmp_path):
    holed = dataset()
    holed["u"] = holed["u"].where(HOLE)
    holed.to_netcdf(tmp_path / "f.nc", encoding={"u": {"_FillValue": -999.0}})
    with pytest.raises(ValueError, match="mask='missing'"):
        Fields.open(tmp_path / "f.nc", **HOW)


class TestAxes:
    def test_an_array_that_could_be_two_things_is_asked_about(self):
        square = RNG.random((5, 32, 32))
        with pytest.raises(ValueError, match="dimension=1 or dimension=2"):
            Fields.open((square, square), layout="periodic")
        fields = Fields.open((square, square), layout="periodic", dimension=2)
        assert fields.inputs.shape == (5, 1, 32, 32)

    def test_one_dimension_and_three(self):
        line, box = RNG.random((7, 32)), RNG.random((3, 2, 4, 5, 6))
        assert Fields.open((line, line), layout="periodic").inputs.shape == (7, 1, 32)
        assert Fields.open((box, box[:, :1]), layout="inclusive").grid.shape == (4, 5, 6)

    def test_a_time_axis_is_asked_about_and_picked(self):
        path = xarray.Dataset({"u": (("sample", "time", "x"), RNG.random((5, 3, 8)))})
        with pytest.raises(ValueError, match=r"times=\(0, -1\)"):
            Fields.open(path, inputs="u", outputs="u", layout="periodic")
        how = {"inputs": "u", "outputs": "u", "layout": "periodic"}
        inputs, outputs = Fields.open(path, **how, times=(0, -1))
        assert torch.equal(inputs[:, 0], torch.tensor(path["u"].values[:, 0]))
        assert torch.equal(outputs[:, 0], torch.tensor(path["u"].values[:, 2]))

    @pytest.mark.parametrize(
        ("positions", "remedy"), [([0, 1, 3, 4], "interpolate"), ([3, 2, 1, 0], "sort it")]
    )
    def test_irregular_coordinates_are_refused(self, positions, remedy):
        with pytest.raises(ValueError, match=remedy):
            Fields.open(dataset().assign_coords(y=positions), **HOW)

    @pytest.mark.parametrize("layout", ["periodic", "cell-centred", "inclusive"])
    def test_coordinates_give_the_extent_of_their_layout(self, layout):
        grid = Grid((8,), layout, ((-1.0, 3.0),))
        u = (("sample", "x"), RNG.random((3, 8)))
        source = xarray.Dataset({"a": u, "u": u}, {"x": grid.axis(0).numpy()})
        fields = Fields.open(source, inputs="a", outputs="u", layout=layout)
        assert fields.grid.extent[0] == pytest.approx(grid.extent[0])

    def test_a_layout_that_nobody_states_is_guessed_aloud(self):
        grid = Grid((16, 16), ("inclusive", "periodic"))
        y, x = grid.mesh()
        phases = torch.rand(5, 1, 1)
        u = torch.sin(torch.pi * y) * torch.sin(2 * torch.pi * (x + phases))
        with pytest.warns(UserWarning, match="y inclusive, x periodic"):
            fields = Fields.open({"u": u}, inputs="u", outputs="u", dimension=2)
        assert fields.grid == grid


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read():
    class Huge:
        dtype, shape = np.dtype("f4"), (10**6, 1, 10**4, 10**4)

        def __getitem__(self, key):
            pairs = zip(key, self.shape, strict=True)
            return np.zeros([len(range(*k.indices(n))) for k, n in pairs])

    assert available_memory() is not None
    with pytest.raises(ValueError, match=r"TB of memory.*open_stored"):
        Fields.open((Huge(), Huge()), layout="periodic")


BAD = {
    "nothing there": ("nothing.nc", {}, FileNotFoundError, "does not exist"),
    "another ending": (__file__, {}, ValueError, "say format="),
    "no such format": (__file__, {"format": "netcfd"}, ValueError, "did you mean 'netcdf'"),
    "a number": (3, {}, ValueError, "give a path"),
    "one DataArray": (dataset()["a"], {}, ValueError, "to_dataset"),
    "no names": ({"a": A}, {}, ValueError, "which variables are inputs"),
    "another name": ({"a": A}, {"inputs": "b", "outputs": "a"}, ValueError, "has no variable 'b'"),
    "other samples": ((A, U[:3]), {"dimension": 2}, ValueError, "does not fit 3 samples"),
    "no pairs": (TensorDataset(torch.zeros(3, 1, 4)), {}, ValueError, r"pairs \(input, output\)"),
    "four layouts": ((W, W), {"layout": ("periodic",) * 4}, ValueError, "axes of space"),
    "other grid": ((W, W), {"grid": Grid((5, 5), "periodic")}, ValueError, "do not lie on"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sources_say_what_to_give(case, as_outside_tests):
    source, how, error, remedy = BAD[case]
    with pytest.raises(error, match=remedy):
        Fields.open(source, **how)


@pytest.mark.parametrize("ending", [".nc", ".h5", ".npz"])
def test_a_damaged_file_is_named(tmp_path, ending):
    for content in (b"", b"\x89HDF\r\n\x1a\nxxxxxxxx", b"CDF\x01xx", b"PK\x03\x04xx"):
        path = tmp_path / f"f{ending}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"f\.(nc|h5|npz) is (damaged|no NetCDF)"):
            Fields.open(path, **HOW)
