"""Weights of the authors' implementation, as the CNO of this package."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchcno.models.cno import CNO, CNOConfig
from torchcno.models.operator_unet import Pyramid
from torchcno.operators.filters import WindowedSinc, fir_taps

_BLOCKS = {"ED_expansion": "expansion", "encoder": "encoder"}
_STAGES = {"decoder_inv": "invariant", "decoder": "decoder"}
_FILTERS = (".up_filter", ".down_filter")


def from_official(
    state_dict: Mapping[str, Any],
    size: int | tuple[int, ...],
    *,
    filter_size: int = 6,
    half_width_mult: float = 0.8,
    cutoff_den: float = 2.0001,
    lrelu_upsampling: int = 2,
) -> CNO:
    """The CNO that computes what the authors' network with these weights computes, to rounding.

    `state_dict` maps their parameter names to tensors or arrays, however it was read; nothing is
    unpickled here. Depth, widths, channels and numbers of blocks are read off the shapes. The
    weights of the one block that their network holds and never calls are left out.
    """
    weights = {name: torch.as_tensor(value) for name, value in state_dict.items()}
    if lrelu_upsampling > 1 and lrelu_upsampling * (3 * filter_size - 1) % 2:
        raise ValueError(
            f"with lrelu_upsampling={lrelu_upsampling} and filter_size={filter_size} the authors' "
            "network shifts fields by half a fine sample where the size changes, which is not "
            "reproduced; lrelu_upsampling has to be even, or filter_size odd."
        )
    filter = WindowedSinc(filter_size, half_width_mult, cutoff_den)
    check_filters(weights, filter, lrelu_upsampling)
    config = _config(weights, size, filter, lrelu_upsampling)
    model = CNO(config).to(weights["lift.convolution.weight"].dtype)
    renamed = {
        new: value
        for name, value in weights.items()
        if (new := rename_weight(name, config)) is not None
    }
    model.load_state_dict(renamed)
    return model


def _config(
    weights: Mapping[str, Tensor],
    size: int | tuple[int, ...],
    filter: WindowedSinc,
    upsampling: int,
) -> CNOConfig:
    lift, project = "lift.inter_CNOBlock.convolution.weight", "project.convolution.weight"
    for name in (lift, project, "lift.convolution.weight", "encoder.0.convolution.weight"):
        if name not in weights:
            raise ValueError(
                f"{name!r} is not among the weights; give the state_dict of the authors' CNO, "
                f"without a prefix. Found: {', '.join(list(weights)[:3])}, …"
            )
    lift_width, in_channels, kernel_size, *other = weights[lift].shape
    levels = count_numbers(weights, r"encoder\.(\d+)\.")
    width = len(weights["encoder.0.convolution.weight"])
    neck_width = 2 ** (levels - 1) * width
    residual = [
        len(weights[f"res_nets.{n}.convolution1.weight"])
        for n in range(count_numbers(weights, r"res_nets\.(\d+)\."))
    ]
    return CNOConfig(
        in_channels=in_channels,
        out_channels=len(weights[project]),
        size=(size,) * (1 + len(other)) if isinstance(size, int) else tuple(size),
        levels=levels,
        width=width,
        neck_blocks=residual.count(neck_width),
        skip_blocks=sum(c != neck_width for c in residual) // levels,
        activation_upsampling=upsampling,
        filter=filter,
        boundary="zero",
        activation="leaky_relu",
        norm="batch" if "encoder.0.batch_norm.weight" in weights else "none",
        kernel_size=kernel_size,
        lift_width=lift_width,
    )


def count_numbers(weights: Mapping[str, Tensor], pattern: str) -> int:
    """How many different numbers the names have in the group of `pattern`."""
    return len({match[1] for name in weights if (match := re.match(pattern, name))})


def rename_weight(name: str, config: Pyramid) -> str | None:
    """Our name of a weight; None for filters, which are made anew, and the block never called."""
    if name.endswith(_FILTERS):
        return None
    name = re.sub(r"batch_norm(\d?)\.", r"norm\1.", name)
    group, _, rest = name.partition(".")
    if group in ("lift", "project"):
        rest = re.sub(r"^convolution\.", "convolution2.", rest)
        rest = re.sub(r"^inter_CNOBlock\.convolution\.", "convolution1.", rest)
        return f"{group}.{rest.removeprefix('inter_CNOBlock.')}"
    if group not in (*_BLOCKS, *_STAGES, "res_nets"):
        raise ValueError(f"{name!r} is no weight of the authors' CNO.")
    number, _, rest = rest.partition(".")
    n = int(number)
    if group in _BLOCKS:
        return f"{_BLOCKS[group]}.{n}.{rest}"
    if group in _STAGES:  # theirs count from the coarsest level, ours from the finest
        level = config.levels - 1 - n
        return f"{_STAGES[group]}.{level}.{rest}" if level >= 0 else None
    on_skips = config.levels * config.skip_blocks
    if n < on_skips:
        return f"skip.{n // config.skip_blocks}.{n % config.skip_blocks}.{rest}"
    # Their neck is called from the last block to the first.
    return f"neck.{on_skips + config.neck_blocks - 1 - n}.{rest}"


def check_filters(
    weights: Mapping[str, Tensor],
    filter: WindowedSinc,
    upsampling: int,
    remedy: str = "pass filter_size, half_width_mult, cutoff_den, lrelu_upsampling as in training",
) -> None:
    """Weights that carry their filters must have been trained with the ones that are to be used."""
    carried = weights.get("lift.inter_CNOBlock.activation.up_filter")
    if carried is None or upsampling == 1:
        return
    _, expected = fir_taps(upsampling, filter, "zero")
    if carried.shape != expected.shape or not torch.allclose(carried.double(), expected, atol=1e-6):
        raise ValueError(
            f"the weights come with a filter of {len(carried)} taps that {filter} with "
            f"lrelu_upsampling={upsampling} does not give; {remedy}."
        )
