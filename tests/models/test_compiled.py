"""Every network is one graph to a compiler."""

import subprocess
import sys

# In a process of its own: the type checks of other tests are nothing that a compiler can follow.
SCRIPT = """
import torch
from torchcno.models import MODELS

small = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4}
u = torch.randn(2, 1, 16, 16)
for name, model in MODELS.items():
    fields = small if name.startswith("cno") else {}
    if name == "cno-no-skip-blocks":
        fields = fields | {"skip_blocks": 0}
    network = model(model.Config(size=(16, 16), **fields)).eval()
    whole = torch.compile(network, fullgraph=True, backend="eager")  # a break would be an error
    torch.testing.assert_close(whole(u), network(u))
    print(name)
"""


def test_every_network_compiles_without_a_break():
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
    assert "galerkin-transformer" in process.stdout
