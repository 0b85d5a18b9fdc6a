import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from torchcno.metrics import relative_l1, relative_l2
from torchcno.models.cno import CNO, CNOConfig
from torchcno.training import (
    Diverged,
    Interrupted,
    Pairs,
    Recipe,
    fit,
    load_into,
    load_tensors,
    loop,
)
from torchcno.training.losses import LOSSES
from torchcno.training.recipe import learning_rate

RECIPE = Recipe(epochs=3, batch_size=8, learning_rate=1e-2)


def linear_data(n: int = 40) -> Pairs:
    u = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return Pairs(u, 0.5 * u + 0.2)


def affine() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(1, 1, 1)


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_seed_makes_a_run_reproducible_to_the_last_bit(small_run, tmp_path):
    recipe = replace(small_run.RECIPE, epochs=2, checkpoint_every=1e9)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    weights = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.manual_seed(len(weights))  # what else is random in the process plays no part
        torch.rand(())
        fit(small_run.network(), train, val, recipe, tmp_path / name, seed=seed)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_a_run_leaves_the_processs_random_numbers_alone(small_run, tmp_path):
    recipe = replace(small_run.RECIPE, epochs=2)
    model = small_run.network()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(model, small_run.data(20, 1), small_run.data(20, 2), recipe, tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_run_on_a_cpu_keeps_its_memory(small_run, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("torchcno.training.loop.reuse_memory", lambda: calls.append(None))
    small_run.run(tmp_path)
    assert len(calls) == 1


def test_the_best_weights_on_validation_are_kept_and_left_in_the_model(tmp_path):
    train, val = linear_data(), linear_data(10)
    model = affine()
    # A rate that grows tenfold every 10 epochs ruins what the first epochs learnt.
    recipe = replace(RECIPE, epochs=45, gamma=10.0, patience=None)
    result = fit(model, train, val, recipe, tmp_path)
    errors = [row["validation_error"] for row in rows(tmp_path)]
    assert result.best_validation_error == min(errors) < 0.5 * errors[-1]
    assert result.best_epoch == errors.index(min(errors)) + 1
    stored = affine()
    load_into(stored, load_tensors(tmp_path / "model.safetensors")[0], "model.safetensors")
    for network in (model, stored):
        error = relative_l1(network(val.inputs), val.targets).mean().item()
        assert error == pytest.approx(min(errors), rel=1e-6)


def test_a_batch_and_its_targets_are_moved_by_one_symmetry_and_the_next_by_another(
    tmp_path, monkeypatch
):
    u = torch.arange(16.0).view(1, 1, 4, 4).repeat(8, 1, 1, 1)
    train = Pairs(u, 2 * u)  # all samples alike: what differs was moved
    seen = []

    def spy(prediction, target):
        seen.append((prediction.detach() / model.weight.detach(), target))
        return (prediction - target).abs().mean()

    monkeypatch.setitem(LOSSES, "relative-l1", spy)
    model = nn.Conv2d(1, 1, 1, bias=False)  # commutes with every symmetry
    recipe = replace(RECIPE, epochs=1, batch_size=2, augmentation="square")
    fit(model, train, train, recipe, tmp_path)
    for inputs, targets in seen:
        torch.testing.assert_close(targets, 2 * inputs)
        assert torch.equal(targets[0], targets[1])
    assert len(seen) == 4
    assert len({tuple(targets[0].flatten().tolist()) for _, targets in seen}) > 1


def test_a_step_has_the_rate_of_its_middle(tmp_path):
    recipe = replace(RECIPE, epochs=2, schedule="cosine", warmup=0.0)
    fit(affine(), linear_data(40), linear_data(8), recipe, tmp_path)  # five steps an epoch
    for row in rows(tmp_path):
        assert row["learning_rate"] == learning_rate(recipe, row["epoch"] - 0.1)


def test_patience_stops_so_many_epochs_after_the_best(tmp_path):
    recipe = replace(RECIPE, epochs=100, gamma=10.0, patience=7)
    result = fit(affine(), linear_data(), linear_data(10), recipe, tmp_path)
    assert result.epochs == result.best_epoch + 7 < 100


def test_patience_waits_for_the_first_evaluation(tmp_path):
    recipe = replace(RECIPE, epochs=5, evaluate_every=4, patience=2)
    result = fit(affine(), linear_data(), linear_data(10), recipe, tmp_path)
    assert (result.epochs, result.best_epoch) == (5, 5)


def test_patience_ends_at_an_evaluation(tmp_path):
    recipe = replace(RECIPE, epochs=100, gamma=10.0, evaluate_every=4, patience=2)
    result = fit(affine(), linear_data(), linear_data(10), recipe, tmp_path)
    assert 4 < result.best_epoch < result.epochs == result.best_epoch + 4 < 100


def test_rows_say_what_each_epoch_did(tmp_path):
    recipe = replace(RECIPE, epochs=12, evaluate_every=5, gamma=0.5)
    seen = []
    fit(affine(), linear_data(), linear_data(10), recipe, tmp_path, on_epoch=seen.append)
    table = rows(tmp_path)
    assert [row["epoch"] for row in table] == list(range(1, 13)) == [row.epoch for row in seen]
    evaluated = [row["epoch"] for row in table if row["validation_error"] is not None]
    assert evaluated == [5, 10, 12]  # the last one always
    assert [row["learning_rate"] for row in table] == [1e-2] * 10 + [5e-3] * 2


def test_every_batch_is_whole_and_no_sample_comes_twice_in_an_epoch(tmp_path):
    seen = []

    class Recorder(nn.Conv2d):
        def forward(self, u):
            if self.training:
                seen.append(u[:, 0, 0, 0].tolist())
            return super().forward(u)

    u = torch.arange(21.0).view(21, 1, 1, 1).expand(21, 1, 4, 4) / 21 + 0.1
    fit(Recorder(1, 1, 1), Pairs(u, u), Pairs(u, u), replace(RECIPE, epochs=2), tmp_path)
    assert [len(batch) for batch in seen] == [8] * 4
    epochs = [seen[0] + seen[1], seen[2] + seen[3]]
    assert [len(set(epoch)) for epoch in epochs] == [16, 16]
    assert epochs[0] != epochs[1]


def test_where_outputs_do_not_count_nothing_is_learnt(tmp_path):
    # The targets of the left half are nonsense: with a mask the right half's line is found.
    data = linear_data(64)
    targets = data.targets.clone()
    targets[..., :2] = -7.0
    recipe = replace(RECIPE, epochs=30, learning_rate=5e-2)

    right_half = torch.zeros_like(targets, dtype=torch.bool)
    right_half[..., 2:] = True
    model = affine()
    pairs = Pairs(data.inputs, targets, right_half)
    result = fit(model, pairs, pairs, recipe, tmp_path)
    assert result.best_validation_error < 0.01
    assert model.weight.item() == pytest.approx(0.5, abs=0.05)


def test_averaged_weights_beat_the_last_ones_while_the_rate_is_high(tmp_path):
    clean = linear_data(128)
    noise = 0.3 * torch.randn(clean.targets.shape, generator=torch.Generator().manual_seed(1))
    train = Pairs(clean.inputs, clean.targets + noise)
    recipe = replace(RECIPE, epochs=20, gamma=1.0, learning_rate=5e-2)
    fit(affine(), train, clean, recipe, tmp_path / "last")
    averaging = replace(recipe, averaging_half_life=3)
    fit(affine(), train, clean, averaging, tmp_path / "averaged")
    last, averaged = (
        sum(row["validation_error"] for row in rows(tmp_path / name)[10:])
        for name in ("last", "averaged")
    )
    assert averaged < 0.5 * last


@pytest.mark.parametrize("half_life", [None, 1.0])
def test_with_frozen_statistics_the_loss_is_that_of_the_network_which_is_kept(tmp_path, half_life):
    torch.manual_seed(0)
    train = linear_data(16)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    recipe = Recipe(
        epochs=4,
        batch_size=2,  # two samples' statistics are not those of sixteen
        learning_rate=1e-12,  # the weights stay where they are
        loss="relative-l2",  # relative to a sample: the same however they fall into batches
        averaging_half_life=half_life,
        frozen_statistics=0.5,
        evaluate_every=4,
    )
    fit(model, train, train, recipe, tmp_path)
    with torch.no_grad():
        kept = relative_l2(model(train.inputs), train.targets).mean().item()
    apart = [abs(row["train_loss"] / kept - 1) for row in rows(tmp_path)]
    assert max(apart[2:]) < 1e-5 < 1e-4 < min(apart[:2])


def test_a_mask_may_be_of_inputs_that_the_network_does_not_see(tmp_path):
    data, physical = linear_data(64), torch.full((64, 1, 4, 4), -0.3)
    physical[..., 2:] = 0.0
    targets = torch.where(physical == 0, data.targets, -7.0)
    pairs = Pairs(data.inputs, targets, physical == 0)
    recipe = replace(RECIPE, epochs=30, learning_rate=5e-2, augmentation="square", samples=60)
    assert fit(affine(), pairs, pairs, recipe, tmp_path).best_validation_error < 0.01


def test_losses_relative_to_a_sample_refuse_training_targets_of_zero(tmp_path):
    train = linear_data(64)
    train.targets[4] = 0.0
    with pytest.raises(ValueError, match="in 1 of 64 training samples, first in sample 4"):
        fit(affine(), train, linear_data(10), replace(RECIPE, loss="relative-l2"), tmp_path)


def test_validation_targets_that_are_zero_everywhere_are_refused(tmp_path):
    val = linear_data(10)
    val.targets[[3, 5]] = 0.0
    refused = r"zero everywhere in 2 of 10 .* first in sample 3.*normalization="
    with pytest.raises(ValueError, match=refused):
        fit(affine(), linear_data(), val, RECIPE, tmp_path)
    assert not any(tmp_path.iterdir())
    # Where they do not count they are 1.
    mask = torch.zeros_like(val.targets, dtype=torch.bool)
    mask[..., 0] = True
    counted = replace(val, counts=mask)
    fit(affine(), linear_data(), counted, replace(RECIPE, epochs=1), tmp_path)


class Breaks(nn.Conv2d):
    """Returns NaN in training from a given call on."""

    def __init__(self, call: int) -> None:
        super().__init__(1, 1, 1)
        self.calls, self.call = 0, call

    def forward(self, u):
        self.calls += self.training
        return super().forward(u) * (torch.nan if self.training and self.calls >= self.call else 1)


def test_a_loss_that_is_no_number_stops_and_keeps_good_weights(tmp_path):
    recipe = replace(RECIPE, epochs=9, checkpoint_every=0)
    with pytest.raises(Diverged, match=r"loss is nan in epoch 3.*learning_rate 0.005.*epoch 2"):
        fit(Breaks(5 * 2 + 3), linear_data(), linear_data(10), recipe, tmp_path)
    weights, _ = load_tensors(tmp_path / "model.safetensors")
    state, note = load_tensors(tmp_path / "checkpoint" / "state.safetensors")
    assert all(tensor.isfinite().all() for tensor in (*weights.values(), *state.values()))
    assert note["progress"]["epoch"] == 2
    assert len(rows(tmp_path)) == 2


def test_a_loss_that_is_no_number_at_once(tmp_path):
    with pytest.raises(Diverged, match=r"in epoch 1.*no good weights"):
        fit(Breaks(1), linear_data(), linear_data(10), RECIPE, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_gradients_beyond_float16_stop_the_run_and_it_says_so(tmp_path, optimizer):
    # The gradient of the bias is 1 over the targets' mean: 2000, and 2^10 times that in float16.
    data = linear_data()
    small = Pairs(data.inputs, 1e-3 * data.targets)
    recipe = replace(RECIPE, epochs=1, optimizer=optimizer)
    fit(affine(), small, small, recipe, tmp_path / "tf32")
    with pytest.raises(Diverged, match=r"loss is nan.*precision 'tf32' \(float16 ends at 65504\)"):
        fit(affine(), small, small, replace(recipe, precision="fp16-mixed"), tmp_path / "fp16")


@pytest.mark.parametrize(("precision", "bound"), [("fp16-mixed", 1e-2), ("bf16-mixed", 5e-2)])
def test_a_run_with_fields_in_half_precision_follows_the_one_in_float32(
    small_run, tmp_path, precision, bound
):
    recipe = replace(small_run.RECIPE, epochs=3, checkpoint_every=1e9)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    for name in ("32", precision):
        fit(small_run.network(), train, val, replace(recipe, precision=name), tmp_path / name)
    for a, b in zip(rows(tmp_path / "32"), rows(tmp_path / precision), strict=True):
        assert 0 < abs(a["train_loss"] - b["train_loss"]) < bound * a["train_loss"]
        if a["validation_error"] is not None:
            assert b["validation_error"] == pytest.approx(a["validation_error"], rel=bound)


def test_bad_data_is_named():
    good = torch.rand(3, 1, 4, 4)
    bad = good.clone()
    bad[1, 0, 2, 2] = torch.nan
    with pytest.raises(ValueError, match=r"targets are not finite in 1 of 3 samples.*sample 1"):
        Pairs(good, bad)
    with pytest.raises(ValueError, match="3 inputs have 2 targets"):
        Pairs(good, good[:2])
    with pytest.raises(ValueError, match="no samples"):
        Pairs(good[:0], good[:0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 41}, "batch_size 41 is larger than the 40 training samples"),
        ({"samples": 41}, "samples is 41 and the training set has 40"),
        ({"samples": 5}, "batch_size 8 is larger than the 5 training samples"),
    ],
)
def test_a_recipe_that_does_not_fit_the_data_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        fit(affine(), linear_data(), linear_data(), replace(RECIPE, **change), tmp_path)


PROCESSES = """
import atexit
import os
import signal
import sys
import time
import torch
from torch import nn
from torchcno.training import Hardware, Interrupted, Pairs, Recipe, fit
from torchcno.training.folder import TrainingFolder

folder, strategy, stop_after = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
u = torch.rand(40, 1, 8, 8)
v = u.roll(1, -1) * torch.linspace(0.1, 10, 40)[:, None, None, None]
model = nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 1, 3, padding=1))
recipe = Recipe(epochs=5, batch_size=8, averaging_half_life=1, learning_rate=1e-2)
arguments = model, Pairs(u, v), Pairs(u, v), recipe, folder

def stop(epoch):
    if epoch.epoch == stop_after:
        signal.raise_signal(signal.SIGINT)

def save_slowly(*arguments, save=TrainingFolder.save):
    time.sleep(0.5)  # no process may read a checkpoint that another still writes
    save(*arguments)

TrainingFolder.save = save_slowly
# The first to be registered is the last to be called: by then the processes have taken leave.
atexit.register(lambda: torch.distributed.is_initialized() and os._exit(3))

try:
    fit(*arguments, hardware=Hardware("cpu", strategy=strategy), on_epoch=stop)
except Interrupted:
    fit(*arguments, hardware=Hardware("cpu", strategy=strategy), resume=True)
assert type(next(model.parameters())) is nn.Parameter, "the model is no longer as built"
"""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run_processes(folder: Path, *launcher: str, strategy: str = "ddp", stop_after: int = 0) -> None:
    script = folder.parent / "script.py"
    script.write_text(PROCESSES)
    result = subprocess.run(
        [sys.executable, *launcher, str(script), str(folder), strategy, str(stop_after)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("processes") / "one"
    run_processes(folder)
    return folder


@pytest.mark.parametrize(
    ("strategy", "stop_after"), [("ddp", 0), pytest.param("fsdp", 3, marks=pytest.mark.slow)]
)
def test_two_processes_follow_the_loss_curve_of_one(one_process, tmp_path, strategy, stop_after):
    """With divided weights (fsdp) and an interruption, too; and what they save is whole."""
    # Samples of very different size: a loss normalised in each process would follow another curve.
    run_processes(tmp_path / "two", *TORCHRUN, strategy=strategy, stop_after=stop_after)
    one, two = rows(one_process), rows(tmp_path / "two")
    assert len(one) == len(two) == 5
    for a, b in zip(one, two, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)
        assert a["validation_error"] == pytest.approx(b["validation_error"], rel=1e-5)
    for file in ("model.safetensors", "checkpoint/state.safetensors"):
        (a, _), (b, _) = (load_tensors(f / file) for f in (one_process, tmp_path / "two"))
        assert a.keys() == b.keys()
        for key in a.keys() - {"random/cpu", "loss/sum"}:  # what each process has its own of
            torch.testing.assert_close(a[key], b[key], rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [
        ("32", "adamw"),
        ("tf32", "adamw"),
        ("fp16-mixed", "adamw"),
        ("bf16-mixed", "adamw"),
        ("32", "muon"),
        ("fp16-mixed", "muon"),
    ],
)
def test_a_captured_run_follows_the_eager_one_and_goes_on(
    small_run, tmp_path, precision, optimizer
):
    changes = {"precision": precision, "optimizer": optimizer, "checkpoint_every": 1e9}
    recipe = replace(small_run.RECIPE, epochs=6, **changes)
    train, val = small_run.data(103, 1), small_run.data(20, 2)
    model = small_run.network
    fit(model(), train, val, replace(recipe, fast="off"), tmp_path / "eager", seed=3)

    def stop_in_the_third(epoch):
        if epoch.epoch == 3:
            signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "captured"
    with pytest.raises(Interrupted):
        fit(model(), train, val, recipe, folder, seed=3, on_epoch=stop_in_the_third)
    fit(model(), train, val, recipe, folder, seed=3, resume=True)
    tolerance = {"bf16-mixed": 2e-2, "fp16-mixed": 1e-2}.get(precision, 1e-3)
    for a, b in zip(rows(tmp_path / "eager"), rows(folder), strict=True):
        for name in ("train_loss", "validation_error"):
            assert (a[name] or 0) == pytest.approx(b[name] or 0, rel=tolerance)


# In a process of its own: the type checks of other tests are nothing that a compiler can follow.
# Without dropout: a compiler has random numbers of its own.
COMPILED = """
import sys
from dataclasses import replace
from pathlib import Path

import torch

import small_run
from torchcno.models.cno import CNO, CNOConfig
from torchcno.training import fit

config = CNOConfig(size=(8, 8), levels=1, width=4, neck_blocks=1, skip_blocks=1, lift_width=4)
for fast in ("auto", "compiled"):
    recipe = replace(small_run.RECIPE, epochs=3, precision="32", fast=fast)
    torch.manual_seed(0)
    train, val = small_run.data(64, 1), small_run.data(20, 2)
    fit(CNO(config), train, val, recipe, Path(sys.argv[1], fast), seed=3)
    print(fast, torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.gpu
def test_a_compiled_run_follows_the_captured_one(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", COMPILED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    graphs = dict(line.split() for line in result.stdout.splitlines())
    assert graphs["auto"] == "0"
    assert int(graphs["compiled"]) > 0
    for a, b in zip(rows(tmp_path / "auto"), rows(tmp_path / "compiled"), strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-3)


class Half(nn.Conv2d):
    HALF_FIELDS = True


def test_a_run_whose_numbers_leave_float16_goes_on_in_tf32(tmp_path, monkeypatch):
    """On a CPU tf32 is float32, and the run becomes the one that was never in float16."""
    inputs = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(inputs, 1e-6 * (1 + inputs))  # gradients of order 1e6, beyond float16
    recipe = Recipe(epochs=4, batch_size=4, checkpoint_every=0)

    def choose(given, model, device):
        return "fp16-mixed" if given.precision == "auto" else given.precision

    def train(folder, precision, **more):
        torch.manual_seed(0)
        model = Half(1, 1, 3, padding=1)
        fit(model, pairs, pairs, replace(recipe, precision=precision), tmp_path / folder, **more)
        return model.weight.detach()

    expected = train("whole", "tf32")
    monkeypatch.setattr(loop, "choose_precision", choose)
    with pytest.warns(UserWarning, match="goes on in tf32"):
        found = train("fallen", "auto")
    assert torch.equal(found, expected)
    assert len(rows(tmp_path / "fallen")) == 4


def test_fields_that_are_computed_again_change_nothing(tmp_path):
    ends = []
    for recompute in (False, True):
        torch.manual_seed(0)
        config = CNOConfig(size=(8, 8), levels=1, width=4, neck_blocks=1, skip_blocks=1)
        model, recipe = CNO(config), replace(RECIPE, recompute=recompute, frozen_statistics=0.5)
        u = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        pairs = Pairs(u, 1 - u)
        fit(model, pairs, pairs, recipe, tmp_path / str(recompute))
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


ALONE = """
import sys, tempfile, torch
from pathlib import Path
from torchcno.models.cno import CNO, CNOConfig
from torchcno.training import Pairs, Recipe, fit

u = torch.rand(4, 1, 8, 8)
small = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1}
for name in ("adamw", "muon"):
    network, recipe = CNO(CNOConfig(size=(8, 8), **small)), Recipe(1, 2, optimizer=name)
    with tempfile.TemporaryDirectory() as folder:
        fit(network, Pairs(u, u), Pairs(u, u), recipe, Path(folder, "run"))
slow = {"torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "sympy", "scipy.optimize"}
print(*sorted(slow & sys.modules.keys()))
"""


def test_a_process_that_trains_alone_imports_nothing_slow_that_it_does_not_use():
    """Compilers and PyTorch's part for several devices take seconds of every start."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
