import copy

import pytest
import torch

from torchcno.models import FFNN, Ensemble
from torchcno.models.ensemble import members_of, spread_of
from torchcno.models.ffnn import FFNNConfig


def network(seed: int) -> FFNN:
    torch.manual_seed(seed)
    return FFNN(FFNNConfig(size=(8, 8), width=8, layers=2)).eval()


U = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_an_ensemble_of_one_is_the_network():
    one = network(0)
    ensemble = Ensemble([one])
    assert torch.equal(ensemble(U), one(U))
    assert spread_of(ensemble.members(U)).count_nonzero() == 0


@pytest.mark.parametrize("count", [2, 3, 5])
def test_identical_members_have_no_spread(count):
    members = Ensemble(copy.deepcopy(network(0)) for _ in range(count)).members(U)
    assert spread_of(members).count_nonzero() == 0


def test_the_mean_and_the_spread_are_those_of_the_members():
    networks = [network(seed) for seed in range(3)]
    ensemble = Ensemble(networks)
    a, b, c = (one(U) for one in networks)
    mean = (a + b + c) / 3
    variance = ((a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2) / 2
    torch.testing.assert_close(ensemble(U), mean)
    torch.testing.assert_close(spread_of(ensemble.members(U)), variance.sqrt())


def test_members_keep_their_weights_and_configuration():
    ensemble = Ensemble(network(seed) for seed in range(2))
    again = Ensemble(network(seed) for seed in (5, 6))
    again.load_state_dict(ensemble.state_dict())
    assert torch.equal(again(U), ensemble(U))
    assert ensemble.config == network(0).config
    assert len(members_of(ensemble)) == 2
    assert len(members_of(network(0))) == 1
    with pytest.raises(ValueError, match="give one at least"):
        Ensemble([])
