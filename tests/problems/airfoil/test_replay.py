import pytest
import torch

from torchcno.problems.airfoil import FreeStream, SteadyConfig, c_mesh, rae2822, replay
from torchcno.problems.airfoil.replay import Replayed
from torchcno.problems.airfoil.steady import airfoil_levels, cycle, started


def test_what_cannot_be_captured_runs_eagerly_and_says_why(monkeypatch):
    def refuse(march, state):
        raise RuntimeError("no graph here")

    monkeypatch.setattr(replay, "_capture", refuse)
    march = Replayed(lambda state, cfl: state + cfl)
    state = march(torch.zeros(2), 1.0)
    with pytest.warns(UserWarning, match="without a CUDA graph: no graph here"):
        state = march(state, 2.0)
    assert torch.equal(march(state, 4.0), torch.full((2,), 7.0))


@pytest.mark.gpu
def test_a_replayed_march_is_the_march(small):
    stream, config = FreeStream(), SteadyConfig(start_cycles=3)
    level = airfoil_levels(c_mesh(rae2822(), small, "cuda").nodes, small.wake, stream, 3)
    uniform = stream.state().to("cuda")[:, None, None]
    one_by_one = at_once = started(level, uniform, config)

    def march(q, cfl):
        return cycle(q, level, cfl, config.coarse_steps)

    replayed = Replayed(march)
    for spent in range(12):
        one_by_one = march(one_by_one, config.cfl_at(spent))
        at_once = replayed(at_once, config.cfl_at(spent))
    torch.testing.assert_close(at_once, one_by_one, rtol=0, atol=1e-12)
