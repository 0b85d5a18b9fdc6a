import pytest
import torch
from torch import Tensor

from torchcno.spectral import resample


@pytest.fixture
def waves() -> Tensor:
    """Two random periodic fields of 16² points, band-limited, in float64."""
    noise = torch.randn(2, 1, 12, 12, dtype=torch.float64, generator=seeded(0))
    return resample(noise, (16, 16), "periodic")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
