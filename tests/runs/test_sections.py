import copy
from dataclasses import replace

import pytest
import torch

from torchcno.data.fields import Fields
from torchcno.grids import Grid
from torchcno.models.ensemble import Ensemble
from torchcno.problems import PROBLEMS
from torchcno.runs.audit import audit_trust
from torchcno.runs.folder import load
from torchcno.runs.loading import load_split
from torchcno.runs.sections import (
    BreakEven,
    Subject,
    TrustPage,
    describe_page,
    measure_noise,
    measure_spectrum,
    measure_spread,
)
from torchcno.runs.train import train
from torchcno.training import Hardware, Recipe


@pytest.fixture(scope="module")
def page(tiny_run) -> TrustPage:
    return audit_trust(tiny_run, samples=32, device="cpu")


def test_unchanged_inputs_have_the_error_of_the_run(page):
    """Times 1 and on the grid of the training, the first samples are those of the test set."""
    amplitude = dict(zip(page.amplitude.at, page.amplitude.errors, strict=True))
    resolution = dict(zip(page.resolution.at, page.resolution.errors, strict=True))
    assert amplitude[1.0] == pytest.approx(resolution[24.0], rel=1e-3)
    # A CNO is one operator: the error on a finer grid is that of the same functions.
    assert resolution[48.0] == pytest.approx(resolution[24.0], rel=0.05)


def test_outputs_that_do_not_count_are_in_no_error(tiny_run, tiny_config):
    """A network that is right where outputs count has no error, whatever it says elsewhere."""

    class Half(type(tiny_config.problem)):
        def mask(self, inputs):
            return torch.arange(inputs.shape[-1]).expand_as(inputs) < inputs.shape[-1] // 2

    config = replace(tiny_config, problem=Half(**vars(tiny_config.problem)))
    operator, fields = load(tiny_run), load_split(tiny_config, "test", 4)
    operator.apply_to = lambda u, *_: fields.outputs.where(config.problem.mask(u), 9.0)
    subject = Subject(operator, config, fields, "test", None, torch.device("cpu"))
    assert max(measure_noise(subject).errors) < 1e-12
    bands = measure_spectrum(subject).bands["test"]
    assert max(band.relative for band in bands) < 1e-12


def test_noise_does_not_help(page):
    assert page.noise.at[0] == 0.0
    assert page.noise.errors[-1] > 0.99 * page.noise.errors[0]


def test_all_energy_of_the_error_lies_in_some_band(page):
    for bands in page.spectrum.bands.values():
        assert sum(band.share for band in bands) == pytest.approx(1)


def test_bands_hold_on_samples_of_the_same_kind(page):
    assert page.calibration.holds
    for one in page.calibration.coverages:
        if one.split == "test":
            assert one.likely[0] <= one.relative <= one.likely[1]


def test_what_cannot_be_measured_says_why(page):
    assert page.shift.left_out == "the grid is not periodic"
    said = describe_page(page)
    assert "left out, the grid is not periodic" in said["Errors"][0]
    assert all(lines for lines in said.values())


def test_own_data_have_the_sections_that_need_no_solver(tmp_path):
    u = torch.randn(40, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    fields = Fields(u, u.roll(1, -1), Grid((16, 16), "periodic"))
    sets = fields.split(16, 12, 12)
    small = {"levels": 1, "width": 4, "lift_width": 4, "neck_blocks": 1, "skip_blocks": 1}
    recipe = Recipe(epochs=1, batch_size=8)
    hardware = Hardware(accelerator="cpu")
    train(
        "cno", *sets[:2], tmp_path / "own", test=sets[2], recipe=recipe, hardware=hardware, **small
    )
    page = audit_trust(tmp_path / "own", device="cpu")
    for left in (page.amplitude, page.break_even):
        assert left.left_out == "no solver is known for these data"
    assert "solutions move with their inputs" in page.shift.left_out
    assert "no set out of distribution" in page.detection.left_out
    assert page.detection.alarms_inside is not None
    assert page.resolution.at == (8.0, 12.0, 16.0)
    assert [one.confidence for one in page.calibration.coverages] == [0.5, 0.8, 0.9]
    assert page.calibration.samples == 12


@pytest.mark.parametrize("name", ["navier-stokes", "allen-cahn", "darcy", "vorticity"])
def test_a_coarsened_solver_solves_the_same_equation(name):
    problem = PROBLEMS[name]()
    coarse = problem.coarsened(0.5)
    assert type(coarse) is type(problem)
    if name == "allen-cahn":
        assert coarse.dt * coarse.steps == pytest.approx(problem.dt * problem.steps)
    if name == "navier-stokes":
        assert coarse.epsilon / coarse.N == problem.epsilon / problem.N
    assert problem.coarsened(1.0).solver_grid(64) == problem.solver_grid(64)


def test_a_solver_that_is_faster_is_never_overtaken(page):
    found = page.break_even
    assert found.coarse_seconds <= found.solver_seconds
    if found.network_seconds > found.coarse_seconds:
        assert found.solves is None
    paid = BreakEven(0.01, 0.001, 0.1, 0.05, 0.5, 0.01, 100.0, 200.0, 300 / 0.049, "cpu")
    assert (
        "after 6,122 solves (training took 200 s)"
        in describe_page(TrustPage(**{**vars(page), "break_even": paid}))["Break-even"][-1]
    )


def test_the_spread_of_an_ensemble_is_compared_with_its_error(tiny_run, tiny_config):
    operator = load(tiny_run)
    fields = load_split(tiny_config, "test", 12)
    here, there = operator.network, copy.deepcopy(operator.network)
    for weight in there.parameters():
        weight.data.mul_(1.1)
    both = operator.with_network(Ensemble([here, there]))
    cpu = torch.device("cpu")
    found = measure_spread(Subject(both, tiny_config, fields, "test", None, cpu))
    spread = both.spread(fields.inputs).flatten(1).square().mean(1).sqrt()
    assert -1 <= found.correlation["test"] <= 1
    assert found.over_error["test"] > 0
    assert (spread > 0).all()
    alone = measure_spread(Subject(operator, tiny_config, fields, "test", None, cpu))
    assert "one network has no spread" in alone.left_out
