"""What is computed again is the same: outputs, gradients and statistics, to the last bit."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import aside, recomputing
from torchcno.operators.fused import block, choice, recompute
from torchcno.training.averaging import hold_statistics


def network(dims: int = 2, **fields) -> CNO:
    torch.manual_seed(0)
    size = (8,) * dims
    small = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4}
    return CNO(CNOConfig(size=size, boundary="periodic", **small | fields)).train()


def results(model: CNO, on: bool, *conditions: Tensor, beside: bool = False) -> list[Tensor]:
    """Outputs, gradients and buffers after two steps."""
    model = copy.deepcopy(model)
    u = torch.randn(3, 1, *model.config.size, generator=torch.Generator().manual_seed(1))
    u.requires_grad_()
    for _ in range(2):
        with aside(model) if beside else nullcontext():
            with recomputing(on):
                v = model(u.to(next(model.parameters()).dtype), *conditions)
            v.square().sum().backward()
    return [v.detach(), u.grad, *(p.grad for p in model.parameters()), *model.buffers()]


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("held", [False, True])
def test_gradients_and_statistics_are_the_same_bits(dims, held):
    model = network(dims)
    if held:
        hold_statistics(model)
    assert_same(results(model, False), results(model, True))


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_what_a_step_leaves_for_its_end_is_left_once(norm, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model = network(norm=norm)
    kept, again = (results(model, on, beside=True) for on in (False, True))
    assert_same(kept, again)


def test_conditions_reach_every_norm_again():
    model = network(conditioning=("time",))
    nn.init.normal_(model.conditioner.scales_and_shifts.weight, std=0.1)
    times = torch.tensor([[0.1], [0.5], [1.0]])
    assert_same(results(model, False, times), results(model, True, times))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter, alone")
def test_the_fused_program_remembers_a_batch_once(monkeypatch):
    monkeypatch.setattr(
        block,
        "why_not_fused",
        lambda y, norm, activation, *_: (
            None
            if isinstance(norm, nn.BatchNorm2d)
            and choice.why_not_plain_batch_norm(y, norm) is None
            and hasattr(activation, "ups")
            else "no"
        ),
    )
    model = network()
    assert_same(results(model, False), results(model, True))


def test_a_few_channels_at_a_time_are_all_channels(monkeypatch):
    model = network(3).double()
    kept = results(model, False)
    monkeypatch.setattr(recompute, "AT_ONCE", 3 * 8**3)
    for one, other in zip(kept, results(model, True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_only_inputs_of_parts_are_kept():
    def kept(on: bool) -> int:
        """Numbers that autograd holds after a forward pass, of fields."""
        model, sizes = network(3), {}
        own = {p.data_ptr() for p in (*model.parameters(), *model.buffers())}

        def note(tensor: Tensor) -> Tensor:
            if tensor.ndim == 5 and tensor.data_ptr() not in own:
                sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x), recomputing(on):
            v = model(torch.randn(2, 1, 8, 8, 8))
        assert v.requires_grad
        return sum(sizes.values())

    assert kept(True) < kept(False) / 8


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_in_a_captured_step_on_the_gpu(dtype):
    from torchcno.training.losses import LOSSES
    from torchcno.training.optimizers import make_optimizer
    from torchcno.training.pairs import MixedPrecision
    from torchcno.training.step import graphed_step

    device, ends = torch.device("cuda"), []
    batch = [torch.randn(4, 1, 32, 32, device=device) for _ in range(2)]
    for on in (False, True):
        torch.manual_seed(0)
        small = {"levels": 2, "width": 8, "neck_blocks": 1, "skip_blocks": 1}
        model = CNO(CNOConfig(size=(32, 32), boundary="periodic", **small)).to(device).train()
        optimizer = make_optimizer("adamw", model, 1e-3, 0.0, device)
        step = graphed_step(MixedPrecision(model, dtype, on), optimizer, LOSSES["relative-l1"])
        losses = [step(*batch).item() for _ in range(5)]
        ends.append((losses, copy.deepcopy(list(model.buffers()))))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-3)
    for one, other in zip(ends[0][1], ends[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
