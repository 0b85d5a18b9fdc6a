import json
from dataclasses import replace

import pytest

from torchcno.cli.bench import count_seconds
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.runs import bench
from torchcno.runs.bench import Plan
from torchcno.runs.bench_work import Way

TINY = {"levels": 1, "width": 2, "neck_blocks": 1, "skip_blocks": 0, "lift_width": 2}


@pytest.fixture(autouse=True)
def small_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ways through a network of some hundred weights, two rounds."""
    models = {"fused": "cno", "no-filters": "cno-no-filters", "dense": "unet"}
    plan = Plan(
        "cpu",
        seconds=100,
        batch=2,
        sizes=(16, 32),
        inference_batch=2,
        solver_batch=1,
        ways={
            name: Way(model, fields={"channels": 2} if model == "unet" else TINY)
            for name, model in models.items()
        },
        resolution=16,
        inference_sizes=(16,),
        problems=(NavierStokes(N=32, T=0.02),),
    )
    monkeypatch.setitem(bench.PLANS, "cpu", plan)
    monkeypatch.setattr(bench, "MOST_ROUNDS", 2)


def test_the_tables_and_the_file_say_the_same(cno, tmp_path):
    out = tmp_path / "bench.json"
    outcome = cno("bench", "--device", "cpu", "--out", out)
    assert outcome.code == 0
    report = json.loads(out.read_text())
    assert report["versions"]["torch"] in outcome.out
    ratio = report["training"]["no-filters"]["ratios"]["fused"]
    line = next(line for line in outcome.out.splitlines() if line.strip().startswith("no-filters"))
    assert f"{ratio:.3g}" in line
    assert "fused-32" in outcome.out
    assert "over network" in outcome.out


def test_one_section_has_one_table(cno):
    outcome = cno("bench", "--device", "cpu", "--only", "training")
    assert outcome.code == 0
    assert "over fused" in outcome.out
    assert "ns a pixel" not in outcome.out


def test_what_could_not_be_measured_is_said(cno, monkeypatch):
    plan = bench.PLANS["cpu"]
    broken = Way("unet", fields={"channels": -1})
    monkeypatch.setitem(bench.PLANS, "cpu", replace(plan, ways={**plan.ways, "dense": broken}))
    outcome = cno("bench", "--device", "cpu", "--only", "sizes")
    assert outcome.code == 0
    assert "sizes, dense-16: ValueError: channels is -1" in outcome.out


def test_the_bar_is_of_the_seconds_that_measure():
    rows = {"fused": {"first_call_seconds": 30.0}, "dense": {}}
    report = {"training": rows, "sizes": {"fused-64": {"first_call_seconds": 1.5}}}
    assert count_seconds(report | {"wall_seconds": 40.0}) == 8.5
    assert count_seconds(report | {"wall_seconds": 31.4}) == 0  # rounded


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--only", "fusd"), "nothing to measure is called 'fusd'; use training, sizes"),
        (("--seconds", "0"), "give a positive number"),
        (("--device", "tpu"), "use auto, cpu or cuda"),
    ],
)
def test_bad_input_is_answered_with_a_remedy(cno, words, remedy):
    outcome = cno("bench", "--device", "cpu", *words)
    assert outcome.code == 2
    assert remedy in outcome.err
