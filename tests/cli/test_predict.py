import numpy as np
import pytest
import torch
import xarray
from matplotlib.image import imread

from torchcno.runs.folder import RunFolder, load
from torchcno.runs.ranges import OutOfRange


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, 1, 24, 24)).astype(np.float32)


def test_files_of_both_kinds_give_what_python_gives(cno, run_folder, tmp_path, inputs):
    expected = load(run_folder).apply_to(torch.from_numpy(inputs)).numpy()
    np.save(tmp_path / "in.npy", inputs)
    dims = ("sample", "input_channel", "y", "x")
    dataset = xarray.Dataset({"input": (dims, inputs)})
    dataset.to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    for source in ("in.npy", "in.nc"):
        for target in ("out.npy", "out.nc"):
            (tmp_path / target).unlink(missing_ok=True)
            words = (tmp_path / source, "--out", tmp_path / target, "--device", "cpu")
            assert cno("predict", run_folder, *words).code == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
        with xarray.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as saved:
            np.testing.assert_array_equal(saved["output"].values, expected)
            np.testing.assert_allclose(saved["x"].values, np.linspace(0, 1, 24))


def test_no_file_is_written_over(cno, run_folder, tmp_path, inputs):
    np.save(tmp_path / "in.npy", inputs)
    np.save(tmp_path / "mine.npy", np.arange(3))
    for target in ("in.npy", "mine.npy"):
        before = (tmp_path / target).read_bytes()
        outcome = cno("predict", run_folder, tmp_path / "in.npy", "--out", tmp_path / target)
        assert outcome.code == 2
        assert "is there already; give another name" in outcome.err
        assert (tmp_path / target).read_bytes() == before


def test_any_resolution(cno, run_folder, tmp_path):
    np.save(tmp_path / "in.npy", np.ones((1, 1, 40, 40)))
    assert cno("predict", run_folder, tmp_path / "in.npy", "--out", tmp_path / "o.npy").code == 0
    assert np.load(tmp_path / "o.npy").shape == (1, 1, 40, 40)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3, 24, 24)), "takes (sample, 1, y, x)"),
        (np.full((2, 1, 24, 24), np.nan), "NaN or infinite values, first in sample 0"),
        (np.zeros((2, 1, 24, 24), dtype=complex), "give real numbers"),
    ],
)
def test_bad_inputs_are_refused_and_nothing_is_written(cno, run_folder, tmp_path, array, message):
    np.save(tmp_path / "in.npy", array)
    outcome = cno("predict", run_folder, tmp_path / "in.npy", "--out", tmp_path / "out.npy")
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "out.npy").exists()


def test_bad_files_are_named(cno, run_folder, tmp_path, inputs):
    def predict(source: str, target: str = "out.npy"):
        return cno("predict", run_folder, tmp_path / source, "--out", tmp_path / target)

    np.save(tmp_path / "in.npy", inputs)
    whole = (tmp_path / "in.npy").read_bytes()
    (tmp_path / "half.npy").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "half.nc").write_bytes(b"\x89HDF\r\n\x1a\n half a file")
    with (tmp_path / "many.npy").open("wb") as file:
        np.savez(file, inputs)
    xarray.Dataset({"other": ("x", [1.0])}).to_netcdf(tmp_path / "no.nc", engine="h5netcdf")
    for outcome, message in (
        (predict("missing.npy"), "missing.npy"),
        (predict("missing.nc"), "missing.nc"),
        (predict("half.npy"), "half.npy is damaged"),
        (predict("half.nc"), "half.nc is damaged"),
        (predict("many.npy"), "many.npy is an archive of arrays"),
        (predict("no.nc"), "no variable `input`, but other"),
        (predict("in.txt"), "in.txt does not exist"),
        (predict("in.npy", "missing/out.npy"), "missing does not exist"),
    ):
        assert outcome.code == 2
        assert message in outcome.err
        assert "Traceback" not in outcome.err


def test_a_file_of_another_problem_is_refused(cno, run_folder, tmp_path, inputs):
    dims, target = ("sample", "input_channel", "y", "x"), tmp_path / "out.npy"
    for problem, code in (("poisson", 0), ("darcy", 2)):
        dataset = xarray.Dataset({"input": (dims, inputs)}, attrs={"problem": problem})
        dataset.to_netcdf(tmp_path / f"{problem}.nc", engine="h5netcdf")
        target.unlink(missing_ok=True)
        outcome = cno("predict", run_folder, tmp_path / f"{problem}.nc", "--out", target)
        assert outcome.code == code
    assert "holds inputs of darcy, and the network was trained on poisson" in outcome.err


def test_a_network_of_the_package_by_its_name(cno, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.ones((1, 1, 64, 64)))
    assert cno("predict", "poisson", "in.npy", "--out", "out.npy", "--device", "cpu").code == 0
    assert np.load("out.npy").shape == (1, 1, 64, 64)
    unknown = cno("predict", "poison", "in.npy", "--out", "other.npy")
    assert unknown.code == 2
    assert "did you mean 'poisson'?" in unknown.err


def test_bands_in_files_of_both_kinds_and_a_picture(cno, run_folder, tmp_path, inputs):
    np.save(tmp_path / "in.npy", 0.1 * inputs)
    words = ("predict", run_folder, tmp_path / "in.npy", "--confidence", 0.9, "--device", "cpu")
    outcome = cno(*words, "--out", tmp_path / "o.nc", "--plot", tmp_path / "o.png")
    assert outcome.code == 0
    assert "With confidence 0.9 their relative errors are at most" in outcome.out
    assert imread(tmp_path / "o.png").ndim == 3
    assert cno(*words, "--out", tmp_path / "o.npz").code == 0
    with pytest.warns(OutOfRange):
        expected = load(run_folder).predict(0.1 * inputs, confidence=0.9)
    with xarray.open_dataset(tmp_path / "o.nc", engine="h5netcdf") as saved:
        assert saved.attrs["confidence"] == 0.9
        archive = np.load(tmp_path / "o.npz")
        for name, found in (
            ("output", expected.value),
            ("half_width", expected.half_width),
            ("half_width_everywhere", expected.half_width_everywhere),
            ("relative_error_bound", expected.relative_error),
        ):
            np.testing.assert_array_equal(saved[name].values, found.numpy())
            np.testing.assert_array_equal(archive[name], found.numpy())
        assert saved["ood_score"].dims == ("sample",)


@pytest.mark.parametrize(
    ("confidence", "target", "message"),
    [
        ("1.5", "o.nc", "give a number between 0 and 1"),
        ("0.999", "o.nc", "needs 999 validation samples or more, and there are 128"),
        ("0.9", "o.npy", "use .nc or .npz"),
        ("high", "o.nc", "give a number"),
    ],
)
def test_bands_that_cannot_be_are_refused(
    cno, run_folder, tmp_path, inputs, confidence, target, message
):
    np.save(tmp_path / "in.npy", inputs)
    words = (tmp_path / "in.npy", "--confidence", confidence, "--out", tmp_path / target)
    outcome = cno("predict", run_folder, *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / target).exists()


def test_predictions_are_corrected_by_the_solver(cno, run_folder, tmp_path):
    u = RunFolder(run_folder).config().problem.pairs([torch.Generator().manual_seed(0)], 24)[0]
    np.save(tmp_path / "in.npy", u.float().numpy())
    words = ("predict", run_folder, tmp_path / "in.npy", "--device", "cpu")
    assert cno(*words, "--correct", 5, "--out", tmp_path / "o.npy").code == 0
    expected = load(run_folder).predict(u.float(), correct=5).numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected)
    outcome = cno(*words, "--correct", -1, "--out", tmp_path / "p.npy")
    assert outcome.code == 2
    assert "0 or more" in outcome.err
