"""What every network refuses, and how; and the smallest input that it takes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from torchcno.models import ABLATIONS, MODELS

# The least values: what is one less would be built into nonsense, or not at all.
# fmt: off
LEAST: dict[str, dict[str, float]] = {
    "fno":                  dict(layers=1, width=1, modes=1, hidden_width=1, pad=0),
    "unet":                 dict(channels=1),
    "resnet":               dict(channels=1, residual_blocks=0),
    "deeponet":             dict(bases=1, trunk_layers=1, trunk_width=1, branch_levels=1,
                                 branch_width=1, residual_blocks=0),
    "ffnn":                 dict(layers=1, width=1),
    "galerkin-transformer": dict(blocks=1, heads=1, width=3, decoder_layers=1, decoder_width=1,
                                 modes=1, feed_forward=1, coarsening=1.0),
    "cno":                  dict(levels=1, width=2, neck_blocks=0, skip_blocks=0, kernel_size=1,
                                 lift_width=1),
    "time-cno":             dict(levels=1, width=2, neck_blocks=0, skip_blocks=0, kernel_size=1,
                                 lift_width=1),
}
# fmt: on


def tiny(name: str) -> Any:
    """The smallest network of its kind, as far as it is known."""
    base, _ = ABLATIONS.get(name, (name, {}))
    return MODELS[name].Config(size=(16, 16), **LEAST.get(base, {}))


@pytest.mark.parametrize("name", LEAST)
def test_the_least_of_everything_runs_and_one_less_is_refused(name: str) -> None:
    least = {"in_channels": 1, "out_channels": 1} | LEAST[name]
    config = tiny(name)
    u = torch.randn(2, 1, 16, 16)
    assert MODELS[name](config).eval()(u).isfinite().all()
    for field, value in least.items():
        message = f"{field} is {value - 1}; use {value:g} or more"
        with pytest.raises(ValueError, match=message):
            replace(config, **{field: value - 1})


@pytest.mark.usefixtures("as_outside_tests")
@pytest.mark.parametrize("name", MODELS)
def test_a_size_is_a_number_an_axis(name: str) -> None:
    with pytest.raises(ValueError, match=r"size 16 .*; give one per axis, as in \(16, 16\)"):
        replace(tiny(name), size=16)


@pytest.mark.parametrize("name", MODELS)
def test_of_no_field_no_field_is_made(name: str) -> None:
    model = MODELS[name](replace(tiny(name), out_channels=2)).eval()
    v = model(torch.zeros(0, 1, 16, 16))
    assert v.shape == (0, 2, 16, 16)
    v.sum().backward()
    assert not any(p.grad is not None and p.grad.any() for p in model.parameters())


@pytest.mark.usefixtures("as_outside_tests")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_fields_are_real_numbers(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"dtype {dtype}; give real floating-point fields"):
        MODELS[name](tiny(name))(torch.zeros(1, 1, 16, 16, dtype=dtype))
