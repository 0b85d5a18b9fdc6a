import copy
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from torchcno.data.normalization import Normalization
from torchcno.evaluation.translation import translated
from torchcno.grids import Grid
from torchcno.metrics import relative_l1
from torchcno.models.ensemble import Ensemble
from torchcno.playground.answers import Playground, View, open_playground
from torchcno.playground.scenes import EASELS, Frame, Spots
from torchcno.problems import PROBLEMS
from torchcno.problems.darcy import Darcy
from torchcno.problems.poisson import Poisson
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.plain import from_plain
from torchcno.runs.pretrained import find_run
from torchcno.training.augmentation import GROUPS, move_back, move_by

UNIT = Frame(((0.0, 1.0), (0.0, 1.0)))
BROAD = (0.5, 0.5, 0.1, 0.5)  # a spot


@pytest.mark.parametrize("name", [name for name in EASELS if name != "airfoil"])
def test_a_dealt_scene_is_a_sample_of_the_problem(untrained, name):
    quick = {"navier-stokes": {"N": 48, "T": 0.1}, "vorticity": {"T": 0.1}}
    problem, resolution = PROBLEMS[name](**quick.get(name, {})), 66 if name == "vorticity" else 48
    playground = untrained(problem, resolution)
    scene = playground.deal(View(seed=7)).words["scene"]
    view = View(scene, resolution)
    inputs, outputs = problem.pairs([torch.Generator().manual_seed(7)], resolution)
    assert torch.allclose(playground.answer(view).fields["input"], inputs, atol=1e-9, rtol=1e-9)
    truth = playground.truth(view).fields["truth"]
    assert torch.allclose(truth, outputs, atol=1e-6 * outputs.abs().max())


def test_a_dealt_airfoil_is_a_sample_of_the_problem(untrained):
    problem = PROBLEMS["airfoil"]()
    playground = untrained(problem, 32)
    scene = playground.deal(View(seed=7)).words["scene"]
    sample = problem.sample_inputs(problem.grid(32), 1, torch.Generator().manual_seed(7))
    assert torch.equal(playground.answer(View(scene, 32)).fields["input"], sample[:, :1])


@dataclass(frozen=True)
class NewProblem(Poisson):
    """New equation: source ↦ solution, of which the page knows nothing."""

    name: ClassVar = "new-problem"


def test_a_problem_without_a_scene_of_its_own_is_drawn_with_spots(untrained):
    problem = NewProblem()
    playground = untrained(problem, 48)
    scene = playground.deal(View(seed=7)).words["scene"]
    view = View(scene, 48)
    inputs, outputs = problem.pairs([torch.Generator().manual_seed(7)], 48)
    assert torch.allclose(playground.answer(view).fields["input"], inputs, atol=1e-9)
    assert torch.allclose(playground.truth(view).fields["truth"], outputs, atol=1e-9)


def test_the_potential_of_a_ring_is_a_blob():
    grid, width = Grid((64, 64), "inclusive"), 0.06
    ring = Spots(rings=((0.4, 0.55, width, 1.0),)).drawn(grid, UNIT)
    blob = Spots(blobs=((0.4, 0.55, width, width**2 / 2),)).drawn(grid, UNIT)
    assert torch.allclose(Poisson().solve(ring), blob, atol=1e-5 * float(blob.max()))


def test_a_scene_is_the_same_function_on_every_grid():
    scene = Spots(seed=3, blobs=((0.3, 0.7, 0.1, 1.0),), rings=((0.6, 0.2, 0.05, -2.0),))
    coarse, fine = (scene.state(Poisson(), Grid((n, n), "inclusive"), UNIT) for n in (33, 65))
    assert torch.allclose(fine[..., ::2, ::2], coarse, atol=1e-12)


@pytest.mark.parametrize("shift", [1.0, 0.5, -0.3])
def test_a_shift_by_a_fraction_of_a_grid_step_is_a_translation(untrained, shift):
    playground = untrained(PROBLEMS["navier-stokes"](N=32))
    scene = playground.deal(View(seed=1)).words["scene"]
    here, there = (
        playground.answer(View(scene, 32, shift=s)).fields["input"] for s in (0.0, shift)
    )
    # tanh is not band-limited: what a grid of 32² folds back does not move with the rest.
    assert (translated(here, [0.0, shift]) - there).abs().max() < 0.02 * here.abs().max()


def test_a_shift_by_a_grid_step_moves_all_that_is_drawn_by_a_point(small):
    spots = {"blobs": [[0.4, 0.5, 0.1, 1.0]], "rings": [[0.6, 0.3, 0.07, 2.0]]}
    here, there = (
        small.answer(View({"seed": 2, **spots}, 24, shift=s)).fields["input"] for s in (0.0, 1.0)
    )
    assert torch.allclose(there[..., 1:], here[..., :-1], atol=1e-9)


@pytest.mark.parametrize("name", [name for name in EASELS if PROBLEMS[name].symmetries])
def test_solutions_have_the_symmetries_that_doubt_is_measured_by(untrained, name):
    problem = PROBLEMS[name]()
    if name == "navier-stokes":
        problem = PROBLEMS[name](N=24, T=0.1)
    states = problem.sample_inputs(problem.solver_grid(26), 1, torch.Generator().manual_seed(0))
    solved = problem.solve(states)
    # The time step of a flow follows its largest velocity on points that no mirror keeps.
    tolerance = 1e-4 if name == "navier-stokes" else 1e-8
    space = states.shape[2:]
    group = GROUPS[untrained(problem, 24).symmetry](space, states.shape[1])
    assert len(group) > 1
    for move in group:
        image = move_back(problem.solve(move_by(states, move)), move)
        assert torch.allclose(image, solved, atol=tolerance * float(solved.abs().max()))


def test_an_equivariant_network_has_no_doubt(small):
    class Same(torch.nn.Module):
        config = next(iter(small.networks.values())).network.config

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, u):
            return self.weight * u

    operator = TrainedOperator(Same(), Normalization.identity(), small.grid, "same", "poisson")
    view = View({"seed": 1}, 24)
    doubt = Playground({"same": operator}, small.problem).doubt(view).fields["doubt 0"]
    assert doubt.abs().max() < 1e-6
    assert small.doubt(view).fields["doubt 0"].max() > 1e-4


def test_the_doubt_of_an_ensemble_is_the_spread_of_its_members(small):
    (operator,) = small.networks.values()
    other = copy.deepcopy(operator.network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.01 * torch.randn(parameter.shape)
    both = TrainedOperator(
        Ensemble([operator.network, other]), operator.normalization, small.grid, "cno", "poisson"
    )
    playground, view = Playground({"cno": both}, small.problem), View({"seed": 1}, 24)
    inputs = playground.answer(view).fields["input"]
    one, two = (member.apply_to(inputs) for member in both.members())
    doubt = playground.doubt(view).fields["doubt 0"]
    torch.testing.assert_close(doubt, (one - two).abs() / math.sqrt(2))


def test_what_looks_usual_by_its_values_alone_is_told_by_its_score():
    """A broad blob has values and a mean wavenumber of the training, and an error of half."""
    playground = open_playground([find_run("poisson")])
    for scene, known in (({"seed": 1}, True), ({"seed": 1, "blobs": [BROAD]}, False)):
        view = View(scene, 64)
        reply, truth = playground.answer(view), playground.truth(view).fields["truth"]
        assert (relative_l1(reply.fields["answer 0"], truth) < 0.1) == known
        assert (reply.words["strange"] == {}) == known


def test_statistics_of_an_earlier_version_keep_no_answer_back():
    playground = open_playground([find_run("poisson")])
    (operator,) = playground.networks.values()
    inputs = operator.trust.inputs
    old = replace(inputs, kinds={"spectrum": inputs.kinds["texture"]})
    operator.trust = replace(operator.trust, inputs=old)
    with pytest.raises(ValueError, match="calibrate"):
        operator.ood_score(torch.zeros(1, 1, 64, 64))
    reply = playground.answer(View({"seed": 1, "blobs": [BROAD]}, 64))
    assert "answer 0" in reply.fields


def test_the_bound_on_the_page_is_the_one_that_predictions_have():
    playground = open_playground([find_run("poisson")])
    (operator,), (network,) = playground.networks.values(), playground.setup()["networks"]
    inputs = playground.answer(View({"seed": 1})).fields["input"]
    found = operator.predict(inputs, confidence=0.9)
    assert network["bound"] == pytest.approx(float(found.relative_error))


def test_own_data_are_drawn_around_the_middle_of_what_a_network_has_seen(small):
    (operator,) = small.networks.values()
    grid = Grid((16, 24), "inclusive")
    scaling = Normalization(2.0, 6.0, 0.0, 1.0)
    own = TrainedOperator(operator.network, scaling, grid, "cno", "mine")
    playground = Playground({"cno": own}, None)
    view = View({"blobs": [[0.5, 0.5, 0.2, 1.0]]}, 24)
    inputs = playground.answer(view).fields["input"]
    assert inputs.shape == (1, 1, 16, 24)
    assert inputs[0, 0, 0, 0] == pytest.approx(4.0, abs=0.02)
    assert inputs.max() == pytest.approx(6.0, abs=0.05)
    with pytest.raises(ValueError, match="no solver"):
        playground.truth(view)
    assert playground.doubt(view).fields == {}
    assert playground.setup()["truth"] is False


def test_an_input_unlike_the_training_is_told(small):
    usual, strange = (
        small.answer(View({"seed": 1, "rings": rings}, 24)).words["strange"]
        for rings in ([], [[0.5, 0.5, 0.05, 50.0]])
    )
    assert usual == {}
    assert "values" in strange["0"]


def test_paint_is_one_material_or_the_other():
    grid = Grid((33, 33), "inclusive")
    scene = EASELS["darcy"].scene(seed=0, blobs=((0.3, 0.3, 0.05, 2.0), (0.7, 0.7, 0.05, -2.0)))
    state = scene.state(Darcy(), grid, UNIT)
    assert set(state.unique().tolist()) == {3.0, 12.0}
    assert state[0, 0, 10, 10] == 12.0  # y, x = 0.3
    assert state[0, 0, 22, 22] == 3.0


def test_a_constant_out_of_the_training_data_changes_the_input(small):
    scene = {"seed": 1}
    plain, changed = (
        small.answer(View(scene, 24, constants=constants)).fields["input"]
        for constants in ({}, {"K": 8})
    )
    problem = Poisson(K=8)
    expected = problem.sample_inputs(problem.grid(24), 1, torch.Generator().manual_seed(1))
    assert torch.equal(changed, expected)
    assert not torch.allclose(plain, changed)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"scene": {"seed": -1}}, "seed is -1"),
        ({"scene": {"blobs": [[0.5, 0.5, 0.1]]}}, "scene.blobs"),
        ({"scene": {"blobs": [[0.5, 0.5, 0.0, 1.0]]}}, "width is 0"),
        ({"scene": {"blobs": [[0.5, 0.5, 0.1, math.nan]]}}, "height is nan"),
        ({"scene": {"blobs": [[0.5, 0.5, 0.1, 1.0]] * 401}}, "more than 400 spots"),
        ({"scene": {"curve": []}}, "scene.curve is unknown"),
        ({"constants": {"K": 4.5}}, "K is 4.5"),
        ({"constants": {"K": 31}}, "from 1 to 30"),
        ({"constants": {"name": 1}}, "no constant"),
        ({"shift": math.inf}, "shift is inf"),
        ({"resolution": 10_000}, "resolution is 10000"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(small, view, said):
    with pytest.raises(ValueError, match=said):
        small.answer(from_plain(View, {"resolution": 24, **view}, "request"))
