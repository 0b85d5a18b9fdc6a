"""The networks, one architecture a file, and their names."""

from typing import NamedTuple

from torch import nn

from torchcno.models.cno import CNO, CNOConfig, CNOWithoutFilters, CNOWithoutSkipBlocks
from torchcno.models.deeponet import DeepONet, DeepONetConfig
from torchcno.models.ffnn import FFNN, FFNNConfig
from torchcno.models.fno import FNO, FNOConfig
from torchcno.models.galerkin_transformer import GalerkinTransformer, GalerkinTransformerConfig
from torchcno.models.resnet import ResNet, ResNetConfig
from torchcno.models.unet import UNet, UNetConfig

__all__ = [
    "CNO",
    "FFNN",
    "FNO",
    "MODELS",
    "TITLES",
    "CNOConfig",
    "CNOWithoutFilters",
    "CNOWithoutSkipBlocks",
    "DeepONet",
    "DeepONetConfig",
    "FFNNConfig",
    "FNOConfig",
    "GalerkinTransformer",
    "GalerkinTransformerConfig",
    "ParameterCount",
    "ResNet",
    "ResNetConfig",
    "UNet",
    "UNetConfig",
    "count_parameters",
]

MODELS: dict[str, type[nn.Module]] = {
    "cno": CNO,
    "fno": FNO,
    "unet": UNet,
    "resnet": ResNet,
    "deeponet": DeepONet,
    "ffnn": FFNN,
    "galerkin-transformer": GalerkinTransformer,
    "cno-no-filters": CNOWithoutFilters,
    "cno-no-skip-blocks": CNOWithoutSkipBlocks,
}
# How tables and pictures call them, in the order of the paper's Table 1.
TITLES: dict[str, str] = {
    "ffnn": "FFNN",
    "galerkin-transformer": "GT",
    "unet": "UNet",
    "resnet": "ResNet",
    "deeponet": "DON",
    "fno": "FNO",
    "cno": "CNO",
    "cno-no-filters": "CNO w/o filters",
    "cno-no-skip-blocks": "CNO w/o ResNets",
}


class ParameterCount(NamedTuple):
    """How many numbers are learnt: entries of the tensors, and reals, two for a complex entry."""

    entries: int
    reals: int


def count_parameters(model: nn.Module) -> ParameterCount:
    """The learnt numbers of `model`, counted both ways: the paper counts FNO's entries."""
    learnt = [p for p in model.parameters() if p.requires_grad]
    return ParameterCount(
        entries=sum(p.numel() for p in learnt),
        reals=sum(p.numel() * (2 if p.is_complex() else 1) for p in learnt),
    )
