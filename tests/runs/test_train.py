import copy
import errno
import fcntl
import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from torchcno.data.dataset import load as load_fields
from torchcno.data.normalization import Normalization
from torchcno.disk import write_json
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.models import MODELS
from torchcno.problems import PROBLEMS
from torchcno.problems.poisson import Poisson
from torchcno.runs import fitting
from torchcno.runs.config import RunConfig, write_tree
from torchcno.runs.folder import RunFolder, load, read_config
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.train import Watch, resume_run, train_run
from torchcno.training import Hardware, load_tensors


def test_a_one_cycle_run_ends_its_cycle_and_others_may_stop_early():
    for problem in PROBLEMS:
        if len(PROBLEMS[problem]().extent) != 2:
            continue  # not every model takes them
        for model in MODELS:
            recipe = RunConfig.resolve(problem, model, "paper").train
            assert (recipe.patience is None) == (recipe.schedule == "one-cycle")


def test_a_bare_name_is_enough_of_a_configuration():
    assert RunConfig.from_tree({"problem": "wave", "model": "fno"}) == RunConfig.resolve(
        "wave", "fno"
    )


def test_a_written_configuration_keeps_its_recipe_when_presets_and_fields_change():
    """Fields that there were not yet are as by default, whatever the preset has today."""
    tree = RunConfig.resolve("wave", "cno").to_tree()
    assert tree["train"].pop("optimizer") == "muon"
    assert RunConfig.from_tree(tree).train.optimizer == "adamw"
    del tree["format"]  # as a user writes it
    assert RunConfig.from_tree(tree).train.optimizer == "muon"


def test_the_folder_says_everything(tiny_run, tiny_config):
    assert read_config(tiny_run) == tiny_config
    result = json.loads((tiny_run / "result.json").read_text())
    assert (result["problem"], result["model"], result["seed"]) == ("poisson", "cno", 0)
    assert result["epochs"] == 2
    assert result["versions"]["torch"] == torch.__version__
    for split in ("test", "ood"):
        errors = result["errors"][split]["relative_l1_median_percent"]
        assert 0 < errors["normalized"] < errors["physical"]
    rows = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]


@pytest.mark.parametrize("there", ["lightning-fabric", "lightning"])
def test_fabric_is_recorded_as_whatever_brought_it(monkeypatch, there):
    def version(package):
        if "lightning" in package and package != there:
            raise PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(fitting, "version", version)
    names = ["python", "torchcno", "torch", "numpy", there, "safetensors"]
    assert list(fitting.versions()) == names


def test_a_loaded_run_is_the_network_between_the_normalisations(tiny_run, tiny_config):
    operator = load(tiny_run)
    fields = load_fields(
        tiny_config.problem, "test", folder=tiny_config.data, resolution=24, samples=3
    )
    n = operator.normalization
    with torch.inference_mode():
        by_hand = n.denormalize_outputs(operator.network(n.normalize_inputs(fields.inputs)))
    assert torch.equal(operator.predict(fields.inputs), by_hand)
    weights, _ = load_tensors(tiny_run / "model.safetensors")
    assert all(torch.equal(weights[k], v) for k, v in operator.network.state_dict().items())


@dataclass(frozen=True)
class SinkPoisson(Poisson):
    """Poisson's equation whose solution counts where f < 0: nowhere, of an f scaled to [0, 1]."""

    name: ClassVar = "sink-poisson"

    def mask(self, inputs):
        """Where there is a sink."""
        return inputs < 0


@dataclass(frozen=True)
class RawPoisson(SinkPoisson):
    """The same in physical values."""

    name: ClassVar = "raw-poisson"
    normalized: ClassVar = False


@pytest.mark.parametrize("problem", [Poisson(K=4), SinkPoisson(K=4), RawPoisson(K=4)])
def test_a_run_is_that_of_its_seed_its_training_set_and_its_mask(
    problem, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setitem(PROBLEMS, problem.name, type(problem))
    config = replace(tiny_config, problem=problem, seed=1)
    seen = {}

    def watched(members, train, val, *rest, **options):
        (member,) = members
        weights = copy.deepcopy(member.network.state_dict())
        seen.update(weights=weights, seed=member.seed, train=train, val=val, **options)
        return fit(members, train, val, *rest, **options)

    fit = fitting.fit_together
    monkeypatch.setattr(fitting, "fit_together", watched)
    result = train_run(config, tmp_path)

    torch.manual_seed(1)
    first = MODELS["cno"](config.architecture).state_dict()
    assert all(torch.equal(seen["weights"][name], first[name]) for name in first)
    assert seen["seed"] == 1

    def fields(split, samples=None):
        where = {"folder": config.data, "resolution": 24}
        return load_fields(problem, split, samples=samples, **where)

    train = fields("train", samples=8)
    scaling = Normalization.fit(train) if problem.normalized else Normalization.identity()
    operator = load(tmp_path)
    assert operator.normalization == scaling
    assert torch.equal(seen["train"].targets, scaling.normalize_outputs(train.outputs))
    assert torch.equal(seen["val"].inputs, scaling.normalize_inputs(fields("val").inputs))
    for pairs, physical in ((seen["train"], train), (seen["val"], fields("val"))):
        counts = problem.mask(physical.inputs)
        assert pairs.counts is None if counts is None else torch.equal(pairs.counts, counts)

    test = fields("test")
    predictions = {
        "errors": operator.apply_to(test.inputs),
        "mean_field_errors": train.outputs.mean(0).expand_as(test.outputs),
    }
    for name, prediction in predictions.items():
        expected = published_error(summary(sample_errors(prediction, test, scaling, problem.mask)))
        assert published_error(result[name]["test"]) == pytest.approx(expected, rel=1e-5)


def test_errors_are_of_fields_scaled_as_published_whatever_the_network_sees(tiny_config, tmp_path):
    recipe = replace(tiny_config.train, normalization="symmetric", epochs=1)
    config = replace(tiny_config, train=recipe)
    result = train_run(config, tmp_path / "run", splits=["test"])
    operator = load(tmp_path / "run")
    where = {"folder": config.data, "resolution": 24}
    train = load_fields(config.problem, "train", samples=8, **where)
    test = load_fields(config.problem, "test", **where)
    assert operator.normalization == Normalization.fit(train, "symmetric")
    published = Normalization.fit(train)
    assert operator.error_scaling == published
    expected = published_error(
        summary(sample_errors(operator.apply_to(test.inputs), test, published))
    )
    assert published_error(result["errors"]["test"]) == pytest.approx(expected, rel=1e-5)
    assert read_config(tmp_path / "run") == config


def test_a_folder_from_before_there_were_two_scalings_loads(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "old")
    path = tmp_path / "old" / "model.json"
    description = json.loads(path.read_text())
    del description["error_scaling"]
    write_json(description, path)
    operator = load(tmp_path / "old")
    assert operator.error_scaling == operator.normalization == load(tiny_run).normalization


def test_a_symmetry_that_changes_signs_needs_zero_in_its_place(tiny_config, tmp_path):
    recipe = replace(tiny_config.train, normalization="unit", augmentation="odd-square")
    with pytest.raises(ValueError, match=r"scaled to 0\.0, and it is scaled to 0\.\d"):
        train_run(replace(tiny_config, train=recipe), tmp_path / "run")


def test_batches_make_no_difference(tiny_run):
    operator, u = load(tiny_run), torch.randn(5, 1, 24, 24)
    torch.testing.assert_close(operator.apply_to(u, batch_size=2), operator.apply_to(u))


def switch_off(epoch):
    if epoch.epoch == 1:
        raise RuntimeError("the machine is switched off")


def test_an_interrupted_run_ends_where_it_would_have(tiny_run, tiny_config, tmp_path):
    with pytest.raises(RuntimeError, match="switched off"):
        train_run(tiny_config, tmp_path / "run", Watch(epoch=switch_off))
    resume_run(tmp_path / "run")
    resumed, _ = load_tensors(tmp_path / "run" / "model.safetensors")
    alone, _ = load_tensors(tiny_run / "model.safetensors")
    assert resumed.keys() == alone.keys()
    assert all(torch.equal(resumed[name], alone[name]) for name in alone)
    errors = [
        json.loads((folder / "result.json").read_text())["errors"]
        for folder in (tmp_path / "run", tiny_run)
    ]
    assert errors[0] == errors[1]


def test_a_run_by_itself_writes_its_files_whatever_task_it_is(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "3")
    result = train_run(tiny_config, tmp_path)
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert read_config(tmp_path) == tiny_config
    assert (tmp_path / "model.json").exists()


def test_a_run_goes_on_from_any_directory(tiny_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_config.data.parent)
    relative = replace(tiny_config, data=Path(tiny_config.data.name))
    with pytest.raises(RuntimeError, match="switched off"):
        train_run(relative, tmp_path / "run", Watch(epoch=switch_off))
    monkeypatch.chdir(tmp_path)
    resume_run(tmp_path / "run")
    assert read_config(tmp_path / "run").data == tiny_config.data
    assert not (tmp_path / tiny_config.data.name).exists()


def test_times_of_two_devices_are_of_neither(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.json").unlink()  # as if it had been killed while evaluating
    before = json.loads((tiny_run / "result.json").read_text())["device"]
    monkeypatch.setattr(fitting, "device_name", lambda device: "another")
    assert resume_run(tmp_path)["device"] == f"{before}, then another"


def contents(folder):
    """The files of a folder, but for the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


def test_a_finished_run_that_goes_on_is_only_read(tiny_run, tmp_path):
    """Also where only its results were brought, as a repository has them."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    shutil.rmtree(folder / "checkpoint")
    (folder / "model.safetensors").unlink()
    before = contents(folder)
    assert resume_run(folder) == json.loads((tiny_run / "result.json").read_text())
    assert contents(folder) == before


def test_a_damaged_result_is_made_again_from_the_checkpoint_alone(tiny_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    (folder / "result.json").write_text("{")
    errors = json.loads((tiny_run / "result.json").read_text())["errors"]
    assert resume_run(folder)["errors"] == errors
    (folder / "result.json").write_text("{")
    shutil.rmtree(folder / "checkpoint")
    before = contents(folder)
    with pytest.raises(ValueError, match=rf"cannot be read .* --out {folder}-again"):
        resume_run(folder)
    assert contents(folder) == before


def test_a_run_is_not_written_over(tiny_run, tiny_config, tmp_path):
    with pytest.raises(ValueError, match=r"holds this run already; it is finished"):
        train_run(tiny_config, tiny_run)
    shutil.copytree(tiny_run, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.json").unlink()
    with pytest.raises(ValueError, match=r"holds this run already; go on with it: cno resume"):
        train_run(tiny_config, tmp_path)
    other = replace(tiny_config, seed=1, train=replace(tiny_config.train, epochs=3))
    changes = r"another run: train\.epochs is 2, not 3, seed is 0, not 1; choose another folder"
    with pytest.raises(ValueError, match=changes):
        train_run(other, tiny_run)


def test_who_comes_second_leaves_the_files_of_who_trains(tiny_config, tmp_path):
    """Also before the first has begun to train, while it makes its data, say."""
    first = replace(tiny_config, seed=5)
    with RunFolder(tmp_path).open(first, "new"):
        write_tree(first.to_tree(), tmp_path / "config.yaml")
        for come in (lambda: train_run(tiny_config, tmp_path), lambda: resume_run(tmp_path)):
            with pytest.raises(ValueError, match=r"another process is at work in .*; wait for it"):
                come()
        assert read_config(tmp_path) == first
        assert not (tmp_path / "model.json").exists()
    train_run(tiny_config, tmp_path)


def test_a_further_process_of_a_run_needs_no_lock(tiny_config, tmp_path, monkeypatch):
    several = replace(tiny_config, hardware=Hardware("cpu", devices=2))
    with RunFolder(tmp_path).open(several, "new"):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with RunFolder(tmp_path).open(several, "new"):
            pass


def test_a_file_system_without_locks_lets_in_one_at_a_time_too(tiny_config, tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = RunFolder(tmp_path)
    with folder.open(tiny_config, "new"), pytest.raises(ValueError, match="another process is at"):
        RunFolder(tmp_path).open(tiny_config, "new").__enter__()
    with folder.open(tiny_config, "either"):
        pass
    assert not list(tmp_path.glob(".lock-owner*"))


def test_a_run_that_never_began_is_not_in_the_way(tiny_config, tmp_path):
    too_large = replace(tiny_config, train=replace(tiny_config.train, batch_size=9))
    with pytest.raises(ValueError, match="batch_size 9"):
        train_run(too_large, tmp_path)
    assert RunFolder(tmp_path).state == "new"


def test_a_run_of_another_format_is_refused(tiny_run, tmp_path):
    for name in ("config.yaml", "model.json"):
        text = (tiny_run / name).read_text()
        (tmp_path / name).write_text(
            text.replace("format: 1", "format: 2").replace('"format": 1', '"format": 2')
        )
    shutil.copy(tiny_run / "model.safetensors", tmp_path)
    for read in (read_config, load):
        with pytest.raises(ValueError, match=r"run format 2; torchcno .* reads format 1"):
            read(tmp_path)


def test_weights_of_another_model_are_refused(tiny_run, tmp_path):
    description = json.loads((tiny_run / "model.json").read_text())
    description["config"]["width"] = 8
    (tmp_path / "model.json").write_text(json.dumps(description))
    shutil.copy(tiny_run / "model.safetensors", tmp_path)
    with pytest.raises(ValueError, match="another model"):
        load(tmp_path)


def test_truncated_weights_are_refused(tiny_run, tmp_path):
    shutil.copy(tiny_run / "model.json", tmp_path)
    weights = (tiny_run / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(2, 3, 24, 24), r"takes \(sample, 1, y, x\)"),
        (torch.zeros(24, 24), r"takes \(sample, 1, y, x\)"),
        (torch.full((1, 1, 24, 24), torch.nan), "NaN or infinite values, first in sample 0"),
        (torch.tensor(1.0), r"shape \(\); give .* one or more samples"),
        (torch.zeros(0, 1, 24, 24), r"shape \(0, 1, 24, 24\); give .* one or more samples"),
    ],
)
def test_inputs_that_are_no_fields_are_refused(tiny_run, inputs, message):
    with pytest.raises(ValueError, match=message):
        load(tiny_run).predict(inputs)


@pytest.mark.parametrize(
    ("architecture", "train", "message"),
    [
        ({"in_channels": 2}, {}, "leave in_channels and out_channels out"),
        ({"out_size": (8, 8)}, {}, "leave out_size out"),
        ({}, {"batch_size": 1000}, "larger than the .* training samples; use at most"),
    ],
)
def test_misfits_are_refused_before_data_are_made(
    tiny_config, tmp_path, monkeypatch, architecture, train, message
):
    monkeypatch.setattr("torchcno.runs.train.load_split", lambda *_, **__: pytest.fail("made"))
    config = replace(
        tiny_config,
        architecture=replace(tiny_config.architecture, **architecture),
        train=replace(tiny_config.train, **train),
    )
    with pytest.raises(ValueError, match=message):
        train_run(config, tmp_path / "run")


def test_a_run_that_is_not_to_be_evaluated_is_refused(tiny_config, tmp_path):
    with pytest.raises(ValueError, match="no split to evaluate; name one"):
        train_run(tiny_config, tmp_path, splits=())
    assert RunFolder(tmp_path).state == "new"


def test_numbers_that_make_no_run_are_refused():
    with pytest.raises(ValueError, match="seed is -1; use zero"):
        RunConfig.resolve("poisson", "cno", seed=-1)
    with pytest.raises(ValueError, match="use 2 or more points per axis"):
        RunConfig.resolve("poisson", "cno", resolution=0)


@pytest.mark.parametrize(
    ("precision", "expected"), [("32", ("highest", False)), ("fp16-mixed", ("high", True))]
)
def test_a_new_run_is_evaluated_in_the_arithmetic_of_its_training(
    tiny_config, tmp_path, monkeypatch, precision, expected
):
    """And by the network that was trained: nothing is read back."""
    seen, forward = [], TrainedOperator.forward

    def watched(operator, u, *more):
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return forward(operator, u, *more)

    monkeypatch.setattr(TrainedOperator, "forward", watched)
    monkeypatch.setattr(RunFolder, "operator", lambda *_: pytest.fail("was loaded"))
    train_run(replace(tiny_config, train=replace(tiny_config.train, precision=precision)), tmp_path)
    assert set(seen) == {expected}


def test_a_result_names_its_weights(tiny_run):
    weights = (tiny_run / "model.safetensors").read_bytes()
    result = json.loads((tiny_run / "result.json").read_text())
    assert result["weights"] == hashlib.sha256(weights).hexdigest()


def test_a_folder_knows_its_state(tiny_run, tmp_path):
    """New, begun, finished; and damaged, whatever else there is."""
    folder = RunFolder(tmp_path)
    assert folder.state == "new"
    folder.append({"epoch": 1})
    assert folder.state == "begun"
    shutil.copytree(tiny_run, tmp_path, dirs_exist_ok=True)
    assert folder.state == "finished"
    folder.result_file.write_text("{")
    assert folder.state == "damaged"


@pytest.fixture
def interrupted(tiny_config, tmp_path):
    """The folder of a run that was stopped after its first epoch."""

    def stop(epoch):
        raise RuntimeError("switched off")

    with pytest.raises(RuntimeError, match="switched off"):
        train_run(tiny_config, tmp_path / "run", Watch(epoch=stop))
    return tmp_path / "run"


def test_a_run_does_not_go_on_with_another_network(interrupted):
    """Whether the folder keeps checksums or is of before."""
    path = interrupted / "config.yaml"
    text = path.read_text()
    assert "norm: batch" in text
    path.write_text(text.replace("norm: batch", "norm: none"))
    with pytest.raises(ValueError, match=r"config\.yaml is not what was written there"):
        resume_run(interrupted)
    (interrupted / "checksums.jsonl").unlink()
    model = (interrupted / "model.json").read_bytes()
    with pytest.raises(ValueError, match=r"another config: norm batch, not none; give the same"):
        resume_run(interrupted)
    assert (interrupted / "model.json").read_bytes() == model


def test_a_strangers_configuration_makes_no_folder_for_data(interrupted, tiny_config, tmp_path):
    config, elsewhere = read_config(interrupted), tmp_path / "home" / "data"
    write_tree(replace(config, data=elsewhere).to_tree(), interrupted / "config.yaml")
    with pytest.raises(ValueError, match=r"holds no data of poisson; say where .*--data FOLDER"):
        resume_run(interrupted)
    assert not elsewhere.parent.exists()
    assert resume_run(interrupted, data=tiny_config.data)["epochs"] == 2


def test_what_kills_left_of_small_files_is_swept(interrupted):
    left = [interrupted / f"{name}.1f.part" for name in ("config.yaml", "model.json")]
    for path in left:
        path.write_text("half")
    resume_run(interrupted)
    assert not any(path.exists() for path in left)


def test_a_symmetry_that_the_problem_has_not_is_refused(tiny_config, tmp_path):
    recipe = replace(tiny_config.train, augmentation="translations")
    with pytest.raises(ValueError, match=r"no symmetry 'translations'; use augmentation none, sq"):
        train_run(replace(tiny_config, train=recipe), tmp_path / "run")


def test_predictions_that_are_averaged_have_the_symmetry_also_when_loaded(tiny_config, tmp_path):
    recipe = replace(
        tiny_config.train,
        normalization="symmetric",
        augmentation="odd-square",
        symmetric_predictions=True,
    )
    train_run(replace(tiny_config, train=recipe), tmp_path / "run")
    operator = load(tmp_path / "run")
    u = torch.rand(1, 1, *operator.grid.shape) - 0.5
    v = operator.apply_to(u)
    for image, expected in ((-u, -v), (u.mT, v.mT), (u.flip(-1), v.flip(-1))):
        torch.testing.assert_close(operator.apply_to(image), expected)
    assert not torch.allclose(operator.network(u.mT), operator.network(u).mT, rtol=1e-2)
