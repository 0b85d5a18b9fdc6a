"""Weights of the authors' time-dependent networks, as the `TimeCNO` of this package."""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchcno.models.attention import AttentionConfig
from torchcno.models.cno_time import TimeCNO, TimeCNOConfig
from torchcno.models.official import check_filters, count_numbers, rename_weight
from torchcno.operators.filters import WindowedSinc

_UPSAMPLING = 2  # N_σ of every network of theirs that is filtered
_LIFT, _PROJECT = "lift.inter_CNOBlock.convolution.weight", "project.convolution.weight"
_FIRST = "encoder.0.convolution.weight"
_TIMED = "encoder.0.in_norm_conditiner.lat2scale.weight"
# What they call the layers between time and scale, in their spelling.
_FILMS = {
    "inp2lat_sacale": "scale.0",
    "lat2scale": "scale.1",
    "inp2lat_bias": "shift.0",
    "lat2bias": "shift.1",
}
_ATTENTION = (
    (r"pos_embedding$", "position"),
    (r"to_patch_embedding\.(\d)\.", lambda m: f"embedding.{int(m[1]) - 1}."),
    (r"patch_to_image\.", "back."),
    (r"transformer\.norm\.", "norm."),
    (r"transformer\.layers\.(\d+)\.0\.norm\.", r"layers.\1.norm."),
    (r"transformer\.layers\.(\d+)\.0\.to_qkv\.", r"layers.\1.queries_keys_values."),
    (r"transformer\.layers\.(\d+)\.0\.to_out\.0\.", r"layers.\1.mix."),
    (r"transformer\.layers\.(\d+)\.1\.net\.([01])\.", r"layers.\1.feed_forward.\2."),
    (r"transformer\.layers\.(\d+)\.1\.net\.4\.", r"layers.\1.feed_forward.3."),
)
# The layers that fine-tuning puts around lifting and projection.
_ENDS = (
    (r"^(lift\.lift|project\.project)\.", lambda m: f"{m[1].split('.')[0]}."),
    (r"^lift\.linear(\d)\.", lambda m: f"before.{int(m[1]) - 1}."),
    (r"^project\.post_linear(\d)\.", lambda m: f"after.{int(m[1]) - 1}."),
)


def from_official_time_dependent(
    state_dict: Mapping[str, Any],
    size: int | tuple[int, int] = 128,
    *,
    out_size: int | tuple[int, int] | None = None,
    time_channel: bool = False,
    invariant_blocks: bool = True,
    heads: int = 4,
    has_time: bool = True,
) -> TimeCNO:
    """The network that computes what the authors' `CNO_time` with these weights computes.

    It is called `network(u, time)`, with one time per sample; `network(u)` where the weights have
    no time. `state_dict` maps their parameter names to tensors or arrays, or is a checkpoint that
    has such a mapping under "state_dict"; nothing is unpickled here. Depth, widths, channels,
    numbers of blocks, norm and activation are read off the weights, and whether they were
    fine-tuned. The weights do not tell the rest:

    size               points per axis of the grid; the published networks have 128
    out_size           of the output; None: by the filters where weights have some, else `size`
    time_channel       the network adds the time to u as its last channel, as published networks
                       want it; otherwise that channel is a part of u
    invariant_blocks   False for networks trained with add_inv=False
    heads              of the attention, for networks that have it
    has_time           False for networks trained without time conditioning
    """
    inner = state_dict.get("state_dict", state_dict)
    weights = {name: torch.as_tensor(value) for name, value in inner.items()}
    plain = {_rename_ends(name): value for name, value in weights.items()}
    _refuse_others(plain, has_time)
    check_filters(plain, WindowedSinc(), _UPSAMPLING, "only the published filters are supported")
    config = TimeCNOConfig(
        **_read_channels(weights, plain, time_channel),
        **_read_blocks(plain),
        size=_pair(size),
        out_size=_pair(out_size) if out_size is not None else _read_out_size(plain, _pair(size)),
        attention=_read_attention(plain, heads),
        invariant_blocks=invariant_blocks,
        time_channel=time_channel,
    )
    _refuse_another_grid(plain, config)
    network = TimeCNO(config).to(plain[_LIFT].dtype)
    network.load_state_dict(
        {new: value for name, value in plain.items() if (new := _rename(name, config)) is not None}
    )
    return network


def _pair(size: int | tuple[int, int]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _rename_ends(name: str) -> str:
    """A fine-tuned network's name of a weight as the pretrained one has it."""
    for pattern, new in _ENDS:
        name = re.sub(pattern, new, name)
    return name


def _refuse_others(weights: Mapping[str, Tensor], has_time: bool) -> None:
    for name in (_LIFT, _PROJECT, _FIRST):
        if name not in weights:
            raise ValueError(
                f"{name!r} is not among the weights; give the state_dict of the authors' "
                f"time-dependent CNO, without a prefix. Found: {', '.join(list(weights)[:3])}, …"
            )
    is_timed = _TIMED in weights
    if has_time and not is_timed:
        raise ValueError(
            "the weights know no time; weights of the plain CNO, with the same names, are for "
            "torchcno.from_official. Weights of CNO_time without time are loaded by has_time=False."
        )
    if is_timed and not has_time:
        raise ValueError("the weights know the time; leave has_time=False out.")


def _read_channels(
    weights: Mapping[str, Tensor], plain: Mapping[str, Tensor], time_channel: bool
) -> dict[str, Any]:
    """Channels in and out, now and before fine-tuning."""
    lifted, out = plain[_LIFT].shape[1], len(plain[_PROJECT])
    given = plain["before.0.weight"].shape[1] if "before.0.weight" in plain else lifted
    is_fine_tuned = weights.keys() != plain.keys()
    # A projection that is new has another width than the one before it, which nobody knows.
    old_out = out if "after.0.weight" in plain else 0
    return {
        "in_channels": given - time_channel,
        "out_channels": out,
        "pretrained_channels": (lifted, old_out) if is_fine_tuned else None,
    }


def _read_blocks(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Depth, widths, numbers of blocks, norm and activation."""
    levels = count_numbers(weights, r"encoder\.(\d+)\.")
    width, _, kernel_size, _ = weights[_FIRST].shape
    neck_width = 2 ** (levels - 1) * width
    residual = [
        len(weights[f"res_nets.{n}.convolution1.weight"])
        for n in range(count_numbers(weights, r"res_nets\.(\d+)\."))
    ]
    return {
        "levels": levels,
        "width": width,
        "kernel_size": kernel_size,
        "lift_width": len(weights[_LIFT]),
        "neck_blocks": residual.count(neck_width),
        "skip_blocks": sum(c != neck_width for c in residual) // levels,
        "conditioning": ("time",) if _TIMED in weights else (),
        "norm": _read_norm(weights),
        "activation": _read_activation(weights),
    }


def _read_norm(weights: Mapping[str, Tensor]) -> str:
    name = "in_norm_conditiner.norm" if _TIMED in weights else "batch_norm"
    scale = weights.get(f"encoder.0.{name}.weight")
    if scale is None:
        return "none"
    if f"encoder.0.{name}.running_mean" in weights:
        return "batch"
    return "layer" if scale.ndim == 3 else "instance"


def _read_activation(weights: Mapping[str, Tensor]) -> str:
    if "encoder.0.activation.up_filter" in weights:
        return "filtered"
    return "bicubic" if "encoder.0.activation.bias" in weights else "pooled"


def _read_out_size(weights: Mapping[str, Tensor], size: tuple[int, ...]) -> tuple[int, ...] | None:
    """From the filters of a block that leads from the input's grid to the output's."""
    up, down = (weights.get(f"ED_expansion.0.activation.{way}_filter") for way in ("up", "down"))
    if up is None or down is None or len(up) == len(down):
        return None
    return tuple(n * len(up) // len(down) for n in size)


def _read_attention(weights: Mapping[str, Tensor], heads: int) -> AttentionConfig | None:
    if "transformer.pos_embedding" not in weights:
        return None
    points = len(weights["transformer.to_patch_embedding.1.weight"])
    deepest = count_numbers(weights, r"encoder\.(\d+)\.") - 1
    channels = len(weights[f"encoder.{deepest}.convolution.bias"])
    layer = "transformer.transformer.layers.0."
    inner = len(weights[f"{layer}0.to_qkv.weight"]) // 3
    if inner % heads:
        raise ValueError(
            f"the attention has {inner} features, which {heads} heads do not share evenly; give "
            "the number of heads that the network was trained with."
        )
    return AttentionConfig(
        patch=math.isqrt(points // channels),
        width=weights["transformer.pos_embedding"].shape[2],
        depth=count_numbers(weights, r"transformer\.transformer\.layers\.(\d+)\."),
        heads=heads,
        head_width=inner // heads,
        feed_forward=len(weights[f"{layer}1.net.1.weight"]),
    )


def _refuse_another_grid(weights: Mapping[str, Tensor], config: TimeCNOConfig) -> None:
    """Layer norms and positions belong to one grid."""
    if config.norm == "layer":
        grid = tuple(weights["encoder.0.in_norm_conditiner.norm.weight"].shape[1:])
        if grid != config.size:
            raise ValueError(
                f"the layer norms of the weights are of {grid} points, not {config.size}; "
                f"give size={grid}."
            )
    if config.attention is not None:
        patches = weights["transformer.pos_embedding"].shape[1]
        coarsest = config.sizes(config.levels)
        if patches * config.attention.patch**2 != math.prod(coarsest):
            raise ValueError(
                f"the attention of the weights has {patches} patches of {config.attention.patch}² "
                f"points, and a grid of {config.size} leads to {coarsest}; give the size that the "
                "network was trained with."
            )


def _rename(name: str, config: TimeCNOConfig) -> str | None:
    """Our name of a weight; None for filters, which are made anew."""
    group, _, rest = name.partition(".")
    if group in ("before", "after"):
        return name
    if group == "transformer":
        for pattern, new in _ATTENTION:
            rest, times = re.subn(f"^{pattern}", new, rest)
            if times:
                return f"attention.{rest}"
    if group == "decoder_inv" and rest.startswith(f"{config.levels}."):  # the one never called
        block = _rename(f"encoder.0{rest.removeprefix(str(config.levels))}", config)
        return block and re.sub(r"encoder([./])0([./])", r"spare\2", block, count=1)
    if found := re.match(r"(.*)in_norm_conditiner(\d?)\.(\w+)\.(.*)", name):
        before, number, part, which = found.groups()
        norm = rename_weight(f"{before}norm{number}.", config)
        if norm is not None and part in _FILMS:
            path = norm.rstrip(".").replace(".", "/")
            return f"films.{path}.{_FILMS[part]}.{which}"
        return norm and f"{norm}{which}"
    return rename_weight(name, config)
