"""The CNO as an operator: what it commutes with, whatever its weights."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from torchcno.models.cno import (
    CNO,
    CNOConfig,
    fourier_features,
)
from torchcno.operators import Activation, Convolution, Ideal, Nearest, WindowedSinc
from torchcno.operators.boundary import BOUNDARIES
from torchcno.runs.plain import from_plain, to_plain
from torchcno.runs.presets import build_model
from torchcno.spectral import resample, resampling_matrix

SMALL = CNOConfig(
    size=(16, 16),
    levels=2,
    width=4,
    neck_blocks=1,
    skip_blocks=1,
    lift_width=6,
    boundary="periodic",
)


def network(config, seed=0):
    """A CNO with random weights, biases and batch statistics, in float64."""
    torch.manual_seed(seed)
    model = CNO(config).double()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith(("bias", "running_mean")):
            torch.nn.init.normal_(value, std=0.1)
        if name.endswith("running_var"):
            torch.nn.init.uniform_(value, 0.5, 1.5)
    return model.eval()


def field(config, seed=1, batch=2):
    """A random periodic field, below the Nyquist mode of every axis."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, config.in_channels, *config.size)
    u = torch.randn(shape, dtype=torch.float64, generator=generator)
    return resampled_to_own_band(u, config.size)


def resampled_to_own_band(u, size):
    for axis, n in enumerate(size, start=u.ndim - len(size)):
        projection = resampling_matrix(n, n, "cell-centred", "periodic")
        u = (u.movedim(axis, -1) @ projection.T).movedim(-1, axis)
    return u


def translated(u, steps, dims=2):
    """u moved by a fraction `steps` of a grid step along each axis, as its Fourier series says."""
    for axis in range(-dims, 0):
        n = u.shape[axis]
        k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
        shift = torch.exp(-2j * torch.pi * k * steps / n)
        u_hat = torch.fft.fft(u, dim=axis).movedim(axis, -1) * shift
        u = torch.fft.ifft(u_hat.movedim(-1, axis), dim=axis).real
    return u


def translation_error(model, u, steps=1 / 3):
    v = model(u)
    return ((model(translated(u, steps)) - translated(v, steps)).norm() / v.norm()).item()


class TestTranslation:
    """A shift by a third of a grid step commutes with the network."""

    EXACT = replace(SMALL, filter=Ideal(), activation="polynomial")

    @pytest.mark.parametrize(
        "config",
        [
            EXACT,
            replace(EXACT, size=(24,)),
            replace(EXACT, size=(8, 16, 8), levels=1),
            replace(EXACT, size=(16, 24), out_size=(32, 16)),
            replace(EXACT, activation_upsampling=2.5, norm="none"),
        ],
        ids=["2d", "1d", "3d", "other output size", "rational upsampling"],
    )
    def test_exactly_with_ideal_filters_and_a_polynomial(self, config):
        model, u = network(config), field(config)
        v = model(u)
        for axis_steps in (1 / 3, -0.61):
            # A step of the input grid is out_size / size steps of the output's.
            moved, expected = u, v
            for axis in range(-len(config.size), 0):
                n_in, n_out = u.shape[axis], v.shape[axis]
                moved = translated_axis(moved, axis_steps / n_in, axis)
                expected = translated_axis(expected, axis_steps / n_in, axis)
                assert n_out == config.out_sizes(0)[axis]
            error = (model(moved) - expected).norm() / v.norm()
            assert error < 1e-10

    def test_exactly_in_training_too(self):
        model, u = network(self.EXACT).train(), field(self.EXACT)
        assert translation_error(model, u) < 1e-10

    def test_the_better_the_finer_sigma_acts(self):
        config = replace(SMALL, filter=Ideal(), size=(32, 32))
        errors = [
            translation_error(network(replace(config, activation_upsampling=n)), field(config))
            for n in (1, 2, 4)
        ]
        assert errors[0] > 2 * errors[1] > 4 * errors[2]

    @pytest.mark.parametrize("filter", [Ideal(), WindowedSinc()], ids=["ideal", "windowed"])
    def test_five_times_better_than_without_filters(self, filter):
        config = replace(SMALL, size=(64, 64), levels=3)
        u = resample(field(replace(config, size=(32, 32))), (64, 64), "cell-centred", "periodic")
        with_filters = translation_error(network(replace(config, filter=filter)), u)
        without = translation_error(network(replace(config, filter=Nearest())), u)
        assert 5 * with_filters < without


def translated_axis(u, distance, axis):
    n = u.shape[axis]
    k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
    u_hat = torch.fft.fft(u, dim=axis).movedim(axis, -1) * torch.exp(-2j * torch.pi * k * distance)
    return torch.fft.ifft(u_hat.movedim(-1, axis), dim=axis).real


@pytest.mark.parametrize("filter", [Ideal(), WindowedSinc()], ids=["ideal", "windowed"])
@pytest.mark.parametrize(
    ("boundary", "sign", "activation"), [("even", 1, "leaky_relu"), ("odd", -1, "tanh")]
)
def test_reflecting_networks_are_periodic_on_the_doubled_domain(boundary, sign, activation, filter):
    """Where kernels are symmetric, and for odd fields σ is odd and there are no constants."""
    config = replace(SMALL, boundary=boundary, activation=activation, filter=filter)
    model = network(config)
    for module in model.modules():
        if isinstance(module, Convolution):
            symmetric = module.weight + module.weight.flip(-1)
            module.weight.data = symmetric + symmetric.flip(-2)
    if boundary == "odd":
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("bias", "running_mean")):
                value.data.zero_()
    doubled = network(replace(config, size=(32, 32), boundary="periodic"))
    doubled.load_state_dict(model.state_dict())
    u = torch.randn(1, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u2 = torch.cat([u, sign * u.flip(-1)], dim=-1)
    u2 = torch.cat([u2, sign * u2.flip(-2)], dim=-2)
    torch.testing.assert_close(model(u), doubled(u2)[..., :16, :16], rtol=0, atol=1e-11)


@pytest.mark.parametrize("filter", [Ideal(), WindowedSinc()], ids=["ideal", "windowed"])
@pytest.mark.parametrize("boundary", ["periodic", "even"])
def test_a_constant_stays_constant_up_to_the_edge(boundary, filter):
    model = network(replace(SMALL, boundary=boundary, filter=filter))
    v = model(torch.full((1, 1, 16, 16), 0.7, dtype=torch.float64))
    torch.testing.assert_close(v, v[..., :1, :1].expand_as(v), rtol=0, atol=1e-12)


def test_one_dimension_embedded_in_two():
    config = replace(SMALL, size=(16,))
    line = network(config).train()
    plane = network(replace(config, size=(8, 16))).train()
    weights = line.state_dict()
    for name, value in weights.items():
        if "convolution" in name and name.endswith("weight"):
            wide = torch.zeros(*value.shape[:2], 3, 3, dtype=value.dtype)
            wide[:, :, 1] = value
            weights[name] = wide
    plane.load_state_dict(weights)
    u = torch.randn(2, 1, 16, dtype=torch.float64)
    expected = line(u)[:, :, None].expand(-1, -1, 8, -1)
    torch.testing.assert_close(
        plane(u[:, :, None].expand(-1, -1, 8, -1)), expected, rtol=0, atol=1e-11
    )


class TestResolution:
    """Eq. (changeofbasis): other resolutions are other representations of the same functions."""

    @pytest.mark.parametrize(
        ("layout", "boundary"),
        [("periodic", "periodic"), ("cell-centred", "periodic"), ("cell-centred", "even")],
    )
    @pytest.mark.parametrize("n", [12, 24, 40])
    def test_commutes_with_resampling(self, layout, boundary, n):
        config = replace(SMALL, layout=layout, boundary=boundary)
        model = network(config)
        extension = boundary if layout == "cell-centred" else None
        u = torch.randn(1, 1, 10, 10, dtype=torch.float64)  # below the band of all the grids
        on_own, on_other = (resample(u, (m, m), layout, extension) for m in (16, n))
        expected = resample(model(on_own), (n, n), layout, extension)
        torch.testing.assert_close(model(on_other), expected, rtol=0, atol=1e-12)

    def test_inclusive_grids_keep_their_ends(self):
        config = replace(SMALL, layout="inclusive", boundary="zero")
        model = network(config)
        u = resample(torch.randn(1, 1, 10, 10, dtype=torch.float64), (16, 16), "inclusive")
        corners = model(resample(u, (31, 31), "inclusive"))[..., ::30, ::30]
        torch.testing.assert_close(corners, model(u)[..., ::15, ::15], rtol=0, atol=1e-12)

    def test_output_scales_with_the_input(self):
        model = network(replace(SMALL, out_size=(32, 8)))
        assert model(torch.zeros(1, 1, 16, 16).double()).shape == (1, 1, 32, 8)
        assert model(torch.zeros(1, 1, 24, 12).double()).shape == (1, 1, 48, 6)
        with pytest.raises(ValueError, match="no whole number of points; resample it first"):
            model(torch.zeros(1, 1, 24, 11).double())


@pytest.mark.parametrize("filter", [WindowedSinc(), Nearest()], ids=["windowed", "none"])
def test_gradients(filter):
    config = CNOConfig(
        size=(4, 4), levels=1, width=2, neck_blocks=1, skip_blocks=1, lift_width=2,
        filter=filter, activation="tanh", boundary="odd",
    )  # fmt: skip
    model = network(config).train()
    u = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, u)


@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_float32_is_float64_to_rounding(boundary):
    config = replace(SMALL, size=(64, 64), boundary=boundary)  # where float32 runs FIR filters
    model = network(config)
    u = field(config)
    v = model(u)
    difference = model.float()(u.float()) - v
    assert difference.abs().max() < 2e-6 * v.abs().max()


def test_bfloat16_runs():
    v = network(SMALL).bfloat16()(field(SMALL).bfloat16())
    exact = network(SMALL)(field(SMALL))
    assert (v - exact).norm() < 0.1 * exact.norm()


def test_autocast_and_functional_gradients_agree_with_backward():
    config = replace(SMALL, size=(32, 32))
    model, u = network(config).float(), field(config).float()
    v, pull_back = torch.func.vjp(model, u)
    (functional,) = pull_back(v)
    u.requires_grad_()
    (plain,) = torch.autograd.grad(model(u), u, v.detach())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = model(u)
    (low_precision,) = torch.autograd.grad(w, u, v.detach().to(w.dtype))
    torch.testing.assert_close(functional, plain)
    assert (low_precision - plain).norm() < 0.1 * plain.norm()


PAPER_COUNTS = {  # the reference's totals, and their blocks never called
    "poisson": 748_841 - 2_368,
    "wave": 6_608_633 - 20_928,
    "smooth-transport": 2_756_145 - 9_344,
    "discontinuous-transport": 2_457_185 - 9_344,
    "allen-cahn": 3_542_865 - 9_344,
    "navier-stokes": 3_250_209 - 9_344,
    "darcy": 5_278_841 - 20_928,
    "airfoil": 7_278_185 - 5_280,
}


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("problem", PAPER_COUNTS)
def test_the_paper_s_parameter_counts(problem):
    with torch.device("meta"):
        # Counts do not depend on the grid; a small one makes small matrices.
        names = ("cno", "cno-no-filters", "cno-no-skip-blocks")
        cno, bare, direct = (build_model(name, problem, size=(16, 16)) for name in names)
    assert count(cno) == PAPER_COUNTS[problem]
    assert count(bare) == count(cno)
    assert count(direct) == count(cno) - count(cno.skip)
    assert not any(isinstance(module, Activation) for module in bare.modules())


@pytest.mark.usefixtures("as_outside_tests")
def test_configs_survive_json():
    config = replace(SMALL, filter=WindowedSinc(8, 1.0), out_size=(32, 32))
    assert CNOConfig(**json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.usefixtures("as_outside_tests")
class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"size": (50, 50)},
                r"size \(50, 50\) is not divisible by 2\*\*levels = 8; "
                r"use \(48, 48\) or \(56, 56\) or levels=1\.",
            ),
            ({"size": (64, 0)}, "not divisible"),
            ({"size": (64, 64), "out_size": (60, 64)}, r"out_size \(60, 64\) is not divisible"),
            ({"levels": 9}, r"2\*\*levels = 512; use \(512, 512\) or levels="),
            ({"size": (64,) * 4}, "has 4 axes; give 1, 2 or 3"),
            ({"out_size": (64,)}, "differ in dimension"),
            (
                {"activation_upsampling": 0.5},
                r"activation_upsampling is 0\.5; use 1 or more",
            ),
            ({"levels": 0}, "levels is 0; use 1 or more"),
            ({"activation": "leaky-relu"}, "did you mean 'leaky_relu'"),
            ({"norm": "layer"}, "unknown norm 'layer'; choose from batch, none"),
            ({"boundary": "reflect"}, f"choose from {', '.join(sorted(BOUNDARIES))}"),
            ({"layout": "staggered"}, "unknown layout"),
        ],
    )
    def test_of_configs(self, fields, message):
        with pytest.raises(ValueError, match=message):
            CNOConfig(**fields)

    def test_of_what_the_authors_have_otherwise(self):
        message = r"classic fixes boundary, kernel_size as .*; leave that out, or use CNOConfig"
        with pytest.raises(ValueError, match=message):
            CNOConfig.classic(width=8, kernel_size=5, boundary="periodic")

    def test_of_networks(self):
        with pytest.raises(ValueError, match="kernel_size 2 has no middle"):
            CNO(replace(SMALL, kernel_size=2))
        with pytest.raises(ValueError, match=r"or filter=WindowedSinc\(\)"):
            CNO(replace(SMALL, filter=Ideal(), boundary="zero"))

    def test_of_fields(self):
        model = CNO(SMALL)
        with pytest.raises(ValueError, match=r"3 axes; give \(batch, channel, y, x\)"):
            model(torch.zeros(1, 16, 16))
        with pytest.raises(
            ValueError, match="has 3 channels, but the model takes 1; build it with in_channels=3"
        ):
            model(torch.zeros(1, 3, 16, 16))
        with pytest.raises(ValueError, match=r"dtype torch\.int64; give .* u\.float\(\)"):
            model(torch.zeros(1, 1, 16, 16, dtype=torch.int64))


class TestChannel:
    """Walls along y, periodic along x."""

    config = replace(
        SMALL, size=(16, 32), boundary=("zero", "periodic"), layout=("inclusive", "periodic")
    )

    def test_it_commutes_with_translations_along_the_periodic_axis_alone(self):
        model, u = network(self.config), torch.randn(2, 1, 16, 32).double()
        step = 2**self.config.levels
        moved = model(u.roll(step, -1))
        torch.testing.assert_close(moved, model(u).roll(step, -1))
        across = model(u.roll(step, -2)) - model(u).roll(step, -2)
        assert across.abs().max() > 1e-3

    def test_its_configuration_is_a_plain_tree(self):
        tree = json.loads(json.dumps(to_plain(self.config)))
        assert from_plain(CNOConfig, tree, "model") == self.config
        assert replace(SMALL, boundary=("zero", "zero")) == replace(SMALL, boundary="zero")
        with pytest.raises(ValueError, match="did you mean 'periodic'"):
            replace(SMALL, boundary=("zero", "perodic"))

    def test_on_another_grid_each_axis_is_resampled_by_its_own_layout(self):
        model, u = network(self.config), torch.randn(1, 1, 16, 32).double()
        fine = resample(u, (31, 64), self.config.layout)
        v = model(resample(fine, self.config.size, self.config.layout))
        expected = resample(v, (31, 64), self.config.layout)
        torch.testing.assert_close(model(fine), expected)


@pytest.mark.parametrize("size", [(16,), (16, 8), (8, 8, 8)])
@pytest.mark.parametrize("layout", ["periodic", "inclusive", "cell-centred"])
def test_fourier_features_are_the_waves_of_a_lattice(size, layout):
    waves = fourier_features(size, layout, 1)
    assert len(waves) == 3 ** len(size) - 1
    if layout == "periodic":  # orthogonal, and of one size
        flat = waves.flatten(1)
        gram = flat @ flat.T / flat.shape[1]
        torch.testing.assert_close(gram, 0.5 * torch.eye(len(waves), dtype=torch.float64))


def test_fourier_features_tell_places_apart():
    """Without them a periodic CNO commutes with steps of its coarsest grid; with them it does not.

    On a finer grid the network is still the same operator, and weights have the names of before.
    """
    periodic = replace(SMALL, layout="periodic")
    plain, told = network(periodic), network(replace(periodic, fourier_features=1))
    assert plain.state_dict().keys() == told.state_dict().keys()
    u = resample(torch.randn(1, 1, 15, 15, dtype=torch.float64), (16, 16), "periodic")

    def departure(model):
        moved = model(u.roll(4, -1)) - model(u).roll(4, -1)
        return float((moved.norm() / model(u).norm()).detach())

    assert departure(plain) < 1e-12
    assert departure(told) > 1e-3
    finer = told(resample(u, (32, 32), "periodic"))
    torch.testing.assert_close(finer, resample(told(u), (32, 32), "periodic"))
