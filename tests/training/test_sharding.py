"""Divided weights are the whole ones, on a group of one process; test_loop.py has two."""

import copy

import pytest
import torch
from torch import nn

from torchcno.training.sharding import is_sharded, shard, share, whole

CPU = torch.device("cpu")


@pytest.fixture
def group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    torch.distributed.destroy_process_group()


def network() -> nn.Module:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
    return nn.Sequential(nn.Conv2d(1, 3, 3), block, nn.Conv2d(3, 1, 1))


@pytest.mark.usefixtures("group")
def test_a_divided_network_is_the_same_function_with_the_same_names():
    plain = network()
    divided = shard(copy.deepcopy(plain), CPU)
    assert is_sharded(divided)
    assert not is_sharded(plain)
    u = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(divided(u), plain(u))
    whole_again = {name: whole(tensor) for name, tensor in divided.state_dict().items()}
    assert whole_again.keys() == plain.state_dict().keys()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(whole_again[name], tensor)


@pytest.mark.usefixtures("group")
def test_weights_are_divided_again_between_passes():
    divided = shard(network(), CPU)
    with torch.no_grad():
        divided(torch.rand(4, 1, 8, 8))
    assert all(hasattr(weight, "placements") for weight in divided.parameters())


@pytest.mark.usefixtures("group")
def test_a_share_of_the_whole_is_what_was_there():
    weight = next(shard(network(), CPU).parameters())
    again = share(whole(weight.detach()), weight)
    assert again.placements == weight.placements
    assert torch.equal(again.to_local(), weight.to_local())


def test_complex_weights_are_refused():
    model = nn.ParameterDict({"spectrum": nn.Parameter(torch.ones(2, dtype=torch.complex64))})
    with pytest.raises(ValueError, match="fsdp cannot divide complex weights, and spectrum"):
        shard(model, CPU)
