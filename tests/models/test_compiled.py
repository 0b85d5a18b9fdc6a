"""Every network is one graph to a compiler."""

import subprocess
import sys

# In a process of its own: the type checks of other tests are nothing that a compiler can follow.
SCRIPT = """
import torch
from torchcno.models import MODELS

cno = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 0, "lift_width": 4}
small = {
    "fno": {"layers": 2, "width": 4, "modes": 4, "hidden_width": 4},
    "unet": {"channels": 2},
    "resnet": {"channels": 4, "residual_blocks": 1},
    "deeponet": {"bases": 8, "trunk_layers": 2, "branch_levels": 1, "residual_blocks": 1},
    "ffnn": {"layers": 3, "width": 8},
    "galerkin-transformer": {"blocks": 1, "decoder_layers": 1, "modes": 4},
}
u = torch.randn(2, 1, 16, 16)
for name, model in MODELS.items():
    network = model(model.Config(size=(16, 16), **small.get(name, cno))).eval()
    whole = torch.compile(network, fullgraph=True, backend="eager")  # a break would be an error
    torch.testing.assert_close(whole(u), network(u))
    print(name)
"""


def test_every_network_compiles_without_a_break():
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
    assert "galerkin-transformer" in process.stdout
