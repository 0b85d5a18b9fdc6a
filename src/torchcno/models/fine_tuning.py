"""Fine-tuning of a time-dependent CNO on fields of another kind (Herde et al., 2024, SM C.5)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from torchcno.models.cno_time import TimeCNO
from torchcno.selection import option, select


def _start_as_identity(layers: nn.Sequential) -> None:
    for layer in layers:
        assert isinstance(layer, nn.Conv2d)
        assert layer.bias is not None
        nn.init.dirac_(layer.weight)
        nn.init.zeros_(layer.bias)


# How the new layers begin: as PyTorch draws them, which is what the authors do; or so that the
# first channels pass as they are, and the network begins where it was.
STARTS: dict[str, Callable[[nn.Sequential], None]] = {
    "random": lambda layers: None,
    "identity": _start_as_identity,
}


@dataclass(frozen=True)
class FineTuningRates:
    """Learning rates of the parts of a network, for fields that it was trained on."""

    base: float = option(1e-4, "of all other weights", above=0)
    ends: float = option(2.5e-4, "of lifting, projection and the layers around them", above=0)
    norms: float = option(5e-4, "of the norms and what makes them depend on the time", above=0)


SAME_FIELDS = FineTuningRates()
OTHER_FIELDS = FineTuningRates(ends=7.5e-4)  # fields that the network was not trained on


def prepare_fine_tuning(
    network: TimeCNO,
    in_channels: int | None = None,
    out_channels: int | None = None,
    start: str = "random",
) -> TimeCNO:
    """A copy of `network` with new layers around it, for fields of these channels.

    Before the lifting comes a linear map of the channels at every point, or two over 128 channels
    where their number changes. After the projection come two; where the number of channels out
    changes, the projection is a new one instead. None: as many channels as before.
    """
    config = network.config
    if config.pretrained_channels is not None:
        raise ValueError("the network has been prepared before; train it as it is.")
    begin = select(STARTS, start, "start")
    prepared = TimeCNO(
        replace(
            config,
            in_channels=config.in_channels if in_channels is None else in_channels,
            out_channels=config.out_channels if out_channels is None else out_channels,
            pretrained_channels=(config.lifted_channels, config.out_channels),
        )
    ).to(next(network.parameters()))
    is_new = prepared.config.out_channels != config.out_channels
    weights = {
        name: value
        for name, value in network.state_dict().items()
        if not (is_new and name.startswith("project."))
    }
    prepared.load_state_dict(weights, strict=False)  # all but the new layers
    begin(prepared.before)
    begin(prepared.after)
    return prepared


def group_parameters(
    network: TimeCNO, rates: FineTuningRates = SAME_FIELDS
) -> list[dict[str, Any]]:
    """The parameters in the three groups of `rates`, as optimisers of PyTorch take them."""
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in vars(rates)}
    for name, parameter in network.named_parameters():
        groups[_group_of(name)].append(parameter)
    return [
        {"name": name, "params": parameters, "lr": getattr(rates, name)}
        for name, parameters in groups.items()
    ]


def _group_of(name: str) -> str:
    if re.match(r"(lift|project|before|after)\.", name):
        return "ends"
    is_norm = re.match(r"films\.|(?!attention\.).*\bnorm[12]?\.", name)
    return "norms" if is_norm else "base"
