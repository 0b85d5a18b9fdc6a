"""Members that are trained together are what each would be by itself."""

import signal
from dataclasses import replace

import pytest
import torch
from torch import nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.training import (
    Diverged,
    Fit,
    Interrupted,
    Member,
    Pairs,
    crew,
    epochs,
    fit,
    fit_together,
    loop,
)
from torchcno.training.folder import TrainingFolder

SEEDS = (3, 4, 5)


def build(small_run, seed: int) -> nn.Module:
    network = small_run.network()
    torch.manual_seed(seed)
    nn.init.normal_(network[0].weight)
    return network


def make_members(small_run, folder, seeds=SEEDS) -> list[Member]:
    return [
        Member(build(small_run, seed), TrainingFolder(folder / str(seed), run=folder), seed)
        for seed in seeds
    ]


@pytest.fixture(scope="module")
def sets(small_run):
    return small_run.data(53, 1), small_run.data(20, 2)


@pytest.fixture(scope="module")
def recipe(small_run):
    return replace(small_run.RECIPE, epochs=4, checkpoint_every=1e9)


@pytest.fixture(scope="module")
def alone(small_run, sets, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    for seed in SEEDS:
        fit(build(small_run, seed), *sets, recipe, folder / str(seed), seed=seed)
    return folder


def assert_same(small_run, folder, other, seeds=SEEDS):
    for seed in seeds:
        small_run.assert_same_run(folder / str(seed), other / str(seed))


@pytest.fixture
def in_step(monkeypatch):
    """Members advance step by step, as in a graph, on a CPU."""
    for module in (loop, epochs, crew):
        monkeypatch.setattr(module, "is_captured", lambda *_: True)
    monkeypatch.setattr(crew, "graphed", lambda work, *_, **__: work)
    monkeypatch.setattr(crew, "side_by_side", lambda works: [work() for work in works])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def test_members_together_are_members_alone(small_run, sets, recipe, alone, tmp_path):
    told = []
    members = make_members(small_run, tmp_path)
    found = fit_together(
        members, *sets, recipe, on_epoch=lambda number, epoch: told.append((epoch.epoch, number))
    )
    assert_same(small_run, alone, tmp_path)
    assert told == [(epoch, number) for epoch in (1, 2, 3, 4) for number in (0, 1, 2)]
    for member, outcome in zip(members, found, strict=True):
        assert isinstance(outcome, Fit)
        weights = TrainingFolder(alone / str(member.seed)).weights
        kept = loop.TrainingFolder(member.folder.path).weights
        assert kept.read_bytes() == weights.read_bytes()
    a, b, _ = (member.network[0].weight for member in members)
    assert not torch.equal(a, b)


@pytest.mark.parametrize("calls", [1, 7, 25, 48])
def test_members_that_are_stopped_at_any_step_go_on(
    small_run, sets, recipe, alone, tmp_path, calls
):
    """10 steps an epoch: in the first member's turn, in the second's and in the third's."""
    members, count = make_members(small_run, tmp_path), []

    def ask(module, inputs):
        count.append(None)
        if len(count) == calls:
            signal.raise_signal(signal.SIGINT)

    for member in members:
        member.network.register_forward_pre_hook(ask)
    with pytest.raises(Interrupted, match=f"everything is saved.*by: cno resume {tmp_path}$"):
        fit_together(members, *sets, recipe)
    fit_together(make_members(small_run, tmp_path), *sets, recipe, resume=True)
    assert_same(small_run, alone, tmp_path)


def test_members_go_on_from_checkpoints_of_unlike_age(small_run, sets, recipe, alone, tmp_path):
    """As a kill between two of them leaves them."""
    fit(build(small_run, 3), *sets, recipe, tmp_path / "3", seed=3)

    def stop(epoch):
        if epoch.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        fit(build(small_run, 4), *sets, recipe, tmp_path / "4", seed=4, on_epoch=stop)
    fit_together(make_members(small_run, tmp_path), *sets, recipe, resume=True)
    assert_same(small_run, alone, tmp_path)


def without_dropout(small_run, seed):
    network = build(small_run, seed)
    network[2] = nn.Identity()
    return network


@pytest.mark.usefixtures("in_step")
def test_members_in_step_are_members_alone_and_leave_when_they_stop(small_run, sets, tmp_path):
    """Early stops at unlike epochs, with an interruption on the way."""
    recipe = replace(
        small_run.RECIPE, epochs=30, patience=2, evaluate_every=1, schedule="step", gamma=6.0,
        learning_rate=3e-3, frozen_statistics=0.0, averaging_half_life=None, checkpoint_every=1e9,
    )  # fmt: skip

    def make() -> list[Member]:
        return [
            Member(without_dropout(small_run, seed), TrainingFolder(tmp_path / f"t{seed}"), seed)
            for seed in SEEDS
        ]

    epochs = [
        fit(
            without_dropout(small_run, seed), *sets, recipe, tmp_path / f"a{seed}", seed=seed
        ).epochs
        for seed in SEEDS
    ]
    assert len(set(epochs)) > 1
    steps, last = [], epochs.index(max(epochs))

    def stop(number, epoch):
        steps.append(number)
        if (number, epoch.epoch) == (last, min(epochs) + 1):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        fit_together(make(), *sets, recipe, on_epoch=stop)
    assert steps[: 3 * min(epochs)] == [0, 1, 2] * min(epochs)
    found = fit_together(make(), *sets, recipe, resume=True)
    assert [one.epochs for one in found] == epochs
    for seed in SEEDS:
        a, t = tmp_path / f"a{seed}", tmp_path / f"t{seed}"
        assert small_run.rows(a) == small_run.rows(t)
        assert (a / "model.safetensors").read_bytes() == (t / "model.safetensors").read_bytes()
    assert any("3 members at once" in name for name in found[0].devices)


def test_a_member_that_diverges_is_named_and_the_others_go_on(
    small_run, sets, recipe, alone, tmp_path
):
    members = make_members(small_run, tmp_path)
    with torch.no_grad():
        members[1].network[0].weight.fill_(float("nan"))
    first, second, third = fit_together(members, *sets, recipe)
    assert isinstance(second, Diverged)
    assert str(second).startswith("member 1 (seed 4): the training loss is nan in epoch 1")
    assert isinstance(first, Fit)
    assert isinstance(third, Fit)
    assert_same(small_run, alone, tmp_path, (3, 5))


def test_a_member_that_leaves_float16_catches_up_in_tf32(tmp_path, monkeypatch):
    inputs = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(inputs, 1 + inputs)
    recipe = loop.Recipe(epochs=3, batch_size=4, checkpoint_every=0)

    def make(seed, scale):
        torch.manual_seed(seed)
        network = nn.Conv2d(1, 1, 3, padding=1)
        with torch.no_grad():
            network.weight.mul_(scale)
        return network

    def choose(given, network, device):
        return "fp16-mixed" if given.precision == "auto" else given.precision

    tf32 = replace(recipe, precision="tf32")
    fit(make(1, 1e6), pairs, pairs, tf32, tmp_path / "alone", seed=1)  # outputs beyond 65504
    monkeypatch.setattr(loop, "choose_precision", choose)
    members = [
        Member(make(seed, scale), TrainingFolder(tmp_path / str(seed)), seed)
        for seed, scale in ((0, 1.0), (1, 1e6))
    ]
    with pytest.warns(UserWarning, match=r"member 1 \(seed 1\).*goes on in tf32"):
        found = fit_together(members, pairs, pairs, recipe)
    assert [one.epochs for one in found] == [3, 3]
    files = (tmp_path / "alone", tmp_path / "1")
    a, b = ((folder / "model.safetensors").read_bytes() for folder in files)
    assert a == b


def test_members_and_several_processes_exclude_each_other(small_run, sets, recipe, tmp_path):
    class Two:
        world_size, device = 2, torch.device("cpu")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "launch", lambda hardware: Two())
        with pytest.raises(ValueError, match="use --devices 1, or train one member at a time"):
            fit_together(make_members(small_run, tmp_path), *sets, recipe)


def branching(seed: int) -> CNO:
    torch.manual_seed(seed)
    return CNO(CNOConfig(size=(16, 16), levels=2, width=8, neck_blocks=1, skip_blocks=2))


def square_data(n: int, seed: int) -> Pairs:
    u = torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(seed))
    return Pairs(u, (u + u.roll(1, -1) + u.roll(-1, -1)) / 3)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "optimizer"), [("32", "adamw"), ("auto", "muon")])
def test_members_in_one_graph_follow_members_alone(small_run, tmp_path, precision, optimizer):
    """Eight have fewer streams each than they have branches; one graph holds all that go on."""
    changes = {"precision": precision, "optimizer": optimizer, "checkpoint_every": 1e9}
    recipe = replace(small_run.RECIPE, epochs=6, learning_rate=1e-3, **changes)
    train, val, seeds = square_data(64, 1), square_data(20, 2), range(8)
    for seed in seeds:
        fit(branching(seed), train, val, recipe, tmp_path / f"a{seed}", seed=seed)

    def make() -> list[Member]:
        return [
            Member(branching(seed), TrainingFolder(tmp_path / f"t{seed}"), seed) for seed in seeds
        ]

    def stop(number, epoch):
        if (number, epoch.epoch) == (7, 3):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        fit_together(make(), train, val, recipe, on_epoch=stop)
    found = fit_together(make(), train, val, recipe, resume=True)
    assert all("8 members at once" in one.devices[0] for one in found)
    tolerance = 1e-3 if precision == "32" else 2e-2
    curves = []
    for seed in seeds:
        a, t = small_run.rows(tmp_path / f"a{seed}"), small_run.rows(tmp_path / f"t{seed}")
        for one, other in zip(a, t, strict=True):
            for name in ("train_loss", "validation_error"):
                assert (one[name] or 0) == pytest.approx(other[name] or 0, rel=tolerance)
        curves.append(t[-1]["train_loss"])
    assert len(set(curves)) == len(curves)


@pytest.mark.gpu
def test_a_member_that_stops_leaves_the_graph(small_run, tmp_path):
    recipe = replace(
        small_run.RECIPE, epochs=40, patience=2, evaluate_every=1, schedule="step", gamma=6.0,
        learning_rate=1e-3, frozen_statistics=0.0, precision="32", checkpoint_every=1e9,
    )  # fmt: skip
    train, val, seeds = square_data(64, 1), square_data(20, 2), range(3)
    alone = [
        fit(branching(seed), train, val, recipe, tmp_path / f"a{seed}", seed=seed) for seed in seeds
    ]
    members = [
        Member(branching(seed), TrainingFolder(tmp_path / f"t{seed}"), seed) for seed in seeds
    ]
    together = fit_together(members, train, val, recipe)
    for one, other in zip(alone, together, strict=True):
        assert one.best_validation_error == pytest.approx(other.best_validation_error, rel=5e-2)
    assert all(one.epochs < 40 for one in together)


@pytest.mark.gpu
def test_members_with_dropout_take_turns(small_run, tmp_path):
    recipe = replace(small_run.RECIPE, epochs=2, precision="32", checkpoint_every=1e9)
    train, val = small_run.data(53, 1), small_run.data(20, 2)
    fit(build(small_run, 4), train, val, recipe, tmp_path / "alone", seed=4)
    fit_together(make_members(small_run, tmp_path), train, val, recipe)
    a, b = (small_run.rows(tmp_path / name) for name in ("alone", "4"))
    for one, other in zip(a, b, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
