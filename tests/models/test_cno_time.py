"""The time-dependent CNO: what it commutes with, whatever its weights."""

from dataclasses import replace

import pytest
import torch

from torchcno import for_inference
from torchcno.models.cno_time import FOUNDATION, TimeCNO, TimeCNOConfig
from torchcno.models.fine_tuning import (
    OTHER_FIELDS,
    SAME_FIELDS,
    group_parameters,
    prepare_fine_tuning,
)
from torchcno.runs.plain import from_plain, to_plain

SMALL = TimeCNOConfig(
    in_channels=2, out_channels=2, size=(8, 8), levels=1, width=4, neck_blocks=1, skip_blocks=1,
    lift_width=4, conditioning=("time",), time_channel=True,
)  # fmt: skip


def network(config=SMALL, shaken=True):
    torch.manual_seed(0)
    model = TimeCNO(config)
    for name, parameter in model.named_parameters():
        if shaken and name.startswith("films."):
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def fields(batch=3, channels=2):
    return torch.randn(batch, channels, 8, 8, generator=torch.Generator().manual_seed(1))


TIMES = torch.tensor([0.1, 0.5, 0.9])


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


class TestCounts:
    """The numbers that the authors print, and those of their constructed networks."""

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, 109_253_872),  # CNO-FM
            ({"width": 54, "neck_blocks": 6, "skip_blocks": 6}, 39_083_168),
            (
                {"width": 54, "neck_blocks": 6, "skip_blocks": 6, "in_channels": 2,
                 "out_channels": 2},
                39_080_862,
            ),
            ({"width": 54, "neck_blocks": 6, "skip_blocks": 6, "norm": "layer"}, 68_446_316),
            ({"width": 54, "neck_blocks": 6, "skip_blocks": 6, "activation": "pooled"}, 39_074_724),
            ({"width": 32}, 18_279_572),
        ],
    )  # fmt: skip
    def test_are_theirs(self, fields, expected):
        with torch.device("meta"):
            assert count(TimeCNO(replace(FOUNDATION, **fields))) == expected

    @pytest.mark.parametrize(
        ("channels", "expected"), [((4, 4), 109_255_058), ((3, 3), 109_254_580)]
    )
    def test_of_fine_tuning(self, channels, expected):
        with torch.device("meta"):
            prepared = prepare_fine_tuning(TimeCNO(FOUNDATION), *channels)
        assert count(prepared) == expected
        if channels == (4, 4):
            groups = {
                group["name"]: sum(p.numel() for p in group["params"])
                for group in group_parameters(prepared)
            }
            assert groups == {"base": 102_539_483, "ends": 77_519, "norms": 6_638_056}


def test_at_the_start_the_time_does_not_matter():
    model = network(replace(SMALL, time_channel=False), shaken=False).eval()
    assert torch.equal(model(fields(), 0.1), model(fields(), 0.9))
    shaken = network(replace(SMALL, time_channel=False)).eval()
    assert not torch.allclose(shaken(fields(), 0.1), shaken(fields(), 0.9))


@pytest.mark.parametrize("norm", ["instance", "batch", "layer", "none"])
@pytest.mark.parametrize("activation", ["filtered", "bicubic", "pooled"])
def test_samples_with_different_times_are_independent(norm, activation):
    model, u = network(replace(SMALL, norm=norm, activation=activation)).eval(), fields()
    together = model(u, TIMES)
    alone = torch.cat([model(u[i : i + 1], TIMES[i]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_gradients():
    model = network(replace(SMALL, size=(4, 4), width=2, lift_width=2)).double()
    u = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    time = torch.rand(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model, (u, time))


def test_everything_that_learns_has_a_gradient():
    for config in (SMALL, replace(SMALL, invariant_blocks=False)):
        model = network(config)
        model(fields(), TIMES).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name


@pytest.mark.parametrize("norm", ["instance", "batch", "layer", "none"])
def test_for_inference_gives_the_same_numbers(norm):
    model = network(replace(SMALL, norm=norm)).eval()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith(("bias", "running_mean")):
            torch.nn.init.normal_(value)
    prepared = for_inference(model)
    torch.testing.assert_close(prepared(fields(), TIMES), model(fields(), TIMES), rtol=0, atol=1e-4)


def test_a_configuration_survives_a_file():
    config = replace(SMALL, pretrained_channels=(5, 4))
    assert from_plain(TimeCNOConfig, to_plain(config), "model") == config


def test_other_grids_and_calls_without_time_are_refused():
    with pytest.raises(ValueError, match="accepts only"):
        network()(torch.zeros(1, 2, 16, 16), 0.5)
    with pytest.raises(ValueError, match="depends on time"):
        network()(fields())


class TestFineTuning:
    def test_a_network_that_begins_as_the_identity_is_the_one_before(self):
        model = network().eval()
        prepared = prepare_fine_tuning(model, start="identity").eval()
        torch.testing.assert_close(prepared(fields(), TIMES), model(fields(), TIMES))

    def test_all_weights_are_taken_over_but_a_new_projection(self):
        model = network()
        for channels, new in ((None, ("before", "after")), (3, ("before", "project"))):
            prepared = prepare_fine_tuning(model, 1, channels)
            for name, value in prepared.state_dict().items():
                if not name.startswith(new):
                    assert torch.equal(value, model.state_dict()[name]), name
            assert prepared(fields(channels=1), TIMES).shape == (3, channels or 2, 8, 8)

    def test_the_loss_falls_at_the_published_rates(self):
        model = prepare_fine_tuning(network(), 1, 1)
        groups = group_parameters(model, OTHER_FIELDS)
        assert [group["lr"] for group in groups] == [1e-4, 7.5e-4, 5e-4]
        # Smooth fields that decay: what a time-dependent network is for.
        x = torch.arange(8) / 8 * 2 * torch.pi
        u = (torch.randn(3, 1, 1, 1, generator=torch.Generator().manual_seed(2))
             * torch.sin(x)[:, None] * torch.cos(x))  # fmt: skip
        v = u * torch.exp(-TIMES)[:, None, None, None]
        optimizer, losses = torch.optim.AdamW(groups, weight_decay=1e-6), []
        for _ in range(60):
            optimizer.zero_grad()
            loss = (model(u, TIMES) - v).abs().mean() / v.abs().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]

    def test_groups_have_every_parameter_once(self):
        model = prepare_fine_tuning(network())
        grouped = [p for group in group_parameters(model, SAME_FIELDS) for p in group["params"]]
        assert {id(p) for p in grouped} == {id(p) for p in model.parameters()}
        assert len(grouped) == len(list(model.parameters()))

    def test_what_is_prepared_is_not_prepared_again(self):
        with pytest.raises(ValueError, match="prepared before"):
            prepare_fine_tuning(prepare_fine_tuning(network()))
        with pytest.raises(ValueError, match="unknown start 'zero'"):
            prepare_fine_tuning(network(), start="zero")
