"""Shapes and types of annotated functions are checked while the tests run."""

import os

import torch
from jaxtyping import install_import_hook

# Two test processes share two cores; one thread each is faster than four that compete.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# Read when Triton is first imported, by whichever test comes first: without a GPU its programs are
# interpreted.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

CHECKED = (
    "torchcno.grids",
    "torchcno.spectral",
    "torchcno.metrics",
    "torchcno.operators.filters",
    "torchcno.operators.resampling",
    "torchcno.operators.convolution",
    "torchcno.operators.activation",  # not kernels.py: Triton reads the source of its functions
    "torchcno.models",
    "torchcno.problems",
    "torchcno.data",
    "torchcno.evaluation",
)
install_import_hook(CHECKED, "beartype.beartype").__enter__()
