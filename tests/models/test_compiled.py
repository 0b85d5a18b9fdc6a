"""Every network is one graph: to a compiler, and to those who write it down for other programs."""

import subprocess
import sys

# In a process of its own: the type checks of other tests are nothing that a compiler can follow.
SCRIPT = """
import io

import torch
from torchcno.models import ABLATIONS, MODELS

cno = {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 0, "lift_width": 4}
small = {
    "cno-no-skip-blocks": {**cno, "boundary": "periodic"},
    "cno": cno,
    "time-cno": cno,
    "fno": {"layers": 2, "width": 4, "modes": 4, "hidden_width": 4},
    "unet": {"channels": 2},
    "resnet": {"channels": 4, "residual_blocks": 1},
    "deeponet": {"bases": 8, "trunk_layers": 2, "branch_levels": 1, "residual_blocks": 1},
    "ffnn": {"layers": 3, "width": 8},
    "galerkin-transformer": {"blocks": 1, "decoder_layers": 1, "modes": 4},
}
u = torch.randn(2, 1, 16, 16)
more = torch.randn(3, 1, 16, 16)
any_batch = ({0: torch.export.Dim.DYNAMIC},)
for name, model in MODELS.items():
    fields = small.get(name, small.get(ABLATIONS.get(name, (name,))[0], {}))
    network = model(model.Config(size=(16, 16), **fields)).eval()
    whole = torch.compile(network, fullgraph=True, backend="eager")  # a break would be an error
    torch.testing.assert_close(whole(u), network(u))
    traced = torch.jit.trace(network, u)
    program = torch.export.export(network, (u,), dynamic_shapes=any_batch)
    for written in (traced, program.module()):
        torch.testing.assert_close(written(more), network(more))
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert all(name.startswith("aten.") for name in operators if "." in name), operators
    torch.jit.save(traced, io.BytesIO())  # a function of Python in it would be refused
    print(name)
times = torch.rand(2, 1)
for name in ("cno", "fno", "time-cno", "unet"):
    config = MODELS[name].Config(size=(16, 16), conditioning=("time",), **small[name])
    network = MODELS[name](config).eval()
    for key, weight in network.named_parameters():
        if key.startswith("films") or key.endswith("scales_and_shifts.weight"):
            torch.nn.init.normal_(weight)
    whole = torch.compile(network, fullgraph=True, backend="eager")
    torch.testing.assert_close(whole(u, times), network(u, times))
    print(name, "told the time")
"""


def test_every_network_is_compiled_traced_and_exported_whole():
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
    assert "galerkin-transformer" in process.stdout
    assert "unet told the time" in process.stdout
