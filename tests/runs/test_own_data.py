"""What `train` makes of a user's fields; docs/own-data.md is its longer test."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchcno import (
    CNO,
    PRESETS,
    CNOConfig,
    Fields,
    Grid,
    Normalization,
    OutOfRange,
    RunFolder,
    evaluate_run,
    load,
    resume_run,
    train,
    train_on,
)
from torchcno.cli import main
from torchcno.data.statistics import OddData
from torchcno.evaluation.errors import sample_errors
from torchcno.evaluation.symmetries import find_symmetries
from torchcno.metrics import relative_l1
from torchcno.models.ffnn import FFNN
from torchcno.runs import fitting
from torchcno.runs.audit import audit_run
from torchcno.runs.choose import choose_network, choose_recipe
from torchcno.runs.folder import read_config
from torchcno.runs.watching import Watch
from torchcno.training import Pairs, save_tensors

RECIPE = replace(PRESETS["best"], epochs=2, batch_size=4, evaluate_every=1)
GRID = Grid((6, 8), "cell-centred", ((0.0, 3.0), (-1.0, 1.0)))


def fields(n: int = 8, channels: int = 2, grid: Grid = GRID) -> Fields:
    """Pairs of float64: the sum of the inputs and one more."""
    u = 5 * torch.rand(n, channels, *grid.shape, dtype=torch.float64)
    return Fields(u, 1 + u.sum(1, keepdim=True), grid)


def network(channels: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return FFNN(FFNN.Config(in_channels=channels, size=(6, 8), layers=2, width=8))


def test_the_folder_holds_the_operator_that_was_trained(tmp_path: Path) -> None:
    operator = train_on(network(), fields(), fields(), tmp_path, recipe=RECIPE, name="sum")
    again = load(tmp_path)
    assert (again.problem, again.model, again.grid) == ("sum", "ffnn", GRID)
    u = fields().inputs
    torch.testing.assert_close(again.predict(u), operator.predict(u))
    torch.testing.assert_close(again.predict(u.numpy()), operator.predict(u))
    with pytest.raises(ValueError, match="batch_size is 0; use a whole number"):
        again.predict(u, batch_size=0)


def test_fields_are_scaled_as_they_are_told_to(tmp_path: Path, monkeypatch) -> None:
    trained_on, fit = [], fitting.fit_together

    def note(members: Any, train: Pairs, *rest: Any, **others: Any) -> list[Any]:
        trained_on.append(train)
        return fit(members, train, *rest, **others)

    monkeypatch.setattr(fitting, "fit_together", note)
    train, given = fields(), Normalization(-1.0, 9.0, 0.0, 20.0)
    operator = train_on(network(), train, fields(), tmp_path, normalization=given, recipe=RECIPE)
    (pairs,) = trained_on
    torch.testing.assert_close(pairs.inputs, (train.inputs.float() + 1) / 10)
    torch.testing.assert_close(pairs.targets, train.outputs.float() / 20)
    assert operator.normalization == given


def test_a_run_goes_on_only_where_that_is_asked_for(tmp_path: Path) -> None:
    train, val = fields(), fields()
    operator = train_on(network(), train, val, tmp_path, recipe=RECIPE)
    before = (tmp_path / "model.json").read_bytes()
    with pytest.raises(ValueError, match="its data are others"):
        train_on(network(), fields(), val, tmp_path, recipe=RECIPE)
    with pytest.raises(ValueError, match="finished"):
        train_on(network(), train, val, tmp_path, recipe=RECIPE)
    assert (tmp_path / "model.json").read_bytes() == before
    resumed = train_on(network(), train, val, tmp_path, recipe=RECIPE, resume=True)
    torch.testing.assert_close(resumed.predict(val.inputs), operator.predict(val.inputs))


def test_misfits_are_refused_with_their_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in_channels=3"):
        train_on(network(), fields(channels=3), fields(channels=3), tmp_path, recipe=RECIPE)
    other = Grid((6, 8), "periodic", GRID.extent)
    with pytest.raises(ValueError, match="same layout"):
        train_on(network(), fields(), fields(grid=other), tmp_path, recipe=RECIPE)
    square = fields(grid=Grid((8, 8), "periodic"))
    config = CNOConfig(in_channels=2, size=(8, 8), levels=1, width=4, neck_blocks=1, skip_blocks=1)
    with pytest.raises(ValueError, match="build it with layout='periodic'"):
        train_on(CNO(config), square, square, tmp_path, recipe=RECIPE)
    with pytest.raises(ValueError, match=r"Linear does not take inputs .* build it for these"):
        train_on(nn.Linear(1, 1), fields(), fields(), tmp_path, recipe=RECIPE)
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_only_as_the_operator_that_it_began_as(tmp_path: Path) -> None:
    train, val = fields(), fields()
    train_on(network(), train, val, tmp_path, recipe=RECIPE)
    before = (tmp_path / "model.json").read_bytes()
    elsewhere = Grid(GRID.shape, GRID.layout, ((0.0, 3.0), (-1.0, 2.0)))
    torch.manual_seed(0)
    wider = FFNN(FFNN.Config(in_channels=2, size=(6, 8), layers=2, width=9))
    larger = Fields(2 * train.inputs, train.outputs, GRID)
    others = {
        "its data are others": (network(), larger, val),
        "model.width is 8, not 9": (wider, train, val),
        "problem.domain": (network(), *(Fields(*f[:], elsewhere) for f in (train, val))),
    }
    for difference, other in others.items():
        with pytest.raises(ValueError, match=f"holds another run: .*{difference}"):
            train_on(*other, tmp_path, recipe=RECIPE, resume=True)
        assert (tmp_path / "model.json").read_bytes() == before


def test_a_mask_sees_physical_inputs(tmp_path: Path) -> None:
    seen = []

    def mask(inputs):
        seen.append(inputs)
        return inputs[:, :1] > 1

    train, val = fields(), fields(4)
    train_on(network(), train, val, tmp_path, recipe=RECIPE, mask=mask)
    for given, expected in zip(seen[1:3], (train, val), strict=True):
        assert torch.equal(given, expected.inputs)


@pytest.mark.parametrize("own", [True, False])
def test_the_validation_error_counts_what_a_test_error_counts(tmp_path: Path, own: bool) -> None:
    """By the fields' own mask, and by one of the inputs."""
    val = fields(4)
    counts = val.inputs[:, :1] > 2
    if own:
        val = Fields(val.inputs, val.outputs, GRID, counts)
    seen = Fields(val.inputs, val.outputs, GRID, torch.ones_like(counts) if own else None)
    mask = None if own else (lambda inputs: inputs[:, :1] > 2)
    operator = train_on(network(), seen, val, tmp_path, recipe=RECIPE, mask=mask)
    errors = sample_errors(operator.predict(val.inputs), val, operator.error_scaling, mask)
    expected = errors["relative_l1"]["normalized"].mean().item()
    found = RunFolder(tmp_path).result()["best_validation_error"]
    assert found == pytest.approx(expected, rel=1e-5)


def heat(n: int, seed: int = 0, size: int = 16) -> Fields:
    """Smooth fields on a circle, and what the heat equation makes of them, less a bit of u²."""
    k = torch.fft.rfftfreq(size, 1 / size)
    noise = torch.randn(n, 1, size, generator=torch.Generator().manual_seed(seed))
    u = torch.fft.irfft(torch.fft.rfft(noise) / (1 + k**2), n=size)
    v = torch.fft.irfft(torch.fft.rfft(u) * torch.exp(-0.05 * k**2), n=size) - 0.2 * u**2
    return Fields(u, v, Grid((size,), "periodic"))


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on fields in memory, with a chosen network."""
    folder = tmp_path_factory.mktemp("own") / "run"
    sets = {"test": heat(8, 2), "ood": heat(8, 3)}
    recipe = replace(PRESETS["best"], epochs=3, batch_size=8, evaluate_every=1)
    train("cno", heat(32), heat(8, 1), folder, recipe=recipe, name="heat", width=8, **sets)
    return folder


def test_a_network_is_chosen_and_the_folder_is_that_of_any_run(own_run: Path) -> None:
    config, result = read_config(own_run), RunFolder(own_run).result()
    network = config.architecture
    assert (network.size, network.boundary, network.layout) == ((16,), "periodic", "periodic")
    assert (network.levels, network.width) == (2, 8)
    assert result is not None
    assert list(result["errors"]) == ["test", "ood"]
    found = {one.split: one.summary for one in evaluate_run(own_run)}
    for split, summary in found.items():
        for name, values in summary.items():
            assert values == pytest.approx(result["errors"][split][name], rel=1e-4)
    audited = audit_run(own_run, samples=2)
    assert audited.layout == "periodic"
    assert audited.translations


def test_the_size_of_a_network_grows_with_the_values_that_there_are() -> None:
    def width(samples: int, *shape: int) -> int:
        return choose_network("cno", samples, Grid(shape, "periodic"), (1, 1)).width

    assert width(64, 32, 32) <= width(512, 32, 32) <= width(1024, 64, 64) == 32
    assert width(100000, 64, 64) == 48
    odd = choose_network("cno", 64, Grid((50, 70), "cell-centred"), (2, 3))
    assert odd.size == (56, 72)
    assert (odd.in_channels, odd.out_channels, odd.boundary) == (2, 3, "zero")
    channel = choose_network("cno", 64, Grid((32, 32), ("inclusive", "periodic")), (1, 1))
    assert channel.boundary == ("zero", "periodic")
    for samples in (1, 3, 100, 5000):
        assert choose_recipe(samples).batch_size <= samples


def test_a_finished_run_is_prolonged_and_finetuned(own_run: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    shutil.copytree(own_run, longer)  # which moves the copy of the data, too
    before = RunFolder(own_run).result()
    result = resume_run(longer, epochs=5)
    assert before is not None
    assert (before["epochs"], result["epochs"]) == (3, 5)
    assert [row["epoch"] for row in RunFolder(longer).rows()] == [1, 2, 3, 4, 5]
    assert result["best_validation_error"] <= before["best_validation_error"]
    with pytest.raises(ValueError, match="has 5 epochs already, not 4; use 6"):
        resume_run(longer, epochs=4)

    recipe = replace(PRESETS["best"], epochs=1, batch_size=8, learning_rate=1e-6, evaluate_every=1)
    tuned = train("cno", heat(16, 5), heat(8, 6), tmp_path / "tuned", recipe=recipe, start=own_run)
    first = load(own_run)
    assert tuned.normalization == first.normalization
    for start, after in zip(first.parameters(), tuned.parameters(), strict=True):
        torch.testing.assert_close(after.cpu(), start, rtol=0, atol=1e-4)


def test_data_that_changed_are_noticed_by_their_hash(tmp_path: Path) -> None:
    u, v = heat(40)
    np.savez(tmp_path / "heat.npz", a=u, b=v)
    words = ["train", "--data", tmp_path / "heat.npz", "--inputs", "a", "--outputs", "b"]
    words += ["--layout", "periodic", "--out", tmp_path / "run", "--train.epochs", "1"]
    assert main([str(word) for word in words]) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    np.savez(tmp_path / "heat.npz", a=u + 1e-3, b=v)
    with pytest.raises(ValueError, match="not those that the run began with; bring the data back"):
        evaluate_run(tmp_path / "run")
    with pytest.raises(ValueError, match="not those that the run began with; bring the data back"):
        resume_run(tmp_path / "run", epochs=2)


class Blur(nn.Module):
    """A network that is not of this package."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Conv1d(1, 1, 3, padding="same", padding_mode="circular")

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.weight(u)


def mean_square(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (prediction - target).square().mean()


def test_any_module_and_any_loss(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recipe = replace(PRESETS["best"], epochs=20, batch_size=4, learning_rate=0.05)
    arguments = {"recipe": recipe, "loss": mean_square, "watch": Watch()}
    operator = train(Blur(), heat(32), heat(8, 1), tmp_path, **arguments)
    u, v = heat(8, 2)
    assert relative_l1(operator.predict(u), v).median() < 0.5
    with pytest.raises(ValueError, match=r"Blur, which only Python can build: give it"):
        load(tmp_path)
    again = load(tmp_path, network=Blur())
    torch.testing.assert_close(again.predict(u), operator.predict(u))
    (found,) = evaluate_run(tmp_path, ("val",), network=Blur())
    assert found.summary["relative_l1_median_percent"]["physical"] < 50
    with pytest.raises(ValueError, match="only Python"):
        resume_run(tmp_path, epochs=30)


def test_what_is_unlike_the_training_is_warned_of(own_run: Path) -> None:
    operator, u = load(own_run), heat(4, 9).inputs
    operator.predict(u)
    with pytest.warns(OutOfRange, match=r"4 of 4 samples, first 0, have values in"):
        operator.predict(100 * u)
    rough = u.clone()
    rough[0, 0] = 0.5 * u.abs().max() * torch.cos(2 * torch.pi * 7 * torch.arange(16) / 16)
    with pytest.warns(OutOfRange, match=r"1 of 4 samples, first 0, have mean wavenumber"):
        operator.predict(rough)
    with pytest.warns(OutOfRange, match="the grid has 64 points, the training's 16"):
        operator.predict(Fields(u, u, Grid((16,), "periodic")).resampled(64).inputs)


def test_outputs_that_are_not_finite_are_an_error(own_run: Path, tmp_path: Path) -> None:
    operator = load(own_run)
    next(operator.network.parameters()).data.fill_(float("inf"))
    with pytest.raises(ValueError, match="outputs hold NaN or infinite values, first in sample 0"):
        operator.predict(heat(4).inputs)
    damaged = tmp_path / "damaged"
    shutil.copytree(own_run, damaged)
    weights = operator.network.state_dict()
    save_tensors(damaged / "model.safetensors", weights)
    with pytest.raises(ValueError, match=r"model\.safetensors holds NaN or infinite values in"):
        load(damaged)


@pytest.mark.parametrize(
    ("augmentation", "grid", "why"),
    [
        ("translations", Grid((16,), "inclusive"), "only a periodic one goes on"),
        ("exchange", Grid((16,), "periodic"), "one axis has no other"),
        ("square", Grid((16, 8), "periodic"), "are not alike"),
        ("square", Grid((8, 8), ("inclusive", "periodic")), "are not alike"),
        ("reflections", Grid((4, 4, 4), "periodic"), "no velocity in a plane"),
        ("reflections", Grid((8, 8), "periodic"), "takes zero to be scaled to 0.5"),
    ],
)
def test_symmetries_that_the_fields_contradict_are_refused(
    tmp_path: Path, augmentation: str, grid: Grid, why: str
) -> None:
    u = 1 + torch.rand(8, 1, *grid.shape)
    recipe = replace(RECIPE, augmentation=augmentation)
    with pytest.raises(ValueError, match=why):
        train("cno", Fields(u, u, grid), Fields(u, u, grid), tmp_path / "run", recipe=recipe)


def test_the_data_tell_which_symmetries_hold() -> None:
    """Of u ↦ u u_x + u: translations, and not u(−x), which changes the sign of one part."""
    grid = Grid((32,), "periodic")

    def operator(u: torch.Tensor) -> torch.Tensor:
        return u * (u.roll(-1, -1) - u.roll(1, -1)) + u

    u = heat(64, size=32).inputs
    pairs = (u[:48], operator(u[:48])), (u[48:], operator(u[48:]) * 1.001)
    found = {one.name: one.verdict for one in find_symmetries(operator, *pairs, grid)}
    assert found["translations"] == "holds"
    assert found["square"] == "does not hold"
    assert found["exchange"].startswith("not possible")
    found = {one.name: one.verdict for one in find_symmetries(torch.zeros_like, *pairs, grid)}
    assert found["translations"] == "not to tell: the network has not learnt"


def test_no_folder_of_someone_else_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"not of a run \(notes\.txt\); choose a new folder"):
        train("cno", heat(8), heat(4, 1), tmp_path, recipe=RECIPE)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    foreign = tmp_path / "other"
    foreign.mkdir()
    (foreign / "config.yaml").write_text("server: 1\n")
    with pytest.raises(ValueError, match=r"not of a run \(config\.yaml\)"):
        train("cno", heat(8), heat(4, 1), foreign, recipe=RECIPE)
    assert (foreign / "config.yaml").read_text() == "server: 1\n"


def test_a_periodic_network_is_told_of_a_force_that_it_cannot_see(tmp_path):
    x = torch.arange(16) / 16
    phases = 2 * torch.pi * torch.rand(24, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    u = torch.sin(2 * torch.pi * (x[:, None] + x) + phases)
    force = torch.cos(2 * torch.pi * x)
    small = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4}
    recipe = choose_recipe(16, epochs=1)
    grid = Grid((16, 16), "periodic")

    def warned(name: str, outputs: torch.Tensor, **network: Any) -> bool:
        known, val = Fields(u, outputs, grid).split(16, 8)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            train("cno", known, val, tmp_path / name, recipe=recipe, **small, **network)
        return any(one.category is OddData and "periodic" in str(one.message) for one in found)

    assert warned("forced", u + 2 * force)
    assert not warned("placed", u + 2 * force, boundary="zero")
    assert not warned("told", u + 2 * force, fourier_features=1)
    assert not warned("free", 2 * u)
