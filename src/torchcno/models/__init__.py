"""The networks, one architecture a file, and their names."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from torchcno.models.cno import CNO, CNOConfig
from torchcno.models.cno_time import TimeCNO, TimeCNOConfig
from torchcno.models.deeponet import DeepONet, DeepONetConfig
from torchcno.models.ensemble import Ensemble
from torchcno.models.ffnn import FFNN, FFNNConfig
from torchcno.models.fno import FNO, FNOConfig
from torchcno.models.galerkin_transformer import GalerkinTransformer, GalerkinTransformerConfig
from torchcno.models.resnet import ResNet, ResNetConfig
from torchcno.models.unet import UNet, UNetConfig
from torchcno.operators.filters import Nearest


@runtime_checkable
class Network(Protocol):
    """What is trained, saved and loaded: a `torch.nn.Module` made from a frozen dataclass.

    `type(network).Config` is that dataclass, with the fields `in_channels`, `out_channels` and
    `size`, and `type(network)(config)` builds the network again. An entry in `MODELS` gives it the
    name by which a run folder knows it. A network whose configuration names scalars, as in
    `conditioning=("time",)`, is called `network(u, conditions)` with one row of scalars per sample.
    """

    Config: ClassVar[type[Any]]
    config: Any

    def forward(self, u: Tensor) -> Tensor:
        """The output fields for input fields (batch, channel, *space)."""


# The ablations of the paper (section 4): a network with some of its fields changed.
ABLATIONS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "cno-no-filters": ("cno", {"filter": Nearest()}),  # σ on the samples, plain resampling
    "cno-no-skip-blocks": ("cno", {"skip_blocks": 0}),  # concatenations and the neck stay
}
MODELS: dict[str, Any] = {
    "cno": CNO,
    "fno": FNO,
    "unet": UNet,
    "resnet": ResNet,
    "deeponet": DeepONet,
    "ffnn": FFNN,
    "galerkin-transformer": GalerkinTransformer,
    "time-cno": TimeCNO,
}
MODELS |= {name: MODELS[model] for name, (model, _) in ABLATIONS.items()}
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
