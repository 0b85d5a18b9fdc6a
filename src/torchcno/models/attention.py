"""A transformer on the patches of a field (Dosovitskiy et al., 2021), from a field to a field."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.selection import Options, option

Tokens = Float[Tensor, "batch patch feature"]


@dataclass(frozen=True)
class AttentionConfig(Options):
    """Hyper-parameters of `PatchAttention`."""

    patch: int = option(1, "points per axis of a patch", least=1)
    width: int = option(64, "features of a patch", least=1)
    depth: int = option(4, "layers", least=1)
    heads: int = option(4, "heads of the attention", least=1)
    head_width: int = option(64, "features of a head", least=1)
    feed_forward: int = option(64, "hidden neurons of a layer's network", least=1)


class PatchAttention(nn.Module):
    """Patches to features with a learnt position, layers of attention, and back to patches."""

    def __init__(self, config: AttentionConfig, channels: int, size: tuple[int, ...]) -> None:
        super().__init__()
        if any(n % config.patch for n in size):
            raise ValueError(
                f"a grid of {size} points has no patches of {config.patch}; use patch=1."
            )
        self.config = config
        points, d = channels * config.patch**2, config.width
        self.embedding = nn.Sequential(nn.LayerNorm(points), nn.Linear(points, d), nn.LayerNorm(d))
        self.position = nn.Parameter(torch.randn(1, math.prod(size) // config.patch**2, d))
        self.layers = nn.Sequential(*(AttentionLayer(config) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(d)
        self.back = nn.Sequential(nn.Linear(d, points), nn.LayerNorm(points))

    def forward(self, v: Float[Tensor, "batch c y x"]) -> Float[Tensor, "batch c y x"]:
        p, (n_y, n_x) = self.config.patch, v.shape[2:]
        # (batch, c, patch y, row, patch x, column) to a token a patch: row, column, channel
        patches = v.unflatten(3, (n_x // p, p)).unflatten(2, (n_y // p, p))
        tokens = patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        tokens = self.back(self.norm(self.layers(self.embedding(tokens) + self.position)))
        patches = tokens.unflatten(2, (p, p, -1)).unflatten(1, (n_y // p, n_x // p))
        return patches.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


class AttentionLayer(nn.Module):
    """x ↦ y + W₂ gelu(W₁ N(y)),   y = x + W softmax(QKᵀ/√d) V of N(x), with layer norms N."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        d, self.heads = config.width, config.heads
        inner = config.heads * config.head_width
        self.norm = nn.LayerNorm(d)
        self.queries_keys_values = nn.Linear(d, 3 * inner, bias=False)
        is_own_width = config.heads == 1 and config.head_width == d
        self.mix: nn.Module = nn.Identity() if is_own_width else nn.Linear(inner, d)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(d),
            nn.Linear(d, config.feed_forward),
            nn.GELU(),
            nn.Linear(config.feed_forward, d),
        )

    def forward(self, x: Tokens) -> Tokens:
        parts = self.queries_keys_values(self.norm(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # (batch, head, patch, feature) each
        attended = F.scaled_dot_product_attention(queries, keys, values)
        y = x + self.mix(attended.transpose(1, 2).flatten(2))
        return y + self.feed_forward(y)
