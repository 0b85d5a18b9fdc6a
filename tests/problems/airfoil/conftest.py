from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcno.problems.airfoil import MeshConfig

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(params=[10, 15])
def reference(request) -> dict[str, Tensor]:
    """Flows of the solver that the authors used, past shapes with 10 and 15 bumps per side.

    In the window of the text, `text_window`, which is not that of the published data.
    """
    with np.load(FIXTURES / f"airfoil_{request.param}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}


@pytest.fixture(scope="session")
def text_window() -> tuple[tuple[float, float], tuple[float, float]]:
    """The window of the text, 2.5 chords wide."""
    return (-0.75, 1.75), (-0.75, 1.75)


@pytest.fixture(scope="session")
def small() -> MeshConfig:
    """A mesh of an eighteenth of the default's cells."""
    return MeshConfig(around=48, wake=8, outward=12)


@pytest.fixture(autouse=True)
def one_thread():
    """The arrays here are too small for more, and cores may be shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
