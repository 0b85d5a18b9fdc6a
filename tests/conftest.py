"""Shapes and types of annotated functions are checked while the tests run."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# Two test processes share two cores; one thread each is faster than four that compete.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# Read when Triton is first imported, by whichever test comes first: without a GPU its programs are
# interpreted.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# What a script starts in the background ignores Ctrl-C, and so would every process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

TRAINING = (Path(__file__).parents[1] / "src" / "torchcno" / "training").glob("[a-z]*.py")
CHECKED = (
    "torchcno.grids",
    "torchcno.spectral",
    "torchcno.metrics",
    # Not `sigma`, `triton_*` and `cpu_activation`: compilers read the source of their functions.
    "torchcno.operators.activation",
    "torchcno.operators.block",
    "torchcno.operators.boundary",
    "torchcno.operators.convolution",
    "torchcno.operators.filters",
    "torchcno.operators.fused.bands",
    "torchcno.operators.fused.block",
    "torchcno.operators.fused.choice",
    "torchcno.operators.fused.convolution",
    "torchcno.operators.fused.kernels",
    "torchcno.operators.fused.layout",
    "torchcno.operators.fused.normalised",
    "torchcno.operators.resampling",
    "torchcno.operators.fused.row_plans",
    "torchcno.operators.fused.streams",
    "torchcno.operators.fused.windows",
    "torchcno.models",
    "torchcno.problems",
    "torchcno.data",
    # Not `*_kernels`, for the same reason.
    *(f"torchcno.training.{path.stem}" for path in TRAINING if not path.match("*_kernels.py")),
    "torchcno.evaluation",
)
# An integer is a float, as it is to mypy. The hook wants a name to import the checker by.
checker = ModuleType("torchcno_type_checker")
checker.check = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules[checker.__name__] = checker
install_import_hook(CHECKED, f"{checker.__name__}.check").__enter__()

# After the hook: what is imported before it is not checked.
from torchcno.problems.poisson import Poisson  # noqa: E402
from torchcno.runs import jobs  # noqa: E402
from torchcno.runs.config import RunConfig  # noqa: E402
from torchcno.runs.train import train_run  # noqa: E402
from torchcno.training import Hardware  # noqa: E402


@pytest.fixture
def as_outside_tests() -> Iterator[None]:
    """No checks of annotations, which would speak before the package's own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Two epochs of a CNO with some thousand weights on smooth Poisson data of 24² points."""
    config = RunConfig.resolve(
        Poisson(K=4),
        "cno",
        resolution=24,
        data=tmp_path_factory.mktemp("data"),
        hardware=Hardware(accelerator="cpu"),
    )
    return replace(
        config,
        architecture=replace(
            config.architecture, levels=1, width=4, lift_width=4, neck_blocks=1, skip_blocks=1
        ),
        train=replace(
            config.train,
            epochs=2,
            samples=8,
            batch_size=4,
            learning_rate=1e-3,
            optimizer="adamw",
            normalization=None,  # as published
            augmentation="none",
            frozen_statistics=0.0,
            evaluate_every=1,
            checkpoint_every=0,
        ),
    )


@pytest.fixture(scope="session")
def tiny_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train_run(tiny_config, folder)
    return folder


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in a thread of this process, which saves the start of others."""
    monkeypatch.setattr(
        jobs, "run_in_process", lambda request, environment: jobs.run_request(request)
    )
