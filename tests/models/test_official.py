"""The authors' network, number by number."""

from pathlib import Path

import numpy as np
import pytest
import torch

from torchcno.models.cno import CNO, CNOConfig
from torchcno.models.official import from_official

FIXTURES = Path(__file__).parents[1] / "fixtures"
UNUSED = {"model_a": 608, "model_b": 2368}  # parameters of the block that is never called
TOTAL = {"model_a": 31_081, "model_b": 330_523}


@pytest.fixture(params=["model_a", "model_b"])
def name(request):
    return request.param


@pytest.fixture
def data(name):
    file = np.load(FIXTURES / f"{name}.npz")
    return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}


@pytest.fixture
def model(data):
    return from_official(weights(data), 32)


def weights(data):
    prefix = "state_dict."
    return {key.removeprefix(prefix): data[key] for key in data if key.startswith(prefix)}


def assert_close(actual, expected, bound):
    torch.testing.assert_close(actual, expected, rtol=0, atol=bound * expected.abs().max().item())


def test_configuration_is_read_off_the_weights(data, model):
    config = {key.removeprefix("config."): data[key].item() for key in data if "config." in key}
    assert model.config == CNOConfig.classic(
        in_channels=config["in_dim"],
        out_channels=config["out_dim"],
        size=(32, 32),
        levels=config["N_layers"],
        width=config["channel_multiplier"],
        neck_blocks=config["N_res_neck"],
        skip_blocks=config["N_res"],
    )


def test_parameter_count_less_the_unused_block(name, model):
    assert sum(p.numel() for p in model.parameters()) == TOTAL[name] - UNUSED[name]


def test_evaluation(data, model):
    model.eval()
    u = data["input"].requires_grad_()
    v = model(u)
    assert_close(v, data["output_eval"], 1e-5)
    (grad,) = torch.autograd.grad(v.square().sum(), u)
    assert_close(grad, data["grad_input_eval"], 1e-5)


def test_evaluation_in_double(data, model, in_double_with_rounded_taps):
    in_double_with_rounded_taps(model).eval()
    u = data["input"].double().requires_grad_()
    v = model(u)
    assert_close(v, data["output_eval_f64"], 1e-12)
    (grad,) = torch.autograd.grad(v.square().sum(), u)
    assert_close(grad, data["grad_input_eval_f64"], 1e-12)


def test_training_and_its_batch_statistics(data, model, in_double_with_rounded_taps):
    assert_close(model(data["input"]), data["output_train"], 1e-5)
    norm = model.encoder[0].norm
    assert_close(norm.running_mean, data["running_mean_after_train.encoder.0"], 1e-5)
    assert_close(norm.running_var, data["running_var_after_train.encoder.0"], 1e-5)
    double = in_double_with_rounded_taps(from_official(weights(data), 32))
    assert_close(double(data["input"].double()), data["output_train_f64"], 1e-12)


def test_every_stage(data, model):
    model.eval()
    levels = model.config.levels
    stages = {"lift": model.lift, "neck": model.neck}
    for level in range(levels):
        stages |= {
            f"encoder.{level}": model.encoder[level],
            f"skip.{level}": model.skip[level],
            f"ED_expansion.{level}": model.expansion[level],
            f"decoder_inv.{levels - 1 - level}": model.invariant[level],
            f"decoder.{levels - 1 - level}": model.decoder[level],
        }
    stages[f"ED_expansion.{levels}"] = model.expansion[levels]
    seen = {}
    for stage, module in stages.items():
        module.register_forward_hook(lambda _, __, out, stage=stage: seen.update({stage: out}))
    model(data["input"])
    expected = {key.removeprefix("mid."): data[key] for key in data if key.startswith("mid.")}
    assert seen.keys() == expected.keys()
    for stage, value in expected.items():
        assert_close(seen[stage], value, 1e-5)


def test_numpy_arrays_and_other_sizes_do_as_well(data):
    model = from_official({name: value.numpy() for name, value in weights(data).items()}, (64, 32))
    assert isinstance(model, CNO)
    assert model.config.size == (64, 32)


def test_bad_weights_say_what_to_do(data):
    good = weights(data)
    with pytest.raises(ValueError, match="without a prefix"):
        from_official({f"module.{name}": value for name, value in good.items()}, 32)
    with pytest.raises(ValueError, match=r"filter of 12 taps .* pass filter_size"):
        from_official(good, 32, filter_size=8)
    with pytest.raises(ValueError, match="as in training"):
        from_official(good, 32, half_width_mult=1.0)
    with pytest.raises(ValueError, match="lrelu_upsampling has to be even"):
        from_official(good, 32, lrelu_upsampling=3)
    with pytest.raises(ValueError, match="no weight of the authors' CNO"):
        from_official({**good, "attention.0.weight": torch.ones(1)}, 32)
