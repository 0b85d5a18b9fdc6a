"""What a step leaves for its end, on a stream of its own."""

import pytest
import torch

from torchcno.models.cno import CNO, CNOConfig
from torchcno.operators import aside
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused.streams import current_aside
from torchcno.training import Pairs, Recipe, fit


def network(dims: int) -> CNO:
    torch.manual_seed(0)
    small = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4}
    return CNO(CNOConfig(size=(8,) * dims, **small))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_weights_are_rounded_once_for_all_in_any_dimension(dims, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model = network(dims)
    weights = [module.weight for module in model.modules() if isinstance(module, Convolution)]
    with aside(model):
        beside = current_aside()
        copies = beside.copies(torch.float16)
        halves = [copies.straight[id(weight)] for weight in weights]
        assert all(map(torch.equal, halves, [weight.half() for weight in weights]))
        assert beside.copies(torch.float16) is copies


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [1, 3])
def test_a_captured_run_in_half_precision_learns_in_any_dimension(dims, tmp_path) -> None:
    u = torch.randn(8, 1, *(8,) * dims, generator=torch.Generator().manual_seed(1))
    recipe = Recipe(epochs=20, batch_size=4, learning_rate=1e-2, precision="fp16-mixed")
    losses: list[float] = []
    fit(
        network(dims), Pairs(u, u), Pairs(u, u), recipe, tmp_path,
        on_epoch=lambda epoch: losses.append(epoch.train_loss),
    )  # fmt: skip
    assert losses[-1] < 0.8 * losses[0]
