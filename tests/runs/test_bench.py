"""What is compared is what it says it is, and no row takes the others down."""

import copy
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import nn

from torchcno.operators import Activation, WindowedSinc
from torchcno.paper import published as paper
from torchcno.paper.studies import FLOW
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.runs import bench, bench_runs
from torchcno.runs.bench import CUDA_WAYS, PLANS, WAYS, Plan, run_bench, select_rows
from torchcno.runs.bench_work import (
    Batch,
    Way,
    _replace_activations,
    bicubic,
)
from torchcno.runs.config import RunConfig
from torchcno.runs.presets import build_model
from torchcno.runs.train import train_run
from torchcno.training.step import graphed

CNO = {"levels": 1, "width": 2, "neck_blocks": 1, "skip_blocks": 0, "lift_width": 2}
FIELDS = {
    "cno": CNO,
    "cno-no-filters": CNO,
    "cno-no-skip-blocks": CNO,
    "fno": {"width": 2, "modes": 2, "layers": 1, "hidden_width": 2},
    "unet": {"channels": 2},
}


def tiny(ways: dict[str, Way], **fields: Any) -> Plan:
    return Plan(
        **{
            "device": "cpu",
            "seconds": 100.0,
            "batch": 8,
            "sizes": (16, 32, 64),
            "inference_batch": 4,
            "solver_batch": 2,
            "ways": {name: replace(way, fields=FIELDS[way.model]) for name, way in ways.items()},
            "resolution": 16,
            "inference_sizes": (16,),
            "run_fields": CNO,
            "problems": (NavierStokes(N=32, T=0.02), Poisson(K=4)),
            **fields,
        }
    )


@pytest.fixture(scope="module", autouse=True)
def _few_rounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "MOST_ROUNDS", 2)
        yield


@pytest.fixture(scope="module")
def seen() -> list[tuple[dict[str, Any], str]]:
    """Every state of the report of one run, with what was at work."""
    states: list[tuple[dict[str, Any], str]] = []
    run_bench(tiny(WAYS), watch=lambda report, name: states.append((copy.deepcopy(report), name)))
    return states


def test_every_row_is_measured_and_compared(seen):
    report = seen[-1][0]
    assert list(report["training"]) == list(WAYS)
    for section in ("training", "sizes", "inference"):
        for name, row in report[section].items():
            assert "error" not in row, name
            low, high = row["quartiles_milliseconds"]
            assert 0 < low <= row["milliseconds"] <= high
            assert row["rounds"] == 2
    for name, row in report["training"].items():
        if name != "fused":
            assert 0.01 < row["ratios"]["fused"] < 100
    ablated = {"no-filters", "no-skip-blocks", "no-filters-channels-first"}
    assert set(report["training"]["fused"]["ratios"]) == ablated


def test_the_networks_that_train_are_those_of_the_flow():
    assert {plan.problems[0].name for plan in PLANS.values()} == {FLOW}
    for model in paper.ABLATION_SPEEDUPS:  # rows of the report, by these names
        assert WAYS[model.removeprefix("cno-")] == Way(model)


def test_grids_grow_at_a_constant_number_of_pixels(seen):
    rows = seen[-1][0]["sizes"]
    assert [rows[f"fused-{n}"]["batch"] for n in (16, 32, 64)] == [8, 2, 1]  # 1/2 is no batch
    for row in rows.values():
        pixels = row["batch"] * row["size"] ** 2
        assert row["nanoseconds_a_pixel"] == pytest.approx(
            1e6 * row["milliseconds"] / pixels, rel=1e-3
        )
    assert rows["dense-16"]["ratios"]["dense-16"] == 1


def test_a_solver_is_compared_a_sample_and_once_a_grid(seen):
    rows = seen[-1][0]["inference"]
    assert [name for name in rows if "solver" in name] == [
        "navier-stokes-solver-32-latency",  # on its own grid, whatever that of the data
        "navier-stokes-solver-32-throughput",
        "poisson-solver-16-latency",
        "poisson-solver-16-throughput",
    ]
    solver = rows["poisson-solver-16-throughput"]
    (ratio,) = solver["ratios"].values()
    network = rows["poisson-16-throughput"]
    # A batch of two over one of four. The ratio is taken round by round, so it is near, not equal.
    expected = solver["milliseconds"] / 2 / (network["milliseconds"] / 4)
    assert ratio == pytest.approx(expected, rel=0.5)
    two = run_bench(tiny(WAYS, inference_sizes=(16, 32)), ["navier-stokes-*"])
    assert set(two["inference"]["navier-stokes-solver-32-latency"]["ratios"]) == {
        "navier-stokes-16-latency",
        "navier-stokes-32-latency",
    }


def test_what_is_known_is_told_at_once(seen):
    assert [name for _, name in seen[: len(WAYS) + 1]] == [*WAYS, "round 1"]
    first_round = seen[len(WAYS)][0]
    assert all(row["rounds"] == 1 for row in first_round["training"].values())
    assert "sizes" not in first_round


def fail(activation: Activation, x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no kernel image is available\n(a long explanation)")


def test_a_row_that_fails_says_why_and_the_others_go_on():
    rows = run_bench(tiny(WAYS | {"dense": Way(activation=fail)}), ["training"])["training"]
    assert rows["dense"]["error"] == "RuntimeError: no kernel image is available"
    assert "milliseconds" not in rows["dense"]
    assert rows["no-filters"]["ratios"]["fused"] > 0


def test_compiling_takes_no_row_its_time():
    report = run_bench(tiny(WAYS, seconds=1e-6), ["training"])
    assert all(row["rounds"] == bench.LEAST_ROUNDS for row in report["training"].values())


def test_a_choice_is_by_section_name_or_pattern():
    plan = PLANS["cpu"]
    assert list(select_rows(plan, [])) == ["training", "sizes", "inference", "run"]
    chosen = select_rows(plan, ["sizes", "fused"])
    assert [row.name for row in chosen["training"]] == ["fused"]
    assert len(chosen["sizes"]) == 6
    assert list(select_rows(plan, ["poisson-64-*"])) == ["inference"]
    assert select_rows(plan, ["train*"]).keys() == {"training"}
    with pytest.raises(ValueError, match="called 'fusd'; use training, sizes, inference, run, "):
        select_rows(plan, ["fusd"])


def small_run() -> RunConfig:
    config = RunConfig.resolve(Poisson(K=4), "cno", resolution=24)
    train = replace(config.train, epochs=3, batch_size=4, samples=8, symmetric_predictions=False)
    return replace(config, architecture=replace(config.architecture, **CNO), train=train)


def test_runs_are_measured_whole_alone_and_together(monkeypatch):
    few = {"train": 64, "val": 8, "test": 8, "ood": 8}
    for problem in (NavierStokes, Poisson):
        monkeypatch.setattr(problem, "samples", few)

    def run_here(request: dict[str, Any]) -> None:  # in no process of its own: seconds less
        train_run(RunConfig.from_tree(request["config"]), request["folder"])

    monkeypatch.setattr(bench_runs, "run_in_process", run_here)
    plan = tiny(WAYS, run_epochs=4, run_members=(1, 2), whole=small_run())
    rows = run_bench(plan, ["run"])["run"]
    assert list(rows) == ["step-adamw", "step-muon", "run", "members-2", "poisson-to-result"]
    assert not [row["error"] for row in rows.values() if "error" in row]
    assert rows["step-muon"]["ratios"]["step-adamw"] > 0
    one, two = rows["run"], rows["members-2"]
    assert (one["members"], one["steps"], two["members"]) == (1, 4 * 64 // 32, 2)
    ratio = two["milliseconds"] / one["milliseconds"]
    assert two["ratios"]["run"] == pytest.approx(ratio, rel=1e-2)
    whole = rows["poisson-to-result"]
    assert whole["epochs"] == 3
    assert 0 < whole["second_process_first_epoch_seconds"] < whole["seconds"]


def test_the_largest_is_the_last_before_memory_ends(monkeypatch):
    tried = []

    def step(way: Way, problem: Any, batch: Batch) -> Any:
        tried.append((batch.samples, batch.shape))
        if batch.samples * batch.points > 24 * 16**2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return lambda: None

    monkeypatch.setattr(bench_runs, "training_step", step)
    plan = tiny(WAYS, largest=((8, 100), (16, 32), (8, 64)))
    rows = run_bench(plan, ["memory"])["memory"]
    assert {name: (row["largest"], row["stopped_by"]) for name, row in rows.items()} == {
        f"{name}{way}": found
        for way in ("", "-recompute")
        for name, found in {
            "batch-16": (16, "memory"),
            "grid-2d": (32, "the end of the list"),
            "grid-3d": (16, "memory"),
        }.items()
    }
    assert tried[:3] == [(n, (16, 16)) for n in (8, 16, 32)]
    assert (1, (32, 32, 32)) in tried


def test_the_dense_network_is_the_fused_one():
    torch.manual_seed(0)
    fused = build_model("cno", problem="navier-stokes", size=(16, 16), **CNO)
    dense = copy.deepcopy(fused)
    _replace_activations(dense, Activation.by_matrices)
    assert not any(isinstance(child, Activation) for child in dense.lift.children())
    u = torch.randn(3, 1, 16, 16)
    torch.testing.assert_close(dense(u), fused(u), rtol=1e-4, atol=1e-5)


def test_the_bicubic_activation_keeps_constants_and_changes_size():
    activation = Activation(2, (8, 8), (16, 16), "leaky_relu", WindowedSinc(), "zero", 2)
    with torch.no_grad():
        activation.bias.copy_(torch.tensor([1.0, -1.0]))
    y = bicubic(activation, torch.zeros(1, 2, 8, 8))
    expected = torch.tensor([2**0.5, -0.2 * 2**0.5]).view(1, 2, 1, 1).expand(1, 2, 16, 16)
    torch.testing.assert_close(y, expected)


def test_a_captured_call_keeps_what_its_graph_reads(monkeypatch):
    # Without a GPU: what is captured is of no interest, only who holds it.
    names = ("Stream", "stream", "current_stream", "CUDAGraph", "graph", "graph_pool_handle")
    for name in (*names, "get_rng_state", "set_rng_state"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    network, inputs = nn.Linear(1, 1), torch.zeros(1, 1)
    read = [weakref.ref(network), weakref.ref(inputs)]
    replay = graphed(partial(network, inputs))
    replay()
    del network, inputs
    assert all(reference() is not None for reference in read)
    replay()
    del replay
    assert all(reference() is None for reference in read)


@pytest.mark.gpu
def test_on_cuda_every_way_has_its_graph_and_its_kernels():
    plan = tiny(WAYS | CUDA_WAYS, device="cuda")
    report = run_bench(plan)
    for section in ("training", "sizes", "inference"):
        for name, row in report[section].items():
            assert "error" not in row, name
            assert "notes" not in row, (name, row["notes"])
