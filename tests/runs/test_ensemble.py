"""Runs of several members, and several runs at once."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import torchcno
from torchcno.data.dataset import load as load_fields
from torchcno.data.fields import Fields
from torchcno.evaluation.errors import published_error
from torchcno.grids import Grid
from torchcno.models import Ensemble
from torchcno.runs import jobs, task
from torchcno.runs import train as run
from torchcno.runs.evaluate import evaluate_run
from torchcno.runs.export import export_file
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.half import export_half
from torchcno.runs.hub import export_hub
from torchcno.runs.jobs import Job, run_jobs
from torchcno.runs.predict import predict_file
from torchcno.runs.train import Watch, resume_run, train_run, train_runs_together
from torchcno.training import Diverged, Hardware, Interrupted, Recipe

MEMBERS = 3


@pytest.fixture(scope="module")
def alone(tiny_config, tmp_path_factory) -> list[Path]:
    """The runs of the members, each by itself."""
    folder = tmp_path_factory.mktemp("alone")
    paths = [folder / str(seed) for seed in range(MEMBERS)]
    for seed, path in enumerate(paths):
        train_run(replace(tiny_config, seed=seed), path)
    return paths


@pytest.fixture(scope="module")
def ensemble(tiny_config, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ensemble"
    train_run(replace(tiny_config, members=MEMBERS), folder)
    return folder


def inputs(config) -> torch.Tensor:
    return load_fields(config.problem, "test", folder=config.data, resolution=24, samples=4).inputs


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def untimed(result: dict) -> dict:
    dropped = ("seconds_per_epoch", "inference", "weights")
    return {key: value for key, value in result.items() if key not in dropped}


def test_an_ensemble_is_the_mean_of_its_members_alone(ensemble, alone, tiny_config):
    operator, u = load(ensemble), inputs(tiny_config)
    assert isinstance(operator.network, Ensemble)
    found = torch.stack([load(folder).predict(u) for folder in alone])
    torch.testing.assert_close(operator.predict(u), found.mean(0))
    torch.testing.assert_close(operator.spread(u), found.std(0))
    for k, folder in enumerate(alone):
        assert weights(ensemble / "members" / str(k)) == weights(folder)
        assert torch.equal(operator.members()[k].predict(u), found[k])


def test_the_result_has_the_errors_of_the_mean_and_of_each_member(ensemble, alone):
    result = RunFolder(ensemble).result()
    for member, folder in zip(result["members"], alone, strict=True):
        by_itself = RunFolder(folder).result()
        assert member["seed"] == by_itself["seed"]
        assert member["best_validation_error"] == by_itself["best_validation_error"]
        for split in ("test", "ood"):
            assert published_error(member["errors"][split]) == pytest.approx(
                published_error(by_itself["errors"][split])
            )
    errors = [published_error(member["errors"]["test"]) for member in result["members"]]
    assert published_error(result["errors"]["test"]) < max(errors)
    assert result["parameters"] == MEMBERS * RunFolder(alone[0]).result()["parameters"]


def test_an_ensemble_is_evaluated_resumed_and_checked_as_any_run(ensemble, tiny_config):
    folder = RunFolder(ensemble)
    assert folder.state == "finished"
    assert folder.config() == replace(tiny_config, members=MEMBERS)
    rows = folder.rows()
    assert [(row["epoch"], row["member"]) for row in rows] == [
        (epoch, member) for epoch in (1, 2) for member in range(MEMBERS)
    ]
    before = {path: path.read_bytes() for path in ensemble.rglob("*") if path.is_file()}
    assert resume_run(ensemble) == folder.result()
    assert {path: path.read_bytes() for path in ensemble.rglob("*") if path.is_file()} == before
    (test,) = evaluate_run(ensemble, ("test",), device="cpu")
    assert published_error(test.summary) == pytest.approx(
        published_error(folder.result()["errors"]["test"]), rel=1e-5
    )
    with pytest.raises(ValueError, match="members is 3, not"):
        train_run(tiny_config, ensemble, mode="either")


@pytest.mark.parametrize("when", [(1, 1), (2, 2)])  # epoch, rows of it
def test_an_interrupted_ensemble_goes_on_to_the_same_end(ensemble, tiny_config, tmp_path, when):
    told = []

    def stop(epoch):
        told.append(epoch.epoch)
        if (epoch.epoch, told.count(epoch.epoch)) == when:
            signal.raise_signal(signal.SIGINT)

    config = replace(tiny_config, members=MEMBERS)
    with pytest.raises(Interrupted, match=f"cno resume {tmp_path}/run$"):
        train_run(config, tmp_path / "run", Watch(epoch=stop))
    assert RunFolder(tmp_path / "run").state == "begun"
    with pytest.raises(FileNotFoundError, match=r"not finished\. Go on with it: cno resume"):
        load(tmp_path / "run")
    result = resume_run(tmp_path / "run")
    assert weights(tmp_path / "run") == weights(ensemble)
    assert result["errors"] == RunFolder(ensemble).result()["errors"]


def test_an_ensemble_can_be_prolonged(tiny_config, tmp_path):
    config = replace(tiny_config, members=2, train=replace(tiny_config.train, epochs=1))
    train_run(config, tmp_path / "run")
    resume_run(tmp_path / "run", epochs=2)
    assert [row["epoch"] for row in RunFolder(tmp_path / "run").rows()] == [1, 1, 2, 2]


def test_damage_to_a_member_is_seen(ensemble, tmp_path):
    copy = shutil.copytree(ensemble, tmp_path / "copy")
    metrics = copy / "members" / "1" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"epoch": 1', '"epoch": 7'))
    assert RunFolder(copy).state == "damaged"
    description = json.loads((copy / "model.json").read_text())
    (copy / "checksums.jsonl").unlink()
    (copy / "model.json").write_text(json.dumps({**description, "members": 2}))
    with pytest.raises(ValueError, match="is of another model"):
        load(copy)
    (copy / "model.json").write_text(json.dumps({**description, "members": 10**9}))
    with pytest.raises(ValueError, match="members is 1000000000"):
        load(copy)


def test_bands_take_the_spread_into_account(ensemble, alone, tiny_config):
    u = inputs(tiny_config)
    bands = load(ensemble).predict(u, confidence=0.8)
    widths = bands.half_width.flatten(1).mean(1)
    assert len({round(float(width), 9) for width in widths}) == len(u)  # each its own
    same = load(alone[0]).predict(u, confidence=0.8).half_width.flatten(1).mean(1)
    torch.testing.assert_close(same, same[:1].expand_as(same))


def test_the_mean_is_exported(ensemble, tiny_config, tmp_path):
    operator, u = load(ensemble), inputs(tiny_config)
    hub = export_hub(ensemble, tmp_path / "hub")
    again = torchcno.TrainedOperator.from_pretrained(hub)
    torch.testing.assert_close(again.predict(u), operator.predict(u))
    torch.testing.assert_close(again.spread(u), operator.spread(u))
    written = export_file(ensemble, tmp_path / "mean.pt2", "pt2")
    program = torch.export.load(written.path).module()
    torch.testing.assert_close(program(u), operator.predict(u))
    export_half(ensemble, tmp_path / "half", device="cpu")
    torch.testing.assert_close(
        load(tmp_path / "half").predict(u), operator.predict(u), rtol=0.05, atol=0.05
    )


def test_files_of_predictions_have_the_spread(ensemble, tiny_config, tmp_path):
    operator, u = load(ensemble), inputs(tiny_config)
    np.save(tmp_path / "u.npy", u.numpy())
    predict_file(operator, tmp_path / "u.npy", tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as found:
        np.testing.assert_allclose(found["spread"], operator.spread(u).numpy(), rtol=1e-5)
    predict_file(operator, tmp_path / "u.npy", tmp_path / "v.npy")
    assert np.load(tmp_path / "v.npy").shape == tuple(u.shape)


def test_symmetric_predictions_and_ensembles_go_together(tiny_config, tmp_path):
    recipe = replace(tiny_config.train, augmentation="square", symmetric_predictions=True)
    config = replace(tiny_config, train=recipe, members=2)
    train_run(config, tmp_path)
    operator, u = load(tmp_path), inputs(tiny_config)
    assert operator.symmetry == "square"
    v, s = operator.predict(u), operator.spread(u)
    torch.testing.assert_close(operator.predict(u.flip(-1)), v.flip(-1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(operator.spread(u.mT), s.mT, rtol=1e-3, atol=1e-5)


def test_one_network_has_no_spread(tiny_run, tiny_config):
    with pytest.raises(ValueError, match="one network has no spread; train several"):
        load(tiny_run).spread(inputs(tiny_config))


def test_members_of_own_data(tmp_path):
    u = torch.rand(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    fields = Fields(u, 2 * u, Grid((16, 16), "periodic"))
    train, val, test = fields.split(16, 4, 4)
    recipe = Recipe(epochs=1, batch_size=8)
    how = {"recipe": recipe, "width": 4, "members": 2, "watch": Watch()}
    how["hardware"] = Hardware(accelerator="cpu")
    operator = torchcno.train("cno", train, val, tmp_path / "a", test=test, **how)
    assert operator.spread(test.inputs.numpy()).isfinite().all()
    again = torchcno.train("cno", train, val, tmp_path / "a", test=test, resume=True, **how)
    assert torch.equal(operator.predict(test.inputs), again.predict(test.inputs))
    with pytest.raises(ValueError, match="give the name of a model"):
        torchcno.train(operator.members()[0].network, train, val, tmp_path / "b", members=2)
    with pytest.raises(ValueError, match="is an ensemble of 2 networks; start from the run of one"):
        torchcno.train("cno", train, val, tmp_path / "b", start=tmp_path / "a")
    for count in (0, -1, 10**6):
        with pytest.raises(ValueError, match=r"members is .*use 1 to 1000, such as 5"):
            torchcno.train("cno", train, val, tmp_path / "b", members=count)


def test_members_and_devices_exclude_each_other(tiny_config):
    with pytest.raises(ValueError, match="trained on one device, not on 2; leave --devices"):
        replace(tiny_config, members=2, hardware=Hardware(devices=2))


def test_runs_together_are_runs_alone(tiny_config, alone, tmp_path):
    configs = [replace(tiny_config, seed=seed) for seed in range(MEMBERS)]
    folders = [tmp_path / str(seed) for seed in range(MEMBERS)]
    train_run(configs[1], folders[1])  # what is finished is left alone
    results = train_runs_together(configs, folders, mode="either")
    for result, folder, other in zip(results, folders, alone, strict=True):
        assert weights(folder) == weights(other)
        assert result == RunFolder(folder).result()
        assert untimed(result) == untimed(RunFolder(other).result())
        assert RunFolder(folder).state == "finished"
        names = {path.name for path in folder.iterdir()}
        assert names == {path.name for path in other.iterdir()}
    longer = replace(configs[0], train=replace(configs[0].train, epochs=3))
    with pytest.raises(ValueError, match=r"differ in their seeds alone, and train.epochs is 2 and"):
        train_runs_together([configs[0], longer], [tmp_path / "a", tmp_path / "b"])


def test_jobs_that_differ_in_their_seeds_run_together(tiny_config, alone, tmp_path, monkeypatch):
    calls = []
    train = jobs.train_runs_together

    def note(configs, folders, **others):
        calls.append([config.seed for config in configs])
        return train(configs, folders, **others)

    monkeypatch.setattr(jobs, "train_runs_together", note)
    other = replace(tiny_config, train=replace(tiny_config.train, learning_rate=2e-3))
    todo = [Job(tmp_path / "other", other)]
    todo += [Job(tmp_path / str(seed), replace(tiny_config, seed=seed)) for seed in (2, 0)]
    outcomes = run_jobs(todo, together=True)
    assert [outcome.state for outcome in outcomes] == ["finished"] * 3
    assert calls == [[0], [2, 0]]
    assert weights(tmp_path / "2") == weights(alone[2])


def test_a_run_that_diverges_leaves_the_others_alone(tiny_config, alone, tmp_path, monkeypatch):
    build = task.build_network

    def poison(config, folder):
        network = build(config, folder)
        if config.members == 1 and config.seed == 1:
            with torch.no_grad():
                next(network.parameters()).fill_(float("nan"))
        return network

    for module in (run, task):  # of a run, and of the members of one
        monkeypatch.setattr(module, "build_network", poison)
    configs = [replace(tiny_config, seed=seed) for seed in (0, 1)]
    found, diverged = train_runs_together(configs, [tmp_path / "0", tmp_path / "1"])
    assert isinstance(diverged, Diverged)
    assert weights(tmp_path / "0") == weights(alone[0])
    assert found["errors"] == RunFolder(alone[0]).result()["errors"]
    assert RunFolder(tmp_path / "1").result() is None
    with pytest.raises(Diverged, match=r"member 1 \(seed 1\)"):
        train_run(replace(tiny_config, members=2), tmp_path / "ensemble")
    assert RunFolder(tmp_path / "ensemble").state == "begun"
