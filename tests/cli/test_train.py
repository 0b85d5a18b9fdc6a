import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import yaml
from safetensors.torch import save_file

import torchcno.runs.train
from torchcno.runs import watching
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import read_config
from torchcno.runs.train import Watch, train_run
from torchcno.training import Hardware, load_tensors


def test_options_reach_the_configuration(run_folder):
    config = read_config(run_folder)
    assert (config.problem.name, config.problem.K, config.model) == ("poisson", 4, "cno")
    assert (config.architecture.width, config.architecture.size) == (4, (24, 24))
    assert (config.train.epochs, config.train.samples) == (2, 8)
    # What was not said: the preset's schedule, its rate for this problem, and its boundary.
    assert (config.train.schedule, config.train.learning_rate) == ("cosine", 4e-3)
    assert (config.preset, config.architecture.boundary) == ("best", "zero")


def test_the_first_line_says_what_runs_where_and_how(cno, tiny, tmp_path, monkeypatch):
    said = cno("train", *tiny, "--out", tmp_path / "run").err
    assert said.partition("\n")[0].startswith("poisson, cno on ")
    assert said.partition("\n")[0].endswith(" threads: operation by operation")
    monkeypatch.setattr(watching, "pick_device", torch.device)
    monkeypatch.setattr(watching, "device_name", lambda device: "a GPU")
    for recipe, hardware, how in (
        ({}, {}, "a GPU: fast, a step is one CUDA graph (else: --train.fast off), products in TF"),
        ({"fast": "compiled"}, {}, "fast, compiled, a step is one CUDA graph"),
        ({"fast": "off"}, {}, "a GPU: operation by operation, products in TF32"),
        ({"precision": "fp16-mixed"}, {}, "fields in float16"),
        ({}, {"devices": 4}, "4 × a GPU: operation by operation"),
    ):
        config = RunConfig.resolve("wave", "fno", hardware=Hardware("cuda", **hardware))
        config = replace(config, train=replace(config.train, **recipe))
        assert how in watching.describe_run(config)
        assert watching.describe_run(config).startswith("wave, fno on ")


def test_a_run_can_be_repeated_from_its_configuration(cno, run_folder, tmp_path):
    out = tmp_path / "again"
    assert cno("train", "--config", run_folder / "config.yaml", "--out", out).code == 0
    assert read_config(out) == read_config(run_folder)
    weights, again = (load_tensors(f / "model.safetensors")[0] for f in (run_folder, out))
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_options_go_over_the_file_and_the_file_over_the_preset(resolve, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("problem: wave\ntrain: {epochs: 7, learning_rate: 1e-4}\npreset: paper\n")
    words = ["wave", "fno", "--config", str(path), "--train.epochs", "9", "--model.modes", "8"]
    config = resolve(*words)
    assert (config.train.epochs, config.train.learning_rate) == (9, 1e-4)
    assert (config.train.schedule, config.architecture.modes) == ("step", 8)


def test_a_filter_is_chosen_by_kind_or_by_field(resolve):
    for words, filter in (
        (["--model.filter", "ideal"], {"kind": "ideal"}),
        (["--model.filter.taps", "8"], {"kind": "windowed-sinc", "taps": 8, "half_width": 0.8}),
        (["--model.filter", "{kind: windowed-sinc, taps: 4}"], {"taps": 4}),
    ):
        config = resolve("poisson", "cno", *words)
        assert filter.items() <= config.to_tree()["model"]["filter"].items()


def test_a_word_is_read_as_in_a_configuration_file(resolve):
    words = ["--train.precision", "32", "--train.patience", "null", "--train.learning_rate", "1e-4"]
    config = resolve("poisson", "fno", *words, "--model.coordinates", "false", "--model.width=8")
    recipe = config.train
    assert (recipe.precision, recipe.patience, recipe.learning_rate) == ("32", None, 1e-4)
    assert (config.architecture.coordinates, config.architecture.width) == (False, 8)
    assert resolve("poisson", "cno", "--model.size", "[32, 48]").architecture.size == (32, 48)


def test_channels_follow_the_problems_components(resolve):
    config = resolve("navier-stokes", "fno", "--problem.components", "uv")
    assert (config.architecture.in_channels, config.architecture.out_channels) == (2, 2)


def test_tensorboard_without_its_package_is_refused_before_anything_starts(
    cno, tiny, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    outcome = cno("train", *tiny, "--out", tmp_path / "run", "--tensorboard")
    assert outcome.code == 2
    assert "pip install 'torchcno[log]'" in outcome.err
    assert not (tmp_path / "run").exists()


def test_interrupted_and_resumed_is_as_if_left_alone(
    cno, tiny, run_folder, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(config, out, watch):
        def press_ctrl_c(epoch):
            watch.epoch(epoch)
            if epoch.epoch == 1:
                os.kill(os.getpid(), signal.SIGINT)

        return train_run(config, out, Watch(watch.data, press_ctrl_c))

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(torchcno.runs.train, "train_run", interrupted)
        stopped = cno("train", *tiny, "--out", out, "--tensorboard")
    assert stopped.code == 130
    assert f"cno resume {out}" in stopped.err
    assert not (out / "result.json").exists()

    assert cno("resume", out).code == 0
    weights, resumed = (load_tensors(f / "model.safetensors")[0] for f in (run_folder, out))
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    errors = [json.loads((f / "result.json").read_text())["errors"] for f in (run_folder, out)]
    assert errors[0] == errors[1]
    # Its curves go on, too, without being asked for again; nobody else has any.
    assert len(list((out / "tensorboard").glob("events.out.tfevents.*"))) == 2
    assert not (run_folder / "tensorboard").exists()


def test_a_foreign_checkpoint_is_named(cno, run_folder, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "result.json").unlink()
    path = folder / "checkpoint" / "state.safetensors"
    save_file({"layer.weight": torch.ones(2)}, path, {"format": "pt"})
    outcome = cno("resume", folder)
    assert outcome.code == 2
    assert f"{path} holds no state of a run" in outcome.err


def test_divergence_has_its_own_exit_code(cno, tiny, tmp_path):
    outcome = cno("train", *tiny, "--train.learning_rate", "1e30", "--out", tmp_path / "run")
    assert outcome.code == 3
    assert "epoch" in outcome.err
    assert "Traceback" not in outcome.err


def test_data_that_cannot_be_made_in_the_end_are_refused_in_the_beginning(cno, tiny, tmp_path):
    """Out of distribution there are more modes than in training."""
    outcome = cno("train", *tiny, "--resolution", 16, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "does not resolve K = 20 sine modes" in outcome.err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_refused(cno, tiny, run_folder):
    same = cno("train", *tiny, "--out", run_folder)
    assert same.code == 2
    assert f"holds this run already; it is finished (cno evaluate {run_folder})" in same.err
    other = cno("train", *tiny, "--seed", 1, "--out", run_folder)
    assert other.code == 2
    assert "holds another run: seed is 0, not 1; choose another folder" in other.err
    resumed = cno("resume", run_folder)
    assert resumed.code == 0
    assert f"{run_folder} is finished: there is nothing to go on with." in resumed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poisson", "cno"], "--out FOLDER"),
        (["poisson"], "cno train PROBLEM MODEL --out FOLDER"),
        (["--out", "x", "poisson", "cno"], "name a problem and a model before all options"),
        (["poisson", "ffnn", "cno"], "Unrecognized options: cno"),
        (["posson", "cno"], "unknown problem 'posson'; did you mean 'poisson'?"),
        (["poisson", "con"], "unknown model 'con'; did you mean 'cno'?"),
        (["poisson", "cno", "--preset", "bets"], "unknown preset 'bets'; did you mean 'best'?"),
        (["poisson", "cno", "--model.widht", "3"], "Perhaps you meant: --model.width"),
        (
            ["poisson", "cno", "--train.epochs", "many"],
            "train.epochs is 'many'; give a whole number.",
        ),
        (
            ["poisson", "cno", "--train.patience", "x"],
            "train.patience is 'x'; give a whole number or null.",
        ),
        (["poisson", "cno", "--resolution", "fine"], "--resolution"),
        (["poisson", "cno", "--train.epochs", "0", "--out", "x"], "epochs is 0"),
        (["poisson", "cno", "--model.boundary", "perodic"], "'perodic'"),
        (["poisson", "cno", "--model.size", "[50,50]", "--out", "x"], "not divisible by 2**levels"),
        (["poisson", "cno", "--config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_bad_words_are_named_with_their_remedy(cno, words, message):
    outcome = cno("train", *words)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("train: {epohcs: 3}", "train.epohcs is unknown; did you mean 'epochs'?"),
        ("trian: {epochs: 3}", "trian is unknown; did you mean 'train'?"),
        ("problem: {name: wave}", "is of problem wave, not poisson"),
        ("format: 7", "run format 7"),
        ("[1, 2", "is not a YAML file"),
        ("just a sentence", "holds no configuration"),
    ],
)
def test_a_bad_configuration_file_is_explained(cno, tmp_path, content, message):
    path = tmp_path / "run.yaml"
    path.write_text(content)
    outcome = cno("train", "poisson", "cno", "--config", path, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert message in outcome.err
    assert not (tmp_path / "run").exists()


def test_names_after_an_option_are_not_left_unheard(cno, run_folder, tmp_path):
    words = ["--config", run_folder / "config.yaml", "--out", tmp_path / "run", "wave", "cno"]
    outcome = cno("train", *words)
    assert outcome.code == 2
    assert "is of problem poisson, not wave; leave one out" in outcome.err
    assert not (tmp_path / "run").exists()


def test_a_run_is_of_the_preset_that_its_fields_come_from(cno, resolve, run_folder, tmp_path):
    words = ["train", "--config", run_folder / "config.yaml", "--out", tmp_path / "run"]
    outcome = cno(*words, "--preset", "paper")
    assert outcome.code == 2
    assert "is of preset best, not paper; leave --preset out" in outcome.err
    assert not (tmp_path / "run").exists()
    same = ["--config", run_folder / "config.yaml", "--preset", "best"]
    assert resolve(*same) == read_config(run_folder)


def test_an_unwritable_folder_is_named(cno, tiny, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file" / "run", "/proc/run"):
        outcome = cno("train", *tiny, "--out", folder)
        assert outcome.code == 2
        assert f"{folder} cannot be made: " in outcome.err
        assert "choose another folder" in outcome.err


def test_help_teaches(cno):
    outcome = cno("train", "poisson", "cno", "--help")
    assert outcome.code == 0
    for text in ("--model.width", "d_e", "--train.epochs", "--problem.K", "cno train poisson cno"):
        assert text in outcome.out


def test_the_written_configuration_is_plain_yaml(run_folder):
    tree = yaml.safe_load((run_folder / "config.yaml").read_text())
    assert tree["model"]["filter"]["kind"] == "windowed-sinc"
    assert tree["format"] == 1


def test_a_file_on_another_grid_has_the_network_of_that_grid(resolve, run_folder):
    config = resolve("--config", run_folder / "config.yaml", "--resolution", "32")
    assert (config.resolution, config.architecture.size) == (32, (32, 32))
    assert config.architecture.width == read_config(run_folder).architecture.width


def test_too_little_memory_is_told_with_the_remedy(tiny, tmp_path):
    # In a process of its own: the C library's allocator is another one after a failure.
    words = ["train", *tiny, "--model.width", "1000000", "--out", tmp_path / "run"]
    code = "import sys; from torchcno.cli import main; sys.exit(main(sys.argv[1:]))"
    script = [sys.executable, "-c", code, *map(str, words)]
    outcome = subprocess.run(script, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "of memory, and" in outcome.stderr
    assert "use a smaller width" in outcome.stderr


def test_no_search_is_made_in_the_folder_of_a_run(cno, tiny, run_folder):
    before = (run_folder / "result.json").read_bytes()
    outcome = cno("search", *tiny, "--trials", "1", "--out", run_folder)
    assert outcome.code == 2
    assert "holds a run; choose another --out" in outcome.err
    assert (run_folder / "result.json").read_bytes() == before


def test_an_option_of_another_model_is_not_suggested(cno, tmp_path):
    said = cno("train", "poisson", "unet", "--out", tmp_path, "--model.width", "8").err
    assert "Unrecognized options: --model.width" in said
    assert "Perhaps you meant: --model.width" not in said


@pytest.mark.parametrize("option", ["--name=mine", "--split-seed=3", "--val=more.nc"])
def test_a_benchmark_takes_no_option_of_a_file(cno, tmp_path, option):
    outcome = cno("train", "poisson", "cno", "--out", tmp_path / "run", option)
    assert outcome.code == 2
    assert f"{option.partition('=')[0]} is for your own file" in outcome.err
    assert not (tmp_path / "run").exists()
