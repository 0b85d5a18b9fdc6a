"""A network for inference is the network in evaluation mode."""

import copy

import pytest
import torch
from torch import nn

from torchcno import for_inference, load_pretrained
from torchcno.models import MODELS
from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import Ideal, Nearest, WindowedSinc


def network(**fields) -> CNO:
    torch.manual_seed(0)
    size = fields.pop("size", (16, 16))
    config = CNOConfig(size=size, levels=1, width=4, neck_blocks=1, skip_blocks=1, **fields)
    return as_learnt(CNO(config))


def as_learnt(model: nn.Module) -> nn.Module:
    """Parameters and statistics that are not those of the beginning."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("running_var"):
            nn.init.uniform_(value, 0.5, 2)
        elif name.endswith(("running_mean", "bias", "norm.weight")):
            nn.init.normal_(value)
    return model.eval()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"boundary": "periodic"},
        {"boundary": "odd", "filter": Ideal()},
        {"filter": Nearest()},
        {"norm": "none", "activation": "gelu"},
        {"size": (24,)},
        {"size": (8, 8, 8)},
    ],
    ids=str,
)
def test_it_computes_the_same(fields):
    model = network(**fields)
    u = torch.randn(3, 1, *model.config.size)
    with torch.no_grad():
        assert distance(for_inference(model)(u), model(u)) < 2e-6
        model.double()
        assert distance(for_inference(model)(u.double()), model(u.double())) < 1e-13


@pytest.mark.parametrize("name", ["unet", "resnet"])
def test_other_networks_are_folded_too(name):
    torch.manual_seed(0)
    model = as_learnt(MODELS[name](MODELS[name].Config(size=(16, 16), channels=4))).double()
    prepared = for_inference(model)
    u = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    assert distance(prepared(u), model(u)) < 1e-12
    assert not any(isinstance(module, nn.BatchNorm2d) for module in prepared.modules())


def test_it_is_a_copy_that_does_not_learn():
    model = network()
    before = copy.deepcopy(model.state_dict())
    prepared = for_inference(model)
    assert all(map(torch.equal, before.values(), model.state_dict().values()))
    assert not any(weight.requires_grad for weight in prepared.parameters())
    assert prepared.config == model.config


def test_fields_may_change_their_number_and_their_grid():
    model = network(filter=WindowedSinc())
    prepared = for_inference(model)
    for shape in ((1, 1, 16, 16), (5, 1, 16, 16), (2, 1, 24, 24), (0, 1, 16, 16)):
        u = torch.randn(shape)
        torch.testing.assert_close(prepared(u), model(u), rtol=1e-4, atol=1e-5)


def test_a_trained_operator_predicts_the_same():
    operator = load_pretrained("poisson")
    u = torch.randn(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    assert distance(for_inference(operator).apply_to(u), operator.apply_to(u)) < 2e-6
