"""What `train_on` makes of a user's fields; docs/own-data.md is its longer test."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from torchcno import CNO, PRESETS, CNOConfig, Fields, Grid, Normalization, load, train_on
from torchcno.models.ffnn import FFNN
from torchcno.runs import train as runs_train

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
    with pytest.raises(ValueError, match="batch_size is 0; use 1 or more"):
        again.predict(u, batch_size=0)


def test_fields_are_scaled_as_they_are_told_to(tmp_path: Path, monkeypatch) -> None:
    trained_on = []
    monkeypatch.setattr(runs_train, "fit", lambda model, train, *_, **__: trained_on.append(train))
    train, given = fields(), Normalization(-1.0, 9.0, 0.0, 20.0)
    operator = train_on(network(), train, fields(), tmp_path, normalization=given)
    (pairs,) = trained_on
    torch.testing.assert_close(pairs.inputs, (train.inputs.float() + 1) / 10)
    torch.testing.assert_close(pairs.targets, train.outputs.float() / 20)
    assert operator.normalization == given


def test_a_run_goes_on_only_where_that_is_asked_for(tmp_path: Path) -> None:
    train, val = fields(), fields()
    operator = train_on(network(), train, val, tmp_path, recipe=RECIPE)
    before = (tmp_path / "model.json").read_bytes()
    with pytest.raises(ValueError, match="resume=True"):
        train_on(network(), fields(), val, tmp_path, recipe=RECIPE)
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
    with pytest.raises(ValueError, match=r"training\.fit"):
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
        "normalization: input_max": (network(), larger, val),
        "config: width 8, not 9": (wider, train, val),
        "grid: extent": (network(), *(Fields(*f[:], elsewhere) for f in (train, val))),
    }
    for difference, other in others.items():
        with pytest.raises(ValueError, match=f"has another {difference}.*give the same to go on"):
            train_on(*other, tmp_path, recipe=RECIPE, resume=True)
        assert (tmp_path / "model.json").read_bytes() == before


def test_a_mask_sees_physical_inputs(tmp_path: Path) -> None:
    seen = []

    def mask(inputs):
        seen.append(inputs)
        return inputs[:, :1] > 1

    train, val = fields(), fields(4)
    train_on(network(), train, val, tmp_path, recipe=RECIPE, mask=mask)
    for given, expected in zip(seen, (train, val), strict=True):
        assert torch.equal(given, expected.inputs)
