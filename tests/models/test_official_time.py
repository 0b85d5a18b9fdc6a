"""The authors' time-dependent networks, number by number."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcno import from_official_time_dependent
from torchcno.data.trajectories import pair_times
from torchcno.metrics import filled, relative_l1
from torchcno.models.cno_time import TimeCNOConfig
from torchcno.training.losses import relative_l1_loss

FIXTURES = Path(__file__).parents[1] / "fixtures"
# Beside the size, what their weights do not tell.
# fmt: off
NETWORKS = {
    "td_cin_cno_lrelu": dict(size=32),
    "td_cbn_torch_att": dict(size=32, heads=2),
    "td_cln_cno_lrelu": dict(size=16),
    "td_bn_lrelu":      dict(size=32, out_size=16, invariant_blocks=False, has_time=False),
    "td_finetune":      dict(size=16),
}
# fmt: on


def read(name: str) -> dict:
    file = np.load(FIXTURES / f"{name}.npz")
    return {
        key: unpack(file, key) if f"{key}_layout" in file.files else torch.from_numpy(file[key])
        for key in file.files
        if file[key].dtype.kind != "U"
    }


def unpack(file, group: str) -> dict[str, Tensor]:
    """Tensors that lie one after the other."""
    layout = json.loads(str(file[f"{group}_layout"]))
    shapes = [tuple(shape) for _, shape in layout]
    parts = torch.from_numpy(file[group]).split([int(np.prod(shape)) for shape in shapes])
    return {
        name: part.view(shape) for (name, _), shape, part in zip(layout, shapes, parts, strict=True)
    }


@pytest.fixture(params=NETWORKS)
def name(request):
    return request.param


@pytest.fixture
def data(name):
    return read(name)


def load(data, name):
    return from_official_time_dependent(data["state_dict"], **NETWORKS[name])


def times(data, model, dtype=torch.float32):
    return (data["time"].to(dtype).requires_grad_(),) if model.config.conditioning else ()


def assert_close(actual, expected, bound):
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected.to(actual), rtol=0, atol=bound * scale)


def test_configurations_are_read_off_the_weights():
    timed = partial(TimeCNOConfig, conditioning=("time",))
    small = dict(levels=1, width=8, neck_blocks=1, skip_blocks=1, size=(16, 16), lift_width=16)
    configs = {name: load(read(name), name).config for name in NETWORKS}
    assert configs["td_cin_cno_lrelu"] == timed(
        in_channels=2,
        out_channels=2,
        size=(32, 32),
        levels=2,
        width=8,
        neck_blocks=3,
        skip_blocks=2,
    )
    assert configs["td_cln_cno_lrelu"] == timed(
        in_channels=2, out_channels=2, norm="layer", **small
    )
    assert configs["td_finetune"] == timed(
        in_channels=4, out_channels=4, pretrained_channels=(5, 4), **small
    )
    bicubic = configs["td_cbn_torch_att"]
    assert (bicubic.norm, bicubic.activation) == ("batch", "bicubic")
    assert (bicubic.attention.patch, bicubic.attention.head_width) == (2, 32)
    pooled = configs["td_bn_lrelu"]
    assert (pooled.norm, pooled.activation, pooled.conditioning) == ("batch", "pooled", ())


def test_parameter_counts(data, name):
    assert sum(p.numel() for p in load(data, name).parameters()) == data["n_parameters"]


def test_evaluation(data, name):
    model = load(data, name).eval()
    u, time = data["input"].requires_grad_(), times(data, model)
    v = model(u, *time)
    assert_close(v, data["output_eval_f64"], 1e-5)
    gradients = torch.autograd.grad(v.square().sum(), (u, *time))
    assert_close(gradients[0][..., ::3, ::3], data["grad_input_eval_f64"], 1e-5)
    if time:
        assert_close(gradients[1], data["grad_time_eval"], 1e-5)


def test_evaluation_in_double(data, name, in_double_with_rounded_taps):
    model = in_double_with_rounded_taps(load(data, name)).eval()
    u = data["input"].double().requires_grad_()
    v = model(u, *times(data, model, torch.float64))
    assert_close(v, data["output_eval_f64"], 1e-13)
    (gradient,) = torch.autograd.grad(v.square().sum(), u)
    assert_close(gradient[..., ::3, ::3], data["grad_input_eval_f64"], 1e-13)


def test_training_and_its_running_statistics(data, name):
    model = load(data, name)
    assert_close(model(data["input"], *times(data, model)), data["output_train"], 1e-5)
    # Their names of what has changed lead to ours.
    trained = dict(data, state_dict={**data["state_dict"], **data["after_train"]})
    expected = load(trained, name)
    for (path, buffer), (_, after) in zip(
        model.named_buffers(), expected.named_buffers(), strict=True
    ):
        if "running" in path or "tracked" in path:
            torch.testing.assert_close(buffer, after, rtol=1e-5, atol=1e-6)
    assert bool(data["after_train"]) == (model.config.norm == "batch")


def test_the_time_may_be_added_by_the_network():
    data = read("td_cbn_torch_att")
    model = from_official_time_dependent(data["state_dict"], 32, heads=2, time_channel=True).eval()
    assert model.config.in_channels == 2
    v = model(data["input"][:, :2], data["time"])  # their third channel is the time
    assert_close(v, data["output_eval_f64"], 1e-5)


def test_a_checkpoint_and_arrays_do_as_well():
    data = read("td_cln_cno_lrelu")
    arrays = {name: value.numpy() for name, value in data["state_dict"].items()}
    model = from_official_time_dependent({"state_dict": arrays, "epoch": 3}, 16).eval()
    assert_close(model(data["input"], data["time"]), data["output_eval_f64"], 1e-5)


class TestBadWeights:
    good = property(lambda self: read("td_cin_cno_lrelu")["state_dict"])

    def test_a_prefix(self):
        with pytest.raises(ValueError, match="without a prefix"):
            from_official_time_dependent({f"module.{k}": v for k, v in self.good.items()}, 32)

    def test_another_networks_weight(self):
        with pytest.raises(ValueError, match="no weight of the authors' CNO"):
            from_official_time_dependent({**self.good, "head.weight": torch.ones(1)}, 32)

    def test_other_filters(self):
        other = {k: v.flip(0) * 2 if "filter" in k else v for k, v in self.good.items()}
        with pytest.raises(ValueError, match="only the published filters"):
            from_official_time_dependent(other, 32)

    def test_a_grid_that_cannot_be_halved(self):
        with pytest.raises(ValueError, match=r"size \(30, 30\) is not divisible by"):
            from_official_time_dependent(self.good, 30)

    def test_layer_norms_and_positions_of_another_grid(self):
        with pytest.raises(ValueError, match=r"give size=\(16, 16\)"):
            from_official_time_dependent(read("td_cln_cno_lrelu")["state_dict"], 32)
        with pytest.raises(ValueError, match="16 patches of 2² points"):
            from_official_time_dependent(read("td_cbn_torch_att")["state_dict"], 64, heads=2)

    def test_heads_that_do_not_share_evenly(self):
        with pytest.raises(ValueError, match="give the number of heads"):
            from_official_time_dependent(read("td_cbn_torch_att")["state_dict"], 32, heads=5)

    def test_weights_without_time_may_be_those_of_the_plain_network(self):
        timeless = read("td_bn_lrelu")["state_dict"]
        with pytest.raises(ValueError, match=r"are for torchcno\.from_official"):
            from_official_time_dependent(timeless, 32)
        with pytest.raises(ValueError, match="leave has_time=False out"):
            from_official_time_dependent(self.good, 32, has_time=False)


class TestProtocol:
    """How they choose pairs of times, and what they make small."""

    data = property(lambda self: read("td_protocol"))

    def pairs(self, name):
        return [tuple(pair) for pair in self.data[f"pairs.{name}"].tolist()]

    def test_pairs_of_times(self):
        def every_second(n, leads=None):
            return sorted(map(tuple, (2 * pair_times(n, leads)).tolist()))

        assert every_second(8) == self.pairs("all_K7_dt2_no_zero")
        assert every_second(8, range(8)) == self.pairs("all_K7_dt2_with_zero")
        assert every_second(8, 1) == self.pairs("one_K7_dt2")
        assert every_second(11, range(11)) == self.pairs("pretrain_all_K10_dt2")
        from_first = [pair for pair in every_second(8, range(8)) if pair[0] == 0]
        assert from_first == self.pairs("one2all_K7_dt2")

    def test_losses(self):
        data = {key.removeprefix("loss."): value for key, value in self.data.items()}
        p, v = data["prediction"], data["target"]
        torch.testing.assert_close(relative_l1_loss(p, v), data["train_plain"])
        groups = data["separate_dim"].tolist()
        counts = data["mask"].bool()[:, :, None, None].expand_as(v)
        masked = [filled(fields, counts) for fields in (p, v)]

        def of_groups(error, *pair):
            split = [fields.split(groups, dim=1) for fields in pair]
            return torch.stack([error(*parts) for parts in zip(*split, strict=True)])

        torch.testing.assert_close(of_groups(relative_l1_loss, p, v).mean(), data["train_separate"])
        torch.testing.assert_close(
            of_groups(relative_l1_loss, *masked).sum(), data["train_masked_separate"]
        )
        percent = {
            "plain": 100 * relative_l1(p, v),
            "masked": 100 * relative_l1(*masked),
            "separate_masked": 100 * of_groups(relative_l1, *masked),
        }
        for name, errors in percent.items():
            torch.testing.assert_close(errors, data[f"validation_percent_{name}"])


@pytest.mark.usefixtures("as_outside_tests")  # as a reader runs it
def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """On a small pretrained network: that of the fine-tuned one, without the layers around it."""
    monkeypatch.chdir(tmp_path)
    weights = {
        name.replace("lift.lift.", "lift.").replace("project.project.", "project."): value
        for name, value in read("td_finetune")["state_dict"].items()
        if "linear" not in name
    }
    torch.save({"state_dict": weights, "epoch": 3}, "cno-fm.ckpt")
    page = Path(__file__).parents[2] / "docs" / "time-dependent-cno.md"
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code.replace("size = 128", "size = 16"), page.name, "exec"), names)
    assert names["tuned"].config.pretrained_channels == (5, 4)
    assert capsys.readouterr().out == "109253872\n"
