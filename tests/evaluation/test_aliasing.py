"""Continuous-discrete equivalence end to end: which networks have it, and which do not."""

import math

import pytest
import torch
from torch import nn

from torchcno.evaluation.aliasing import Audit, Rung, Translation, aliasing_errors, audit
from torchcno.evaluation.translation import translated
from torchcno.grids import unit_positions
from torchcno.models.cno import CNO, CNOConfig
from torchcno.models.ffnn import FFNN, FFNNConfig
from torchcno.models.fno import FNO, FNOConfig
from torchcno.models.unet import UNet, UNetConfig
from torchcno.operators.filters import Ideal, Nearest
from torchcno.spectral import modes, resample

ROUNDING = 1e-12


def cno(**fields):
    torch.manual_seed(0)
    common = {"size": (16, 16), "levels": 2, "width": 4, "lift_width": 4, "neck_blocks": 1}
    common |= {"skip_blocks": 1, "boundary": "periodic", "layout": "periodic"}
    return CNO(CNOConfig(**{**common, **fields})).double()


def fno(**fields):
    torch.manual_seed(0)
    return FNO(FNOConfig(width=4, hidden_width=8, modes=4, layers=2, **fields)).double()


def pointwise(sigma):
    """The same network at every point: no kernel whose meaning depends on the grid."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 1), sigma, nn.Conv2d(4, 1, 1)).double()


class Square(nn.Module):
    def forward(self, x):
        return x * x


def test_ideal_filters_and_polynomials_audit_at_rounding_error(waves):
    found = audit(cno(filter=Ideal(), activation="polynomial"), waves)
    assert found.worst < ROUNDING
    assert len(found.layers) == 2 + 2 * 2 + 2 + 1 + 3 + 2  # P, Q; D, U; R across; neck; (E); I
    assert max(layer.folded for layer in found.layers) < ROUNDING
    assert found.passes(threshold=ROUNDING)


def test_a_polynomial_needs_the_finer_grid(waves):
    """Squaring doubles a band: N_σ = 1 folds back what N_σ = 2 filters out."""
    found = audit(cno(filter=Ideal(), activation="polynomial", activation_upsampling=1), waves)
    assert min(t.error for t in found.translations) > 1e-8
    # Between grids a CNO is one operator whatever goes on inside: it works on its own grid.
    assert max(rung.folded for rung in found.ladder) < ROUNDING


def test_windowed_filters_are_between_ideal_ones_and_none(waves):
    errors = {
        name: max(t.error for t in audit(cno(**fields), waves).translations)
        for name, fields in {
            "none": {"filter": Nearest()},
            "windowed": {},
            "ideal": {"filter": Ideal(), "activation_upsampling": 4},
        }.items()
    }
    assert 3 * errors["ideal"] < errors["windowed"] < errors["none"] / 3


class OnFourTimesThePoints(nn.Module):
    """|u|, taken on a finer grid, filtered on the way back: what aliases is that grid alone."""

    def forward(self, u):
        n = u.shape[-1]
        return resample(resample(u, (4 * n, 4 * n), "periodic").abs(), (n, n), "periodic")


def test_aliasing_of_a_finer_grid_inside_is_seen_between_its_steps(waves):
    found = audit(OnFourTimesThePoints(), waves)
    errors = {t.steps: t.error for t in found.translations}
    # Quarters of a step are whole steps of the finer grid, and rename its samples only.
    assert all(error < ROUNDING for steps, error in errors.items() if steps % 0.25 == 0)
    assert max(errors.values()) > 1e-4


def test_a_pointwise_relu_network_aliases(waves):
    found = audit(pointwise(nn.ReLU()), waves)
    assert all(rung.folded > 1e-3 for rung in found.ladder)
    assert min(t.error for t in found.translations if t.steps % 1) > 1e-3
    # By whole steps the samples are only renamed.
    assert max(t.error for t in found.translations if t.steps % 1 == 0) < ROUNDING
    assert not found.passes(threshold=1e-3)


def test_aliasing_of_a_square_is_what_a_product_of_waves_folds():
    """cos²(2πkx) = 1/2 + cos(4πkx)/2, and on n < 4k points the latter folds: ε = √(1/8 / 3/8)."""
    x = torch.cos(2 * math.pi * 5 * unit_positions(16, "periodic"))[None, None]
    reference, (rung,) = aliasing_errors(Square(), x, [(16,), (32,)], "periodic")
    assert reference == (32,)
    # Folded to |k| = 6 and beyond at |k| = 10: two orthogonal waves of energy 1/8 each.
    assert rung.folded == pytest.approx(math.sqrt(1 / 3))
    assert rung.aliasing == pytest.approx(math.sqrt(2 / 3))


def test_the_error_beyond_the_band_is_orthogonal_to_the_one_within(waves):
    """‖ε‖² = ‖Pε‖² + ‖g_N − P g_N‖², here for a single sample."""
    network, u = pointwise(nn.ReLU()), waves[:1]
    with torch.no_grad():
        _, (rung,) = aliasing_errors(network, u, [(16, 16), (48, 48)], "periodic")
        fine = network(resample(u, (48, 48), "periodic"))
    in_band = resample(resample(fine, (16, 16), "periodic"), (48, 48), "periodic")
    beyond = float((fine - in_band).norm() / fine.norm())
    assert rung.aliasing**2 == pytest.approx(rung.folded**2 + beyond**2)


def test_fno_is_one_operator_but_for_its_activation(waves, monkeypatch):
    with_sigma = audit(fno(coordinates=False, activation="gelu"), waves)
    assert min(rung.folded for rung in with_sigma.ladder) > 1e-6
    names = [layer.name for layer in with_sigma.layers]
    assert names == ["lift.1", "layers.0.sigma", "layers.1.sigma", "project.1"]
    assert with_sigma.layers[0].folded > 1e-6

    monkeypatch.setattr(nn.functional, "gelu", lambda x, **_: x)
    without = audit(fno(coordinates=False, activation="gelu"), waves)
    assert without.worst < ROUNDING
    assert without.layers == ()


@pytest.mark.parametrize("layout", ["inclusive", "cell-centred"])
def test_a_linear_map_of_channels_is_exact_on_every_layout(layout, waves):
    found = audit(pointwise(nn.Identity()), waves, layout=layout)
    assert max(rung.aliasing for rung in found.ladder) < ROUNDING
    assert found.translations == ()
    assert any("no translations" in note for note in found.notes)
    aliasing = audit(pointwise(nn.ReLU()), waves, layout=layout)
    assert min(rung.folded for rung in aliasing.ladder) > 1e-4


def test_translations_are_a_group_and_move_waves():
    xi = unit_positions(9, "periodic")
    basis = modes(xi, 9, "periodic", "periodic")
    moved = modes(xi - 0.3 / 9, 9, "periodic", "periodic")
    torch.testing.assert_close(translated(basis.T[:, None], [0.3])[:, 0].T, moved)
    u = torch.randn(1, 2, 8, 9, dtype=torch.float64)
    once = translated(translated(u, [0.3, 1.2]), [0.4, -0.7])
    torch.testing.assert_close(once, translated(u, [0.7, 0.5]))
    torch.testing.assert_close(translated(u, [0, 2])[..., 2:], translated(u, [0, 0])[..., :-2])


def test_translations_have_gradients_whoever_asked_first():
    with torch.inference_mode(), torch.device("meta"):
        translated(torch.zeros(1, 1, 23, dtype=torch.float64, device="cpu"), [0.1])
    u = torch.randn(1, 1, 23, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: translated(v, [0.1]), u)


def test_super_resolution_is_compared_on_the_output_s_grid(waves):
    found = audit(cno(filter=Ideal(), activation="polynomial", out_size=(32, 32)), waves)
    assert found.worst < ROUNDING


def test_dimensions_other_than_two():
    for shape in ((16,), (8, 8, 8)):
        u = torch.randn(1, 1, *shape, dtype=torch.float64, generator=torch.Generator())
        assert audit(Square(), u, resolutions=(8, 16)).worst > 0.1
        cubic = cno(size=shape, levels=1, filter=Ideal(), activation="polynomial")
        assert audit(cubic, u, resolutions=(8, 16)).worst < ROUNDING


def test_a_module_that_takes_one_grid_is_reported(waves):
    model = FFNN(FFNNConfig(size=(16, 16), layers=2, width=4)).double()
    found = audit(model, waves)
    assert found.reference == (16, 16)
    assert all("accepts only (16, 16)" in rung.failure for rung in found.ladder)
    assert any("two grids" in note for note in found.notes)
    assert not found.passes(threshold=0.1)  # it treats every place in another way
    lone = audit(model, waves, layout="inclusive")
    assert lone.worst is None
    assert not lone.passes(threshold=1e9)  # nothing measured does not pass


def test_a_grid_below_the_model_s_minimum_is_reported(waves):
    found = audit(UNet(UNetConfig(channels=2)).double(), waves, resolutions=(8, 16, 32))
    small, own = found.ladder
    assert "at least 16 points" in small.failure
    assert own.failure is None
    assert own.folded > 0


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.fft2(x)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Mean(nn.Module):
    def forward(self, x):
        return x.mean((-1, -2))


class Zero(nn.Module):
    def forward(self, x):
        return 0 * x


class Blow(nn.Module):
    def forward(self, x):
        return x / 0


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Spectrum(), "outputs are complex; wrap it"),
        (Pair(), "returns a tuple"),
        (Mean(), "from fields to fields"),
        (Blow(), "NaN or infinite"),
        (Zero(), "zero everywhere"),
    ],
)
def test_what_is_no_field_is_refused(module, message, waves):
    with pytest.raises(ValueError, match=message):
        audit(module, waves)


@pytest.mark.parametrize(
    "inputs", [torch.zeros(0, 1, 8, 8), torch.zeros(8, 8), torch.ones(1, 1, 8, 8).long()]
)
def test_inputs_that_are_no_fields_are_refused(inputs):
    with pytest.raises(ValueError, match=r"\(sample, channel, \*space\)"):
        audit(Square(), inputs)


def test_the_module_is_left_as_it_was(waves):
    model = pointwise(nn.Sequential(nn.Dropout(), nn.ReLU(inplace=True)))
    model[1].eval()
    before = {name: part.training for name, part in model.named_modules()}
    weights = [p.clone() for p in model.parameters()]
    audit(model, waves)
    assert {name: part.training for name, part in model.named_modules()} == before
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), weights, strict=True))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_verdict_counts_what_is_folded_and_what_translations_show():
    ladder = (Rung((8, 8), aliasing=0.9, folded=0.3), Rung((12, 12), failure="refused"))
    translations = (Translation(0.5, 0.2), Translation(1.0, 0.4))
    verdicts = {
        (ladder, ()): 0.3,
        ((), translations): 0.4,
        (ladder, translations): 0.4,
        (ladder, translations[:1]): 0.3,
    }
    for (rungs, moves), worst in verdicts.items():
        found = Audit("x", "periodic", (16, 16), rungs, moves, ())
        assert found.worst == worst
        assert found.passes(worst)
        assert not found.passes(0.9 * worst)
    assert not Audit("x", "periodic", None, (), (), ()).passes(1.0)


class Forced(nn.Module):
    """u + sin 2πx: exact on every grid, with a force that stays in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, u):
        x = unit_positions(u.shape[-1], "periodic").to(u)
        return u + self.size * torch.sin(2 * math.pi * x)


def test_an_operator_that_knows_places_is_judged_by_its_grids_alone(waves):
    assert audit(Forced(), waves).worst > 1e-3
    found = audit(Forced(), waves, homogeneous=False)
    assert found.translations == ()
    assert found.passes(threshold=ROUNDING)
