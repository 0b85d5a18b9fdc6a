"""Networks that depend on scalars beside their input field."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from torchcno import for_inference
from torchcno.models import ABLATIONS, MODELS, count_parameters
from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import Ideal, aside, conditioning_of, is_conditioned, recomputing
from torchcno.operators.conditioning import HIDDEN, Modulation
from torchcno.runs.plain import from_plain, to_plain
from torchcno.training.step import graphed

# fmt: off
SMALL = {
    "cno":                  dict(levels=1, width=2, neck_blocks=0, skip_blocks=0, lift_width=2),
    "time-cno":             dict(levels=1, width=4, neck_blocks=0, skip_blocks=0, lift_width=4),
    "fno":                  dict(layers=1, width=1, modes=2, hidden_width=4),
    "unet":                 dict(channels=1),
    "resnet":               dict(channels=4, residual_blocks=1),
    "deeponet":             dict(bases=2, trunk_layers=2, trunk_width=4, branch_levels=1,
                                 branch_width=2, residual_blocks=1),
    "ffnn":                 dict(layers=3, width=4),
    "galerkin-transformer": dict(blocks=1, heads=1, width=3, decoder_layers=1, decoder_width=2,
                                 modes=2, feed_forward=2),
}
# fmt: on
MODULATED = ("cno", "fno", "unet")  # the others take constant channels


def small(name, conditioning=("time",)):
    base, _ = ABLATIONS.get(name, (name, {}))
    fields = SMALL.get(base, {})
    return MODELS[name].Config(size=(16, 16), conditioning=conditioning, **fields)


def build(name, conditioning=("time",), **fields):
    torch.manual_seed(0)
    return MODELS[name](replace(small(name, conditioning), **fields)).eval()


def shaken(network):
    """With random scales, shifts, statistics and biases: what is zero or one at the start acts."""
    generator = torch.Generator().manual_seed(3)
    for name, value in [*network.named_parameters(), *network.named_buffers()]:
        if name.endswith(("bias", "running_mean", "scales_and_shifts.weight")) or "films" in name:
            value.data.normal_(std=0.1, generator=generator)
        if name.endswith("running_var"):
            value.data.uniform_(0.5, 1.5, generator=generator)
    return network


def field(batch=3):
    return torch.randn(batch, 1, 16, 16, generator=torch.Generator().manual_seed(1))


TIMES = torch.tensor([0.1, 0.5, 0.9])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODULATED)
def test_without_scales_a_network_is_the_one_without_conditions(name, training):
    plain, conditioned = build(name, ()), build(name)
    added = conditioned.state_dict().keys() - plain.state_dict().keys()
    assert {key.split(".")[0] for key in added} == {"conditioner"}
    for key, value in plain.state_dict().items():
        assert torch.equal(conditioned.state_dict()[key], value)
    results = [plain.train(training)(field()), conditioned.train(training)(field(), TIMES)]
    assert torch.equal(*results)


@pytest.mark.parametrize("name", MODELS)
def test_samples_with_different_times_are_independent(name):
    network, u = shaken(build(name)), field()
    together = network(u, TIMES)
    alone = [network(u[i : i + 1], TIMES[i]) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_network_depends_on_each_of_its_scalars(name):
    network = shaken(build(name, ("time", "viscosity")))
    assert conditioning_of(network) == ("time", "viscosity")
    assert is_conditioned(network)
    conditions = torch.rand(3, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(field(), conditions).square().sum(), conditions)
    assert gradient.all()


@pytest.mark.parametrize("name", MODELS)
def test_a_call_without_scalars_or_with_too_many_is_refused(name):
    with pytest.raises(ValueError, match=r"depends on time; call network\(u, conditions\)"):
        build(name)(field())
    with pytest.raises(ValueError, match="leave them out"):
        build(name, ())(field(), TIMES)
    with pytest.raises(ValueError, match=r"give \(3, 1\)"):
        build(name)(field(), torch.rand(3, 2))


@pytest.mark.parametrize("name", MODELS)
def test_a_configuration_survives_a_file(name):
    config = small(name, ("time", "viscosity"))
    assert from_plain(type(config), to_plain(config), "model") == config
    before = {k: v for k, v in to_plain(config).items() if k != "conditioning"}  # of older files
    assert from_plain(type(config), before, "model").conditioning == ()


@pytest.mark.parametrize("name", MODULATED)
def test_counts_are_those_of_two_layers_and_a_scale_and_shift_per_channel(name):
    plain, conditioned = (count_parameters(build(name, c)).entries for c in ((), ("a", "b")))
    channels = {
        "cno": [1, 2, 2, 2, 1],  # expansion, encoder, expansion, invariant, decoder
        "fno": [1],
        "unet": [2 * c for c in (1, 2, 4, 8, 16, 8, 4, 2, 1)],
    }[name]
    layers = HIDDEN * (2 + 1) + HIDDEN * (HIDDEN + 1)
    assert conditioned - plain == layers + HIDDEN * 2 * sum(channels)


@pytest.mark.parametrize("name", MODULATED)
def test_for_inference_gives_the_same_numbers(name):
    fields = {"neck_blocks": 1, "skip_blocks": 1, "levels": 2} if name == "cno" else {}
    network = shaken(build(name, **fields))
    prepared = for_inference(network)
    torch.testing.assert_close(prepared(field(), TIMES), network(field(), TIMES), atol=1e-5, rtol=0)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in prepared.modules())


@pytest.mark.parametrize(
    "fields", [{"levels": 3, "skip_blocks": 2}, {"levels": 1, "neck_blocks": 3, "norm": "none"}]
)
def test_every_norm_of_a_cno_has_its_scale_and_shift(fields):
    config = CNOConfig(size=(16,), width=4, lift_width=4, conditioning=("time",), **fields)
    network, seen = shaken(CNO(config)), []
    network.conditioner.register_forward_hook(lambda _, __, out: seen.extend(out))
    v = network(torch.randn(2, 1, 16), 0.5)
    gradients = torch.autograd.grad(v.square().sum(), [m.shift for m in seen], allow_unused=True)
    assert all(gradient is not None for gradient in gradients)
    assert network(torch.randn(2, 1, 24), 0.5).shape == (2, 1, 24)  # and on other grids


def test_translations_commute_with_a_network_that_knows_the_time():
    config = CNOConfig(
        size=(12,), levels=1, width=4, neck_blocks=1, skip_blocks=1, lift_width=4,
        boundary="periodic", filter=Ideal(), activation="polynomial", conditioning=("time",),
    )  # fmt: skip
    network, k = shaken(CNO(config).double().eval()), torch.fft.fftfreq(12, 1 / 12).double()

    def translated(v, steps):
        return torch.fft.ifft(torch.fft.fft(v) * torch.exp(-2j * torch.pi * k * steps / 12)).real

    u = torch.randn(3, 1, 12, dtype=torch.float64)
    u = torch.fft.ifft(torch.fft.fft(u) * (k.abs() < 6)).real  # below the Nyquist mode
    v = network(u, TIMES.double())
    moved = network(translated(u, 1 / 3), TIMES.double())
    torch.testing.assert_close(moved, translated(v, 1 / 3), rtol=0, atol=1e-11)


def gradients_of(network, u, times):
    loss = network(u, times).square().mean()
    return torch.autograd.grad(loss, list(network.parameters()))


def test_fields_computed_again_give_the_same_gradients():
    network = shaken(build("cno", neck_blocks=1, skip_blocks=1)).train()
    kept = gradients_of(network, field(), TIMES)
    with recomputing():
        again = gradients_of(network, field(), TIMES)
    for one, other in zip(kept, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", [*MODULATED, "time-cno"])
def test_a_captured_step_reads_new_times(name, half):
    network = shaken(build(name)).cuda().train()
    u, times = field().cuda(), TIMES.cuda()

    def work():
        with torch.autocast("cuda", torch.float16, enabled=half), aside(network):
            network.zero_grad(set_to_none=True)
            network(u, times).float().square().mean().backward()
        return [p.grad.clone() for p in network.parameters() if p.grad is not None]

    captured = graphed(work, lambda: [*network.parameters(), *network.buffers()])
    for now in (TIMES, TIMES.flip(0)):
        times.copy_(now)
        replayed = [gradient.clone() for gradient in captured()]
        for one, other in zip(replayed, work(), strict=True):
            bound = (5e-2 if half else 1e-3) * float(other.norm()) + 1e-6
            assert float((one - other).norm()) <= bound


@pytest.mark.gpu
def test_a_modulated_block_says_why_it_is_not_fused():
    block = build("cno").cuda().encoder[0]
    v = torch.zeros(2, 1, 16, 16, device="cuda")
    modulation = Modulation(*torch.zeros(2, 2, 2, device="cuda"))
    assert "scale and a shift of its own" in block.why_not_fused(v, modulation)
