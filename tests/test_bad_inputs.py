"""Bad inputs, of the command line and of Python: each is answered in one line that says what to do.

None is taken in silence, none loses a file, and none takes memory that is not there. Every case is
a row: what is given, and words that the answer has.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray
from torch import nn

from torchcno import (
    CNO,
    PRESETS,
    CNOConfig,
    Fields,
    Grid,
    Normalization,
    Recipe,
    RunConfig,
    audit,
    build_model,
    evaluate_run,
    generate,
    load,
    load_pretrained,
    resume_run,
    train,
    train_run,
)
from torchcno.cli import main
from torchcno.data.opening import open_stored
from torchcno.problems.poisson import Poisson
from torchcno.runs.watching import Watch
from torchcno.training import Hardware, Pairs

GRID = Grid((8,), "periodic")
QUICK = replace(PRESETS["best"], epochs=1, batch_size=4, evaluate_every=1)


def pairs(n: int = 8, grid: Grid = GRID, channels: tuple[int, int] = (1, 1)) -> Fields:
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(n, channels[0], *grid.shape, generator=generator)
    return Fields(u, 1 + u.mean(1, keepdim=True).expand(-1, channels[1], *grid.shape), grid)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs and files, good and bad."""
    home = tmp_path_factory.mktemp("home")
    train("cno", pairs(), pairs(4), home / "run", recipe=QUICK, watch=Watch(), width=4)
    fields = pairs(20)
    u, v = fields.inputs.numpy()[:, 0], fields.outputs.numpy()[:, 0]
    x = np.arange(8) / 8
    good = xarray.Dataset({"a": (("sample", "x"), u), "u": (("sample", "x"), v)}, {"x": x})
    good.to_netcdf(home / "good.nc", engine="h5netcdf")
    np.save(home / "in.npy", u[:2, None])
    np.savez(home / "good.npz", a=u, u=v)
    arrays = {
        "nan": np.where(u > 1, np.nan, u)[:, None],
        "complex": u[:, None] * (1 + 1j),
        "text": np.array([["a", "b"]]),
        "scalar": np.float32(3),
        "empty": np.zeros((0, 1, 8)),
        "flat": u[0],
        "plane": u.reshape(20, 1, 2, 4),
        "channels": np.zeros((2, 3, 8)),
        "dates": np.zeros((2, 1, 8), "datetime64[s]"),
    }
    for name, array in arrays.items():
        np.save(home / f"{name}.npy", array)
    np.save(home / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (home / "half.npy").write_bytes((home / "in.npy").read_bytes()[:100])
    (home / "half.nc").write_bytes((home / "good.nc").read_bytes()[:300])
    (home / "half.npz").write_bytes((home / "good.npz").read_bytes()[:300])
    for ending in ("npy", "nc", "npz", "h5", "zarr", "txt", "yaml", "json"):
        (home / f"words.{ending}").write_text("these are words: [\n")
        (home / f"nothing.{ending}").write_bytes(b"")
    variants = {
        "nan": good.assign(a=good.a.where(good.a < 1)),
        "long": good.assign(a=(("sample", "x2"), u[:, :4])),
        "one": good.isel(sample=slice(1)),
        "uneven": good.assign_coords(x=x**2),
        "falling": good.assign_coords(x=x[::-1]),
        "constant": good.assign(u=0 * good.u + 3),
        "still": good.assign(a=0 * good.a),
        "zero": good.assign(u=0 * good.u),
        "times": good.expand_dims(time=3, axis=1),
    }
    for name, dataset in variants.items():
        dataset.to_netcdf(home / f"{name}.nc", engine="h5netcdf")
    (home / "notes").mkdir()
    (home / "notes" / "diary.txt").write_text("mine")
    (home / "foreign").mkdir()
    (home / "foreign" / "config.yaml").write_text("server: 1\n")
    (home / "hollow").mkdir()
    (home / "bad.yaml").write_text("problem: poisson\nmodel: {name: cno, widht: 3}\n")
    (home / "list.yaml").write_text("- 1\n- 2\n")
    (home / "format.yaml").write_text("format: 99\nproblem: poisson\nmodel: cno\n")
    return home


def contents(folder: Path) -> dict[str, str]:
    """What every file below `folder` holds, but for locks."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


BIG = 10**12
OWN = "train --data good.nc --inputs a --outputs u --layout periodic --out new"
SMALL = "--train.epochs 1 --train.batch_size 4 --model.width 4"
# What is typed behind `cno`, and a part of the answer.
COMMANDS: list[tuple[str, str]] = [
    # verbs
    ("trian", "did you mean `cno train`"),
    ("evalute run", "did you mean `cno evaluate`"),
    ("--foo", "unknown verb"),
    ("Train poisson cno", "did you mean"),
    # own data: the file
    ("train --data missing.nc --inputs a --outputs u --out new", "does not exist"),
    ("train --data notes --inputs a --outputs u --out new", ""),
    ("train --data words.nc --inputs a --outputs u --out new", ""),
    ("train --data nothing.nc --inputs a --outputs u --out new", ""),
    ("train --data half.nc --inputs a --outputs u --out new", ""),
    ("train --data words.npz --inputs a --outputs u --out new", ""),
    ("train --data nothing.npz --inputs a --outputs u --out new", ""),
    ("train --data half.npz --inputs a --outputs u --out new", ""),
    ("train --data words.npy --inputs a --outputs u --out new", ""),
    ("train --data nothing.npy --inputs a --outputs u --out new", ""),
    ("train --data half.npy --inputs a --outputs u --out new", ""),
    ("train --data words.h5 --inputs a --outputs u --out new", ""),
    ("train --data nothing.h5 --inputs a --outputs u --out new", ""),
    ("train --data words.zarr --inputs a --outputs u --out new", ""),
    ("train --data words.txt --inputs a --outputs u --out new", ""),
    ("train --data objects.npy --inputs a --outputs u --out new", ""),
    ("train --data good.nc --out new", "say which variables"),
    ("train --data good.nc --inputs a --out new", "say which variables are outputs"),
    ("train --data good.nc --outputs u --out new", "say which variables are inputs"),
    ("train --data good.nc --inputs b --outputs u --out new", ""),
    ("train --data good.nc --inputs a --outputs U --out new", ""),
    ("train --data good.nc --inputs a,b --outputs u --out new", ""),
    ("train --inputs a --outputs u --out new", "name it: --data FILE"),
    ("train --inputs a --out new", "name it: --data FILE"),
    ("train --data nan.nc --inputs a --outputs u --layout periodic --out new", "missing"),
    ("train --data long.nc --inputs a --outputs u --layout periodic --out new", ""),
    ("train --data one.nc --inputs a --outputs u --layout periodic --out new", "cannot be divided"),
    ("train --data uneven.nc --inputs a --outputs u --layout periodic --out new", "equispaced"),
    ("train --data falling.nc --inputs a --outputs u --layout periodic --out new", "sort it"),
    ("train --data zero.nc --inputs a --outputs u --layout periodic --out new", ""),
    ("train --data still.nc --inputs a --outputs u --layout periodic --out new", ""),
    ("train --data times.nc --inputs a --outputs u --layout periodic --out new", "times"),
    ("train --data times.nc --inputs a --outputs u --layout periodic --times 0,9 --out new", "9"),
    ("train --data times.nc --inputs a --outputs u --times 0 --layout periodic --out new", ""),
    ("train --data complex.npy --inputs a --outputs u --out new", ""),
    # own data: options
    (f"{OWN} --layout diagonal", "unknown layout"),
    (f"{OWN} --layout periodic,periodic", "layouts for 1 axes"),
    (f"{OWN} --mask nowhere", ""),
    (f"{OWN} --format excel", "unknown"),
    (f"{OWN} --split 100,1", "samples are asked for"),
    (f"{OWN} --split 0,1", "1 or more"),
    (f"{OWN} --split 20", "give a number of samples for each"),
    (f"{OWN} --split 5,5,5,5", "give a number of samples for each"),
    (f"{OWN} --split a,b", "is no list"),
    (f"{OWN} --split -5,10", ""),
    (f"{OWN} --split-seed x", "give a whole number"),
    (f"{OWN} --val missing.nc", "does not exist"),
    (f"{OWN} --test missing.nc", "does not exist"),
    (f"{OWN} --ood missing.nc", "does not exist"),
    (f"{OWN} --ood words.nc", ""),
    (f"{OWN} --model cnn", "did you mean 'cno'"),
    (f"{OWN} --model resnet", "give (y, x)"),
    (f"{OWN} --model deeponet", "give (y, x)"),
    (f"{OWN} --preset beast", "did you mean 'best'"),
    (f"{OWN} --config bad.yaml", "leave one out"),
    (f"{OWN} --from missing", "does not exist"),
    (f"{OWN} --from notes", ""),
    (f"{OWN} --from run --model.width 8", "stays as it is"),
    (f"{OWN} --model.width 0", "width is 0"),
    (f"{OWN} --model.width -8", "width is -8"),
    (f"{OWN} --model.width 8.5", "give a whole number"),
    (f"{OWN} --model.width many", "give a whole number"),
    (f"{OWN} --model.widht 8", "--model.width"),
    (f"{OWN} --model.levels 9", "cannot be halved so often"),
    (f"{OWN} --model.levels 0", "levels is 0"),
    (f"{OWN} --model.size 8", ""),
    (f"{OWN} --model.size [7]", "not divisible"),
    (f"{OWN} --model.size [8,8]", ""),
    (f"{OWN} --model.size [0]", ""),
    (f"{OWN} --model.in_channels 3", "in_channels"),
    (f"{OWN} --model.out_channels 3", "out_channels"),
    (f"{OWN} --model.out_size [16]", "out_size"),
    (f"{OWN} --model.boundary wall", "unknown boundary"),
    (f"{OWN} --model.layout wall", "give one of"),
    (f"{OWN} --model.layout inclusive", "layout"),
    (f"{OWN} --model.activation relux", "unknown activation"),
    (f"{OWN} --model.filter none", ""),
    (f"{OWN} --model.norm layer", "unknown norm"),
    (f"{OWN} --model.kernel_size 2", ""),
    (f"{OWN} --model.kernel_size 0", "kernel_size is 0"),
    (f"{OWN} --model.activation_upsampling 0", "activation_upsampling is 0"),
    (f"{OWN} --model.width {10**9}", "of memory"),
    (f"{OWN} --model.lift_width {10**9}", "of memory"),
    (f"{OWN} --train.epochs 0", "epochs is 0"),
    (f"{OWN} --train.epochs -1", "epochs is -1"),
    (f"{OWN} --train.epochs 1.5", "give a whole number"),
    (f"{OWN} --train.epochs inf", "give a whole number"),
    (f"{OWN} --train.batch_size 0", "batch_size is 0"),
    (f"{OWN} --train.batch_size 1000", "larger than the 16 training samples"),
    (f"{OWN} --train.samples 0", "samples is 0"),
    (f"{OWN} --train.samples {BIG}", "samples"),
    (f"{OWN} --train.learning_rate 0", "learning_rate is 0"),
    (f"{OWN} --train.learning_rate -1", "learning_rate is -1"),
    (f"{OWN} --train.learning_rate nan", "learning_rate is nan"),
    (f"{OWN} --train.learning_rate fast", "give a number"),
    (f"{OWN} --train.optimizer adam", "did you mean 'adamw'"),
    (f"{OWN} --train.loss mse", "unknown loss"),
    (f"{OWN} --train.schedule linear", "unknown schedule"),
    (f"{OWN} --train.augmentation square-dance", "unknown augmentation"),
    (f"{OWN} --train.augmentation exchange", "one axis has no other"),
    (f"{OWN} --train.augmentation reflections", "no velocity in a plane"),
    (f"{OWN} --train.normalization sphere", "unknown normalization"),
    (f"{OWN} --train.weight_decay -1", "weight_decay is -1"),
    (f"{OWN} --train.warmup 1", "warmup is 1"),
    (f"{OWN} --train.warmup 2", "warmup is 2"),
    (f"{OWN} --train.frozen_statistics 1", "frozen_statistics is 1"),
    (f"{OWN} --train.averaging_half_life 0", "averaging_half_life is 0"),
    (f"{OWN} --train.patience 0", "patience is 0"),
    (f"{OWN} --train.evaluate_every 0", "evaluate_every is 0"),
    (f"{OWN} --train.checkpoint_every -1", "checkpoint_every is -1"),
    (f"{OWN} --train.precision 64", "give one of"),
    (f"{OWN} --train.fast very", "give one of"),
    (f"{OWN} --train.gamma 0", "gamma is 0"),
    (f"{OWN} --train.epoch 3", "--train.epochs"),
    (f"{OWN} --device tpu", "accelerator"),
    (f"{OWN} --device cuda", ""),
    (f"{OWN} --devices 0", "devices is 0"),
    (f"{OWN} --nodes 0", "nodes is 0"),
    (f"{OWN} --strategy dp", "strategy"),
    (f"{OWN} --seed -1", "seed is -1"),
    (f"{OWN} --seed x", "give a whole number"),
    (f"{OWN} --seed {2**70}", "seed is"),
    ("train --data good.nc --inputs a --outputs u --layout periodic", "--out FOLDER"),
    # where a run is to lie
    ("train --data good.nc --inputs a --outputs u --layout periodic --out run", ""),
    ("train --data good.nc --inputs a --outputs u --layout periodic --out notes", "diary.txt"),
    ("train --data good.nc --inputs a --outputs u --layout periodic --out foreign", "config.yaml"),
    ("train --data good.nc --inputs a --outputs u --layout periodic --out in.npy", ""),
    ("train --data good.nc --inputs a --outputs u --layout periodic --out in.npy/x", ""),
    ("train --data good.nc --inputs a --outputs u --layout periodic --out .", "not of a run"),
    (f"train --data good.nc --inputs a --outputs u --layout periodic --out {'n' * 300}", ""),
    # benchmarks
    ("train", "name a problem and a model"),
    ("train poisson", "name a problem and a model"),
    ("train poison cno --out new", "did you mean 'poisson'"),
    ("train poisson cnn --out new", "did you mean 'cno'"),
    ("train poisson cno wave --out new", "wave"),
    ("train poisson cno --split 1,2 --out new", "is for your own file"),
    ("train poisson cno --layout periodic --out new", "is for your own file"),
    ("train poisson cno --ood good.nc --out new", "is for your own file"),
    ("train poisson cno", "--out FOLDER"),
    ("train poisson cno --resolution 0 --out new", "too small"),
    ("train poisson cno --resolution -4 --out new", "too small"),
    ("train poisson cno --resolution 1 --out new", "too small"),
    ("train poisson cno --resolution 33 --out new", "not divisible"),
    ("train poisson cno --resolution 100000000 --out new", "of memory"),
    ("train poisson cno --resolution x --out new", "give a whole number"),
    ("train poisson cno --model.width 100000000 --out new", "of memory"),
    ("train poisson cno --train.samples 0 --out new", "samples is 0"),
    ("train poisson cno --problem.K 0 --out new", ""),
    ("train poisson cno --problem.K -1 --out new", ""),
    ("train poisson cno --problem.k 3 --out new", "--problem.K"),
    ("train poisson cno --train.augmentation translations --out new", "has no symmetry"),
    ("train --config missing.yaml --out new", "give the name"),
    ("train --config words.yaml --out new", "is not a YAML file"),
    ("train --config nothing.yaml --out new", "holds no configuration"),
    ("train --config list.yaml --out new", "holds no configuration"),
    ("train --config bad.yaml --out new", "did you mean 'width'"),
    ("train --config format.yaml --out new", "format"),
    ("train --config in.npy --out new", "is not a YAML file"),
    ("train --config notes --out new", "is no file"),
    ("train poisson cno --out notes", "diary.txt"),
    ("train poisson cno --out foreign", "config.yaml"),
    # generate
    ("generate", "give one problem"),
    ("generate poisson --all", "give one problem"),
    ("generate poison --out d", "did you mean 'poisson'"),
    ("generate poisson --samples 0 --out d", "samples is 0"),
    ("generate poisson --samples -1 --out d", "samples is -1"),
    (f"generate poisson --samples {BIG} --out d", "ask for fewer"),
    ("generate poisson --samples 1.5 --out d", "give a whole number"),
    ("generate poisson --resolution 0 --out d", "too small"),
    ("generate poisson --resolution 100000000 --samples 1 --out d", "of memory"),
    ("generate wave --resolution 100000000 --samples 1 --out d", "of memory"),
    ("generate darcy --resolution 100000000 --samples 1 --out d", ""),
    ("generate allen-cahn --resolution 100000000 --samples 1 --out d", "of memory"),
    ("generate navier-stokes --resolution 100000000 --samples 1 --out d", ""),
    ("generate smooth-transport --resolution 100000000 --samples 1 --out d", "of memory"),
    ("generate poisson --split tests --out d", "did you mean 'test'"),
    ("generate poisson --seed x --out d", "give a whole number"),
    (f"generate poisson --seed {2**70} --out d", "seed is"),
    ("generate poisson --workers 0 --samples 1 --out d", "workers is 0"),
    ("generate poisson --device tpu --samples 1 --out d", "unknown device"),
    ("generate poisson --samples 1 --out in.npy", ""),
    ("generate poisson --problem.K x --out d", "give a whole number"),
    # predict
    ("predict", "still to be given"),
    ("predict run", "still to be given"),
    ("predict run in.npy", "--out"),
    ("predict missing in.npy --out o.npy", ""),
    ("predict notes in.npy --out o.npy", "has no"),
    ("predict hollow in.npy --out o.npy", "has no"),
    ("predict in.npy in.npy --out o.npy", ""),
    ("predict run missing.npy --out o.npy", "does not exist"),
    ("predict run notes --out o.npy", ""),
    ("predict run words.npy --out o.npy", "damaged"),
    ("predict run nothing.npy --out o.npy", "damaged"),
    ("predict run half.npy --out o.npy", "damaged"),
    ("predict run objects.npy --out o.npy", "damaged or no .npy"),
    ("predict run good.npz --out o.npy", "unknown kind of input file"),
    ("predict run words.txt --out o.npy", "unknown kind of input file"),
    ("predict run words.nc --out o.npy", "damaged"),
    ("predict run nothing.nc --out o.npy", "damaged"),
    ("predict run half.nc --out o.npy", "damaged"),
    ("predict run nan.npy --out o.npy", "NaN or infinite"),
    ("predict run complex.npy --out o.npy", "complex"),
    ("predict run text.npy --out o.npy", "give real numbers"),
    ("predict run dates.npy --out o.npy", "give real numbers"),
    ("predict run scalar.npy --out o.npy", "have shape"),
    ("predict run empty.npy --out o.npy", "have shape"),
    ("predict run flat.npy --out o.npy", "have shape"),
    ("predict run plane.npy --out o.npy", "takes (sample, 1, x)"),
    ("predict run channels.npy --out o.npy", "takes (sample, 1, x)"),
    ("predict run in.npy --out o.txt", "ending"),
    ("predict run in.npy --out o", "ending"),
    ("predict run in.npy --out notes", "is a folder"),
    ("predict run in.npy --out nowhere/o.npy", "does not exist"),
    ("predict run in.npy --out in.npy", "is there already"),
    ("predict run in.npy --out plane.npy", "is there already"),
    ("predict run in.npy --out good.nc", "is there already"),
    ("predict run in.npy --out o.npy --batch-size 0", "batch_size is 0"),
    ("predict run in.npy --out o.npy --batch-size -2", "batch_size is -2"),
    ("predict run in.npy --out o.npy --batch-size x", "give a whole number"),
    ("predict run in.npy --out o.npy --device tpu", "unknown device"),
    ("predict run in.npy o.npy", ""),
    # evaluate
    ("evaluate", "name the folder of a run"),
    ("evaluate missing", "does not exist"),
    ("evaluate notes", "has no config.yaml"),
    ("evaluate foreign", ""),
    ("evaluate in.npy", "is no folder"),
    ("evaluate run --split tests", "did you mean 'test'"),
    ("evaluate run --split test", "has no test samples"),
    ("evaluate run --split ood", "has no ood samples"),
    ("evaluate run --samples 0", "samples is 0"),
    ("evaluate run --samples 100", "ask for fewer"),
    (f"evaluate run --samples {BIG}", "ask for fewer"),
    ("evaluate run --samples x", "give a whole number"),
    ("evaluate run --resolutions 0", ""),
    ("evaluate run --resolutions -8", ""),
    ("evaluate run --resolutions 16", "do not determine 16"),
    ("evaluate run --resolutions 100000000", "do not determine"),
    ("evaluate run --resolutions a,b", "is no list"),
    ("evaluate run --save o.npy", "ending"),
    ("evaluate run --save good.nc", "is there already"),
    ("evaluate run --save nowhere/o.nc", "does not exist"),
    ("evaluate run --json o.txt", "ending"),
    ("evaluate run --json run/model.json", "is a file of a run"),
    ("evaluate run --json run/result.json", "is a file of a run"),
    ("evaluate run --json notes", "is a folder"),
    ("evaluate run --plot o.txt", "ending"),
    ("evaluate run --plot nowhere/o.png", "does not exist"),
    ("evaluate run --plot o.png --resolutions 4", "add 8"),
    ("evaluate run --device tpu", "unknown device"),
    ("evaluate run run --save o.nc", "for one run"),
    ("evaluate run --foo", "--foo"),
    # audit
    ("audit", "name the folder of a run"),
    ("audit missing", "unknown folder"),
    ("audit notes", "has no config.yaml"),
    ("audit run --threshold 0", "--threshold is 0"),
    ("audit run --threshold -1", "--threshold is -1"),
    ("audit run --threshold nan", "--threshold is nan"),
    ("audit run --threshold x", "give a number"),
    ("audit run --samples 0", "samples is 0"),
    ("audit run --samples 1000", "ask for fewer"),
    ("audit run --split tests", "did you mean 'test'"),
    ("audit run --resolutions 1", "2 points or more"),
    ("audit run --resolutions 0", "2 points or more"),
    ("audit run --resolutions 100000000", "of memory"),
    ("audit run --json run/model.json", "is a file of a run"),
    ("audit run --json o.txt", "ending"),
    ("audit run --plot o.txt", "ending"),
    ("audit run --symmetries --json o.json", "leave them out"),
    ("audit missing --symmetries", "unknown folder"),
    # resume
    ("resume", "still to be given"),
    ("resume missing", "does not exist"),
    ("resume notes", "has no config.yaml"),
    ("resume in.npy", "is no folder"),
    ("resume foreign", ""),
    ("resume run --epochs 0", ""),
    ("resume run --epochs -3", ""),
    ("resume run --epochs x", "give a whole number"),
    ("resume run other", "other"),
    # search
    ("search --out new", "name a problem and a model"),
    ("search poisson cno", "--out FOLDER"),
    ("search poisson cno --out run", "holds a run"),
    ("search poisson cno --out new --range model.width", "names no values"),
    ("search poisson cno --out new --range model.width=", "is empty"),
    ("search poisson cno --out new --range width=8", "cannot be searched"),
    ("search poisson cno --out new --range model.widht=8", "did you mean 'width'"),
    ("search poisson cno --out new --range model.width=x", "give a whole number"),
    ("search poisson cno --out new --max-parameters 0", "give 1 or more"),
    ("search poisson cno --out new --max-parameters 10", "no configuration"),
    ("search poisson cno --out new --sampler grid", "unknown sampler"),
    ("search poisson cno --out new --pruner early", "unknown pruner"),
    ("search poisson cno --out new --trials 0", ""),
    ("search --data missing.nc --inputs a --outputs u --out new", "does not exist"),
    # export
    ("export", "still to be given"),
    ("export missing --half --out new", "unknown folder"),
    ("export notes --half --out new", "has no"),
    ("export run --out new", "give one of"),
    ("export run --format exe --out new", ""),
]


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case[0][:80])
def test_a_bad_command_is_answered(
    case: tuple[str, str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_outside_tests: None,
) -> None:
    words, expected = case
    monkeypatch.chdir(home)
    monkeypatch.setenv("TORCHCNO_DATA", str(home / "cache"))
    before = contents(home)
    code = main(words.split())
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if line.strip()]
    answer = said[-1] if said else ""
    assert code == 2, (code, out, err)
    check_answer(answer.partition(": ")[2], expected)
    assert sum(bool(re.match(r"cno \S+: ", line)) for line in said) == 1, err
    after = contents(home)
    assert {name: after.get(name) for name in before} == before  # nothing is lost
    shutil.rmtree(home / "new", ignore_errors=True)  # where a configuration may lie, and no run
    left = {name for name in set(after) - set(before) if not name.startswith("new/c")}
    assert not left, left  # and nothing else is left behind


RAW = re.compile(r"\[Errno|Traceback|allow_pickle|site-packages|<class|object at 0x|libhdf5|errno")


def check_answer(answer: str, expected: str) -> None:
    """An answer is a line that has the words expected, no raw text, and a remedy."""
    assert expected in answer
    assert "\n" not in answer.strip()
    assert len(answer) < 600
    assert not RAW.search(answer), answer
    assert re.search(REMEDY, answer), f"no remedy: {answer}"


REMEDY = (
    r"\b(use|give|name|choose|write|make|move|check|remove|leave|bring|ask|say|train|add|"
    r"did you mean|"
    r"fill|sort|interpolate|select|rename|resample|build|set|install|list|lists|save|take|put|try|"
    r"generate|delete|Go on|go on|Build|predict|call)\b"
)


class Tuple(nn.Module):
    """A network that returns two fields in place of one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, u: torch.Tensor) -> Any:
        return u * self.weight, u


def learn(home: Path, **given: Any) -> Any:
    """`train` on good fields, but for what is given."""
    arguments: dict[str, Any] = {
        "model": "cno", "train": pairs(), "val": pairs(4), "out": home / "new", "recipe": QUICK,
        "watch": Watch(), **given,
    }  # fmt: skip
    return train(**arguments)


NAN = torch.full((4, 1, 8), torch.nan)
PLANE = Grid((4, 4), "periodic")
# What Python is asked to do in a folder, and a part of its answer.
CALLS: dict[str, tuple[Callable[[Path], Any], str]] = {
    # train
    "a string as fields": (lambda home: learn(home, train="mine.nc"), "give Fields"),
    "a path as fields": (lambda home: learn(home, train=home / "good.nc"), "give Fields"),
    "an array as fields": (lambda home: learn(home, train=np.zeros((4, 1, 8))), "give Fields"),
    "a tensor as fields": (lambda home: learn(home, train=torch.zeros(4, 1, 8)), "give Fields"),
    "a tuple as fields": (lambda home: learn(home, train=(1, 2)), "give Fields"),
    "a loader as fields": (
        lambda home: learn(home, train=torch.utils.data.DataLoader([1])),
        "give Fields",
    ),
    "nothing to validate on": (lambda home: learn(home, val=None), "give Fields"),
    "a list to test on": (lambda home: learn(home, test=[1]), "give Fields"),
    "a grid as ood": (lambda home: learn(home, ood=GRID), "give Fields"),
    "an unknown model": (lambda home: learn(home, model="cnn"), "did you mean 'cno'"),
    "a class as model": (lambda home: learn(home, model=CNO), "give a name"),
    "a configuration as model": (lambda home: learn(home, model=CNOConfig()), "give a name"),
    "a function as model": (lambda home: learn(home, model=lambda u: u), "give a name"),
    "no model": (lambda home: learn(home, model=None), "give a name"),
    "a module without weights": (lambda home: learn(home, model=nn.ReLU()), "no weights"),
    "a module for other shapes": (lambda home: learn(home, model=nn.Linear(3, 3)), "build it"),
    "a module of two outputs": (lambda home: learn(home, model=Tuple()), "returns real fields"),
    "a module on meta": (
        lambda home: learn(home, model=nn.Linear(8, 8, device="meta")),
        "on the CPU",
    ),
    "a CNO of other channels": (
        lambda home: learn(home, model=CNO(CNOConfig(size=(8,), levels=1, in_channels=2))),
        "in_channels=1",
    ),
    "a CNO of another layout": (
        lambda home: learn(home, model=CNO(CNOConfig(size=(8,), levels=1, layout="inclusive"))),
        "layout='periodic'",
    ),
    "a CNO of a plane": (
        lambda home: learn(home, model=CNO(CNOConfig(size=(8, 8), layout="periodic"))),
        "axes",
    ),
    "a width for a module": (
        lambda home: learn(home, model=nn.Linear(8, 8), width=3),
        "build yours with it",
    ),
    "an unknown field of the network": (lambda home: learn(home, widht=3), "did you mean 'width'"),
    "a width of zero": (lambda home: learn(home, width=0), "width is 0"),
    "a width in words": (lambda home: learn(home, width="8"), "give a whole number"),
    "a width beyond memory": (lambda home: learn(home, width=10**8), "of memory"),
    "channels of others": (lambda home: learn(home, in_channels=4), "in_channels"),
    "an unknown preset": (lambda home: learn(home, recipe="beast"), "did you mean 'best'"),
    "a dict as recipe": (lambda home: learn(home, recipe={"epochs": 3}), "give Recipe"),
    "a number as recipe": (lambda home: learn(home, recipe=3), "give Recipe"),
    "a class as recipe": (lambda home: learn(home, recipe=Recipe), "give Recipe"),
    "a tensor as mask": (lambda home: learn(home, mask=torch.ones(8)), "give a function"),
    "an array as mask": (lambda home: learn(home, mask=np.ones(8)), "give a function"),
    "a name as loss": (lambda home: learn(home, loss="mse"), "give a function"),
    "a number as loss": (lambda home: learn(home, loss=0.5), "give a function"),
    "a string as hardware": (lambda home: learn(home, hardware="cuda"), "give Hardware"),
    "no folder": (lambda home: learn(home, out=""), "give a folder"),
    "None as folder": (lambda home: learn(home, out=None), "give a folder"),
    "a number as folder": (lambda home: learn(home, out=3), "give a folder"),
    "a folder of notes": (lambda home: learn(home, out=home / "notes"), "diary.txt"),
    "a folder of another program": (lambda home: learn(home, out=home / "foreign"), "config.yaml"),
    "a folder that holds a run": (lambda home: learn(home, out=home / "run"), "another run"),
    "a file as folder": (lambda home: learn(home, out=home / "in.npy"), ""),
    "a seed below zero": (lambda home: learn(home, seed=-1), "seed is -1"),
    "a start that is not there": (lambda home: learn(home, start=home / "no"), "does not exist"),
    "a start of notes": (lambda home: learn(home, start=home / "notes"), "has no"),
    "a start and a width": (lambda home: learn(home, start=home / "run", width=8), "stays as it"),
    "another grid to validate on": (
        lambda home: learn(home, val=pairs(4, Grid((8,), "inclusive"))),
        "same layout",
    ),
    "another dimension to validate on": (lambda home: learn(home, val=pairs(4, PLANE)), ""),
    "other channels to validate on": (
        lambda home: learn(home, val=pairs(4, GRID, (2, 1))),
        "input and 1 output",
    ),
    "NaN to train on": (lambda home: learn(home, train=Fields(NAN, NAN, GRID)), ""),
    "constants to train on": (
        lambda home: learn(home, train=Fields(0 * pairs().inputs, pairs().outputs, GRID)),
        "",
    ),
    "outputs of zero": (
        lambda home: learn(home, val=Fields(pairs().inputs, 0 * pairs().outputs, GRID)),
        "zero everywhere",
    ),
    "a batch beyond the samples": (
        lambda home: learn(home, recipe=replace(QUICK, batch_size=99)),
        "larger than the 8",
    ),
    "more samples than there are": (
        lambda home: learn(home, recipe=replace(QUICK, samples=99)),
        "",
    ),
    "an unknown normalization": (
        lambda home: learn(home, normalization="sphere"),
        "unknown normalization",
    ),
    "an infinite constant": (lambda home: Normalization(0.0, float("inf"), 0.0, 1.0), "finite"),
    "a constant that is none": (lambda home: Normalization(0.0, float("nan"), 0.0, 1.0), "check"),
    "constants the wrong way": (lambda home: Normalization(1.0, 0.0, 0.0, 1.0), "check the data"),
    "a translation on a wall": (
        lambda home: learn(
            home,
            train=pairs(8, Grid((8,), "inclusive")),
            val=pairs(4, Grid((8,), "inclusive")),
            recipe=replace(QUICK, augmentation="translations"),
        ),
        "only a periodic one",
    ),
    "a plane symmetry on a line": (
        lambda home: learn(home, recipe=replace(QUICK, augmentation="reflections")),
        "no velocity in a plane",
    ),
    # fields and grids
    "fields of unlike number": (
        lambda home: Fields(torch.ones(3, 1, 8), torch.ones(4, 1, 8), GRID),
        "equally many",
    ),
    "fields off their grid": (
        lambda home: Fields(torch.ones(3, 1, 9), torch.ones(3, 1, 9), GRID),
        "give (sample",
    ),
    "fields without channels": (
        lambda home: Fields(torch.ones(3, 8), torch.ones(3, 8), GRID),
        "give (sample",
    ),
    "no samples": (lambda home: Fields(torch.ones(0, 1, 8), torch.ones(0, 1, 8), GRID), "give"),
    "complex fields": (
        lambda home: Fields(torch.ones(3, 1, 8) * 1j, torch.ones(3, 1, 8), GRID),
        "as channels",
    ),
    "masked fields": (
        lambda home: Fields(
            np.ma.masked_greater(np.arange(24.0).reshape(3, 1, 8), 5), torch.ones(3, 1, 8), GRID
        ),
        "masked",
    ),
    "words as fields": (lambda home: Fields([["a"]], [["b"]], GRID), "real numbers"),
    "a mask of numbers": (
        lambda home: Fields(*pairs(3), GRID, mask=torch.ones(8)),
        "True where",
    ),
    "a mask of another shape": (
        lambda home: Fields(*pairs(3), GRID, mask=torch.ones(5, dtype=torch.bool)),
        "does not extend",
    ),
    "a mask of nothing": (
        lambda home: Fields(*pairs(3), GRID, mask=torch.zeros(8, dtype=torch.bool)),
        "leave that sample out",
    ),
    "an unknown layout": (lambda home: Grid((8,), "diagonal"), "choose from"),
    "two layouts of one axis": (lambda home: Grid((8,), ("periodic", "periodic")), "per axis"),
    "a grid of nothing": (lambda home: Grid((0,), "periodic"), "or more points"),
    "an extent the wrong way": (lambda home: Grid((8,), "periodic", ((1.0, 0.0),)), "a < b"),
    "a split beyond the samples": (lambda home: pairs(8).split(9), "ask for fewer"),
    "a split into nothing": (lambda home: pairs(8).split(0), "1 or more"),
    "a split into parts": (lambda home: pairs(8).split(0.5, 0.5), "whole numbers"),
    "to three axes": (lambda home: pairs(8).resampled(4, 4, 4), "give one for all axes"),
    # opening
    "a file that is not there": (lambda home: open_stored(home / "no.nc"), ""),
    "a file of words": (lambda home: Fields.open(home / "words.nc", inputs="a", outputs="u"), ""),
    "an unknown ending": (lambda home: Fields.open(home / "words.txt"), ""),
    "an unknown variable": (
        lambda home: Fields.open(home / "good.nc", inputs="z", outputs="u"),
        "name one of",
    ),
    "no variables": (lambda home: Fields.open(home / "good.nc"), "say which variables"),
    "an unknown format": (
        lambda home: Fields.open(home / "good.nc", inputs="a", outputs="u", format="excel"),
        "unknown",
    ),
    "missing values": (
        lambda home: Fields.open(home / "nan.nc", inputs="a", outputs="u", layout="periodic"),
        "mask='missing'",
    ),
    "pickled objects": (lambda home: Fields.open((home / "objects.npy", home / "in.npy")), ""),
    "a number to open": (lambda home: Fields.open(3), ""),
    # predictions
    "NaN to predict from": (lambda home: load(home / "run").predict(NAN), "NaN or infinite"),
    "infinities to predict from": (
        lambda home: load(home / "run").predict(torch.full((2, 1, 8), torch.inf)),
        "NaN or infinite",
    ),
    "complex to predict from": (
        lambda home: load(home / "run").predict(np.ones((2, 1, 8)) * 1j),
        "as channels",
    ),
    "masked to predict from": (
        lambda home: load(home / "run").predict(np.ma.masked_less(np.ones((2, 1, 8)), 3)),
        "masked",
    ),
    "words to predict from": (lambda home: load(home / "run").predict("in.npy"), "real numbers"),
    "one axis too many": (lambda home: load(home / "run").predict(np.ones((2, 1, 4, 4))), "takes"),
    "one channel too many": (lambda home: load(home / "run").predict(np.ones((2, 2, 8))), "takes"),
    "nothing to predict from": (lambda home: load(home / "run").predict(np.ones((0, 1, 8))), ""),
    "no batch": (
        lambda home: load(home / "run").predict(pairs(2).inputs, batch_size=0),
        "batch_size is 0",
    ),
    "half a batch": (
        lambda home: load(home / "run").predict(pairs(2).inputs, batch_size=1.5),
        "batch_size is 1.5",
    ),
    # runs
    "a run that is not there": (lambda home: load(home / "no"), "does not exist"),
    "a folder without a run": (lambda home: load(home / "notes"), "has no"),
    "a file in place of a run": (lambda home: load(home / "in.npy"), "is no folder"),
    "an unknown network": (lambda home: load_pretrained("poison"), "did you mean 'poisson'"),
    "to evaluate nothing": (lambda home: evaluate_run(home / "no"), "does not exist"),
    "to evaluate on what is not there": (
        lambda home: evaluate_run(home / "run", ("ood",)),
        "has no ood samples",
    ),
    "to go on with nothing": (lambda home: resume_run(home / "no"), "does not exist"),
    "to prolong by nothing": (lambda home: resume_run(home / "run", epochs=0), ""),
    "to train nothing": (
        lambda home: train_run(RunConfig.resolve("poisson", "cno"), home / "new", splits=()),
        "name one",
    ),
    "an unknown problem": (lambda home: RunConfig.resolve("poison", "cno"), "did you mean"),
    "an unknown preset of a benchmark": (
        lambda home: RunConfig.resolve("poisson", "cno", "beast"),
        "did you mean 'best'",
    ),
    "an unknown field of a model": (
        lambda home: build_model("cno", "poisson", widht=3),
        "did you mean 'width'",
    ),
    "data beyond the disk": (
        lambda home: generate(Poisson(), "train", folder=home / "d", samples=BIG),
        "ask for fewer",
    ),
    "a grid beyond memory": (
        lambda home: generate(Poisson(), "train", folder=home / "d", resolution=10**8),
        "of memory",
    ),
    "an unknown accelerator": (lambda home: Hardware(accelerator="tpu"), "unknown accelerator"),
    "a rate of zero": (lambda home: Recipe(learning_rate=0), "learning_rate is 0"),
    "a loss that is none": (lambda home: Recipe(loss="mse"), "unknown loss"),
    "an odd size": (lambda home: CNOConfig(size=(50, 50), levels=3), "use (48, 48)"),
    "a size of one number": (lambda home: CNOConfig(size=64), "one per axis"),
    "pairs of unlike number": (
        lambda home: Pairs(torch.ones(3, 1, 8), torch.ones(2, 1, 8)),
        "give one target",
    ),
    "words to audit": (lambda home: audit(nn.Conv1d(1, 1, 1), torch.ones(3)), "give real fields"),
    "an audit beyond memory": (
        lambda home: audit(nn.Conv1d(1, 1, 1), torch.rand(1, 1, 8), resolutions=[10**9]),
        "of memory",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_is_answered(name: str, home: Path, as_outside_tests: None) -> None:
    call, expected = CALLS[name]
    before = contents(home)
    with pytest.raises((ValueError, OSError)) as raised:
        call(home)
    check_answer(str(raised.value), expected)
    after = contents(home)
    shutil.rmtree(home / "new", ignore_errors=True)
    assert {one: after.get(one) for one in before} == before
    left = {one for one in set(after) - set(before) if not one.startswith("new/c")}
    assert not left, left


def test_there_are_three_hundred_of_them() -> None:
    assert len(COMMANDS) + len(CALLS) >= 300
