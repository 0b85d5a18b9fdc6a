"""A loss with the equation in it."""

from dataclasses import replace

import pytest
import torch

from torchcno.data.normalization import Normalization
from torchcno.problems import PROBLEMS
from torchcno.problems.darcy import Darcy
from torchcno.problems.poisson import Poisson
from torchcno.runs.config import RunConfig
from torchcno.runs.folder import RunFolder
from torchcno.runs.physics import ScaledEquation
from torchcno.runs.train import train_run
from torchcno.training import Recipe
from torchcno.training.losses import LOSSES, relative_l1_loss
from torchcno.training.physics import Informed, informed_loss

SOLVED = [Poisson(K=6), Darcy(refinement=1)]


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def scaled(problem, generator):
    """Inputs and the solver's outputs as networks see them, and the equation there."""
    u = problem.sample_inputs(problem.grid(20), 3, generator)
    v = problem.solve(u)
    scaling = Normalization(float(u.min()), float(u.max()), float(v.min()), float(v.max()))
    return (
        scaling.normalize_inputs(u),
        scaling.normalize_outputs(v),
        ScaledEquation(problem, scaling),
        scaling,
    )


@pytest.mark.parametrize("problem", SOLVED, ids=lambda p: p.name)
def test_the_equation_is_zero_for_the_solution_and_one_for_nothing(problem, generator):
    u, v, equation, scaling = scaled(problem, generator)
    assert equation(u, v).abs().max() < 1e-9
    nothing = scaling.normalize_outputs(torch.zeros_like(v))
    size = equation(u, nothing).square().mean((1, 2, 3)).sqrt()
    torch.testing.assert_close(size, torch.ones_like(size))


@pytest.mark.parametrize("problem", SOLVED, ids=lambda p: p.name)
def test_only_the_solution_satisfies_equation_and_edge(problem, generator):
    """A step along the gradient of the loss leads to it from anywhere: the loss is convex."""
    u, v, equation, _ = scaled(problem, generator)
    w = v + 0.1 * torch.randn(v.shape, generator=generator, dtype=v.dtype)
    w.requires_grad_()
    (gradient,) = torch.autograd.grad(equation(u, w).square().mean(), w)
    assert ((w - v) * gradient).sum() > 0
    assert gradient[..., 0, :].abs().max() > 0  # the edge counts


def test_on_poisson_the_loss_is_the_energy_of_the_error(generator):
    """‖r‖_{H⁻¹} = ‖∇(v − u)‖ for −Δu = f."""
    problem = Poisson(K=6)
    u, v, equation, scaling = scaled(problem, generator)
    one = problem.solve(problem.sample_inputs(problem.grid(20), 3, generator))
    size = scaling.output_max - scaling.output_min
    found = equation(u, v + one / size).square().mean((1, 2, 3))
    truth = scaling.denormalize_outputs(v)
    energy = [_energy(problem, w) for w in (one, truth)]
    torch.testing.assert_close(found, energy[0] / energy[1])


def _energy(problem, u):
    """∫ u (−Δu)."""
    return (u * -problem.residual(torch.zeros_like(u), u)).mean((1, 2, 3))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_loss_is_between_data_and_equation(share, generator):
    u, v, equation, _ = scaled(SOLVED[0], generator)
    w = v + 0.1 * torch.randn(v.shape, generator=generator, dtype=v.dtype)

    class Network(torch.nn.Module):
        def forward(self, _):
            return w

    prediction = Informed(Network(), equation)(u)
    found = informed_loss(LOSSES["relative-l1"], share)(prediction, v)
    of_equation = equation(u, w).square().mean((1, 2, 3)).sqrt().mean()
    torch.testing.assert_close(found, (1 - share) * relative_l1_loss(w, v) + share * of_equation)


def test_the_equation_alone_teaches_a_network_without_outputs(tiny_config, tmp_path):
    """Training by inputs alone: the error falls, and targets play no part."""
    config = replace(tiny_config, train=replace(tiny_config.train, physics=1.0, epochs=6))
    train_run(config, tmp_path / "run", splits=("val",))
    first, *_, last = RunFolder(tmp_path / "run").rows()
    assert last["train_loss"] < 0.9 * first["train_loss"]
    assert last["validation_error"] < 0.9 * first["validation_error"]


@pytest.mark.parametrize("name", ["wave", "allen-cahn"])
def test_problems_that_a_pair_does_not_determine_are_refused(name, tmp_path):
    config = RunConfig.resolve(PROBLEMS[name](), "cno")
    config = replace(config, train=replace(config.train, physics=0.5))
    with pytest.raises(ValueError, match="poisson, darcy"):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match="share"):
        Recipe(physics=1.5)
